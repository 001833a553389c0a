//! The settings of a run, and the saved agent that they may name.

use std::path::Path;

use pushforward_core::{
    CheckpointStore, CoreError, ReplayConfig,
    run::{CHECKPOINTS, CONFIG, CheckpointConfig, LogConfig, RunHeader, RunSettings, TrainConfig},
    trainer::Experiment,
};
use pushforward_envs::EnvConfig;
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::{
    config::{ObjectiveConfig, SdrlConfig},
    experiment::{RolloutConfig, SdrlExperiment, Setup},
    judge::EvalConfig,
    policy::{EvaluatedPolicyConfig, SavedAgent, SavedCheckpoint},
};

/// Everything that decides what a run computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SdrlRun {
    /// Name of the run, used for its folder; the preset's name or the file's if left out.
    pub name: String,
    /// Root seed of all randomness.
    pub seed: u64,
    /// The environment, by its registry name with its settings.
    pub env: EnvConfig,
    /// The agent.
    pub agent: SdrlConfig,
    /// The replay buffer.
    pub replay: ReplayConfig,
    /// How experience is collected.
    pub rollout: RolloutConfig,
    /// How long it trains.
    pub train: TrainConfig,
    /// How the agent is judged.
    pub eval: EvalConfig,
    /// What is saved.
    pub checkpoint: CheckpointConfig,
    /// What is logged.
    pub log: LogConfig,
}

impl Default for SdrlRun {
    fn default() -> Self {
        Self {
            name: "run".to_owned(),
            seed: 0,
            env: EnvConfig::default(),
            agent: SdrlConfig::default(),
            replay: ReplayConfig::default(),
            rollout: RolloutConfig::default(),
            train: TrainConfig::default(),
            eval: EvalConfig::default(),
            checkpoint: CheckpointConfig::default(),
            log: LogConfig::default(),
        }
    }
}

impl SdrlRun {
    /// What the experiment is made from; `saved` is the agent that the objective names, if it names one.
    pub fn setup(&self, saved: Option<SavedAgent>) -> Setup {
        Setup {
            seed: self.seed,
            env: self.env.clone(),
            agent: self.agent.clone(),
            saved,
            replay: self.replay.clone(),
            rollout: self.rollout.clone(),
            eval: self.eval.clone(),
        }
    }

    /// Loads the agent that the objective names, and notes which one it was; `None` where the objective names none.
    fn saved_agent(
        &mut self,
        device: Device,
        warn: &mut dyn FnMut(String),
    ) -> Result<Option<SavedAgent>, CoreError> {
        let ObjectiveConfig::Evaluation {
            policy: EvaluatedPolicyConfig::Agent(named),
            ..
        } = &mut self.agent.objective
        else {
            return Ok(None);
        };
        let shown = named.run.display().to_string();
        let refuse = |message: &dyn std::fmt::Display| {
            CoreError::Setting(format!("agent.objective.policy.run: {message}"))
        };
        let own = read(&named.run).map_err(|error| refuse(&error))?;
        if own.env != self.env {
            let (got, expected) = (own.env.name(), self.env.name());
            return Err(refuse(&if got == expected {
                format!("{shown} is of {got} with other settings, expected the same [env]")
            } else {
                format!("{shown} is of {got}, expected {expected}")
            }));
        }
        let store = CheckpointStore::open(&named.run.join(CHECKPOINTS), &own.hash()?);
        let (checkpoint, warnings) = match (named.updates, named.checkpoint) {
            (Some(updates), _) => store.load_at(updates).map(|found| (found, Vec::new())),
            (None, SavedCheckpoint::Latest) => store.load_latest(),
            (None, SavedCheckpoint::Best) => store.load_best(),
        }
        .map_err(|error| refuse(&error))?;
        warnings.into_iter().for_each(warn);
        let env = own
            .setup(None)
            .build_env()
            .map_err(|error| refuse(&error))?;
        let agent = SavedAgent::new(&own.agent, env.as_ref(), &checkpoint, named.epsilon, device)
            .map_err(|error| refuse(&format!("{shown}: {error}")))?;
        if let Some(expected) = &named.hash
            && expected != agent.hash()
        {
            return Err(refuse(&format!(
                "{shown} holds another agent at update {} (hash {:.12}, expected {expected:.12})",
                checkpoint.updates,
                agent.hash()
            )));
        }
        named.updates = Some(checkpoint.updates);
        named.hash = Some(agent.hash().to_owned());
        Ok(Some(agent))
    }
}

/// The settings in a run folder.
fn read(folder: &Path) -> Result<SdrlRun, String> {
    let path = folder.join(CONFIG);
    if !path.is_file() {
        return Err(format!("{}: no run here (no {CONFIG})", folder.display()));
    }
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    toml::from_str(&text).map_err(|error| {
        format!(
            "{} is not of a run of this agent: {}",
            path.display(),
            error.message()
        )
    })
}

impl RunSettings for SdrlRun {
    fn header(&self) -> RunHeader<'_> {
        RunHeader {
            name: &self.name,
            seed: self.seed,
            subject: self.env.name(),
            train: &self.train,
            evaluate: self.eval.interval,
            checkpoint: &self.checkpoint,
            log: &self.log,
        }
    }

    fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    fn build(
        &mut self,
        device: Device,
        warn: &mut dyn FnMut(String),
    ) -> Result<Box<dyn Experiment>, CoreError> {
        let saved = self.saved_agent(device, warn)?;
        Ok(Box::new(SdrlExperiment::new(self.setup(saved), device)?))
    }
}
