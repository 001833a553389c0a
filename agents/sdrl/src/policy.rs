//! Policies whose return is evaluated: fixed ones, and those of saved control agents.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use pushforward_core::{
    Actor, Batch, Checkpoint, CoreError, NamedArray, ObservationBuffer, checkpoint::sha256_hex,
};
use pushforward_envs::{
    Env, EnvError, Policy, PolicyConfig, StreamRng,
    ground_truth::{Decider, Player, RolloutPolicy},
};
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::{
    actor::SdrlActor,
    config::{ObjectiveConfig, SdrlConfig},
    experiment::saved_state,
    learner::Learner,
};

/// The policy whose return is evaluated, as written in a configuration: `uniform`, `table`, `action` or `agent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged, from = "Written")]
pub enum EvaluatedPolicyConfig {
    /// A fixed policy.
    Fixed(PolicyConfig),
    /// The policy of a saved control agent.
    Agent(SavedAgentConfig),
}

/// The ε-greedy policy of a saved control agent, `kind = "agent"`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename = "agent")]
pub struct SavedAgentConfig {
    /// Folder of the agent's run, in the same environment. It must be there for as long as this run is to be resumed.
    pub run: PathBuf,
    /// Which checkpoint, until `updates` says it; default latest.
    pub checkpoint: SavedCheckpoint,
    /// Probability ε of a uniform random action; default 0.05.
    pub epsilon: f64,
    /// Updates of the checkpoint; filled in when a run starts, so that it goes on with the same policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub updates: Option<u64>,
    /// [`SavedAgent::hash`] of the agent; filled in when a run starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// Which checkpoint of a saved agent is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SavedCheckpoint {
    /// The newest one that is whole.
    #[default]
    Latest,
    /// The one with the best figure.
    Best,
}

/// The written form, in which all kinds stand beside each other.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Written {
    Uniform {},
    Table {
        probabilities: Vec<Vec<f64>>,
    },
    Action {
        action: String,
    },
    Agent {
        run: PathBuf,
        #[serde(default)]
        checkpoint: SavedCheckpoint,
        #[serde(default = "default_epsilon")]
        epsilon: f64,
        #[serde(default)]
        updates: Option<u64>,
        #[serde(default)]
        hash: Option<String>,
    },
}

fn default_epsilon() -> f64 {
    0.05
}

impl From<Written> for EvaluatedPolicyConfig {
    fn from(written: Written) -> Self {
        Self::Fixed(match written {
            Written::Uniform {} => PolicyConfig::Uniform,
            Written::Table { probabilities } => PolicyConfig::Table { probabilities },
            Written::Action { action } => PolicyConfig::Action { action },
            Written::Agent {
                run,
                checkpoint,
                epsilon,
                updates,
                hash,
            } => {
                return Self::Agent(SavedAgentConfig {
                    run,
                    checkpoint,
                    epsilon,
                    updates,
                    hash,
                });
            }
        })
    }
}

impl Default for EvaluatedPolicyConfig {
    fn default() -> Self {
        Self::Fixed(PolicyConfig::default())
    }
}

impl EvaluatedPolicyConfig {
    /// The policy for `env`; `saved` is the agent that the configuration names, if it names one.
    ///
    /// # Errors
    /// If the policy does not fit the environment, or there is no such agent.
    pub(crate) fn build(
        &self,
        env: &dyn Env,
        saved: Option<&SavedAgent>,
    ) -> Result<EvaluatedPolicy, CoreError> {
        match self {
            Self::Fixed(config) => Ok(EvaluatedPolicy::Fixed(Policy::new(config, env)?)),
            Self::Agent(config) => match saved {
                Some(agent) => Ok(EvaluatedPolicy::Saved(Box::new(agent.clone()))),
                None => Err(CoreError::Setting(format!(
                    "agent.objective.policy: the agent of {} is not loaded",
                    config.run.display()
                ))),
            },
        }
    }
}

/// The policy whose return is evaluated.
#[derive(Clone, Debug)]
pub(crate) enum EvaluatedPolicy {
    /// A function of the table state.
    Fixed(Policy),
    /// ε-greedy for a saved agent's utility.
    Saved(Box<SavedAgent>),
}

impl EvaluatedPolicy {
    /// Probabilities π(·|S_n) of the actions in the successors of a batch, `[B, A]`.
    pub(crate) fn next_probabilities(&self, batch: &Batch) -> Result<Vec<f32>, CoreError> {
        match self {
            Self::Fixed(policy) => Ok(batch
                .next_table_state
                .iter()
                .flat_map(|state| policy.probabilities(*state as usize))
                .copied()
                .collect()),
            Self::Saved(agent) => agent.probabilities(&batch.next_observations, batch.size),
        }
    }

    /// The policy as ground truth draws from it.
    pub(crate) fn rollout(&self) -> &dyn RolloutPolicy {
        match self {
            Self::Fixed(policy) => policy,
            Self::Saved(agent) => agent.as_ref(),
        }
    }
}

/// The acting half of a saved control agent: greedy for its utility of its learned law, with probability ε a uniform random action instead.
///
/// An implicit law is represented by one fixed draw of its noise, so that the greedy action is a function of the observation.
pub struct SavedAgent {
    actor: Mutex<SavedActor>,
    epsilon: f64,
    actions: usize,
    hash: String,
}

impl SavedAgent {
    /// The agent that `config` describes, as it was at a checkpoint, for environments like `env`.
    ///
    /// # Errors
    /// [`CoreError::Setting`] if the agent does not control, its decisions depend on more than the state, or ε is no probability; and what
    /// does not fit in the checkpoint.
    pub fn new(
        config: &SdrlConfig,
        env: &dyn Env,
        checkpoint: &Checkpoint,
        epsilon: f64,
        device: Device,
    ) -> Result<Self, CoreError> {
        let refuse = |message: &str| Err(CoreError::Setting(message.into()));
        if !(0.0..=1.0).contains(&epsilon) {
            return refuse(&format!("epsilon: got {epsilon}, expected a probability"));
        }
        if matches!(config.objective, ObjectiveConfig::Evaluation { .. }) {
            return refuse("the agent evaluates a policy, expected one with objective control");
        }
        let discount = config.resolved_discount(env.spec().reward_dim)?;
        let mut learner = Learner::new(config, env, &discount, None, 0, device)?;
        if learner.extra_length() > 0 {
            return refuse(
                "the agent's decisions depend on the return so far (joint-constraint), expected decisions that depend on the state alone",
            );
        }
        let arrays = checkpoint.matching(&learner.array_names())?;
        learner.load(&arrays, &saved_state(checkpoint)?.learner)?;
        Ok(Self {
            actor: Mutex::new(SavedActor(SdrlActor::new(&learner))),
            epsilon,
            actions: env.spec().actions(),
            hash: hash(config, &arrays)?,
        })
    }

    /// A hash of all that the greedy actions depend on: the agent's settings and its weights.
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// Probability ε of a uniform random action.
    pub(crate) fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// One more copy of the greedy part.
    pub(crate) fn actor(&self) -> SavedActor {
        self.lock().clone()
    }

    /// Probabilities of the actions for `rows` observations, `[rows, A]`.
    fn probabilities(
        &self,
        observations: &ObservationBuffer,
        rows: usize,
    ) -> Result<Vec<f32>, CoreError> {
        let mut greedy = vec![0; rows];
        self.lock().greedy(observations, &mut greedy)?;
        let uniform = self.epsilon / self.actions as f64;
        let mut probabilities = vec![uniform as f32; rows * self.actions];
        for (row, action) in probabilities.chunks_exact_mut(self.actions).zip(greedy) {
            row[action] = (1.0 - self.epsilon + uniform) as f32;
        }
        Ok(probabilities)
    }

    fn lock(&self) -> MutexGuard<'_, SavedActor> {
        // A call that panicked leaves nothing half-done behind: the network is only read.
        self.actor
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// The agent's settings and the arrays of its online network.
fn hash(config: &SdrlConfig, arrays: &[&NamedArray]) -> Result<String, CoreError> {
    let mut bytes = serde_json::to_vec(config)
        .map_err(|error| CoreError::Setting(format!("saved agent: {error}")))?;
    for array in arrays.iter().filter(|a| a.name.starts_with("online/")) {
        bytes.extend_from_slice(array.name.as_bytes());
        bytes.extend(array.as_f32()?.iter().flat_map(|x| x.to_le_bytes()));
    }
    Ok(sha256_hex(&bytes))
}

impl Clone for SavedAgent {
    fn clone(&self) -> Self {
        Self {
            actor: Mutex::new(self.actor()),
            epsilon: self.epsilon,
            actions: self.actions,
            hash: self.hash.clone(),
        }
    }
}

impl std::fmt::Debug for SavedAgent {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "saved agent {} with ε = {}", self.hash, self.epsilon)
    }
}

impl RolloutPolicy for SavedAgent {
    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn player(&self) -> Player<'_> {
        Player::Batched {
            decider: Box::new(self.actor()),
            epsilon: self.epsilon,
        }
    }
}

/// The greedy part of a [`SavedAgent`].
#[derive(Clone)]
pub(crate) struct SavedActor(SdrlActor);

impl SavedActor {
    fn greedy(
        &mut self,
        observations: &ObservationBuffer,
        actions: &mut [usize],
    ) -> Result<(), CoreError> {
        // The same stream each time: the noise of an implicit law is fixed.
        let mut rng = StreamRng::new(0, "saved agent", 0);
        self.0
            .act(observations, &[], actions.len(), &mut rng, actions)
    }
}

impl Actor for SavedActor {
    fn act(
        &mut self,
        observations: &ObservationBuffer,
        _extra: &[f32],
        rows: usize,
        _rng: &mut StreamRng,
        actions: &mut [usize],
    ) -> Result<(), CoreError> {
        self.greedy(observations, &mut actions[..rows])
    }
}

impl Decider for SavedActor {
    fn decide(
        &mut self,
        observations: &ObservationBuffer,
        rows: usize,
        actions: &mut [usize],
    ) -> Result<(), EnvError> {
        self.greedy(observations, &mut actions[..rows])
            .map_err(|error| EnvError::Policy(error.to_string()))
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
