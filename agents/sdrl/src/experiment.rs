//! The learning problem as the trainer sees it: environments, replay and agent together.

use pushforward_core::{
    Actor, Batch, Behaviour, Checkpoint, CheckpointStore, Collector, CollectorConfig, CoreError,
    NamedArray, Replay, ReplayConfig, ReplayShape,
    checkpoint::Contents,
    metrics::{StepCount, tag},
    schedule::Schedule,
    trainer::{Evaluation, Experiment, Headline},
};
use pushforward_envs::{Env, EnvConfig, EnvError, ReplicatedReward, StreamRng, VectorEnv};
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::{
    actor::SdrlActor,
    config::{ObjectiveConfig, SdrlConfig},
    judge::{EvalConfig, Judge},
    learner::{Learner, LearnerState, Rule},
    policy::{EvaluatedPolicy, SavedAgent},
};

/// How experience is collected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutConfig {
    /// Environments stepped side by side. Default 16.
    pub environments: usize,
    /// Environment steps, over all environments, before the first update. Default 2000.
    pub warmup: u64,
    /// Updates between two steps of every environment. Default 1.
    pub interval: u64,
    /// Fraction of the run after which the importance exponent of prioritised replay reaches 1. Default 1.
    pub annealing: f64,
}

impl Default for RolloutConfig {
    fn default() -> Self {
        Self {
            environments: 16,
            warmup: 2000,
            interval: 1,
            annealing: 1.0,
        }
    }
}

/// Everything that a run of the agent is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The root seed.
    pub seed: u64,
    /// The environment.
    pub env: EnvConfig,
    /// The agent.
    pub agent: SdrlConfig,
    /// The saved agent whose policy is evaluated, where the objective names one.
    pub saved: Option<SavedAgent>,
    /// The replay buffer.
    pub replay: ReplayConfig,
    /// How experience is collected.
    pub rollout: RolloutConfig,
    /// How the agent is judged.
    pub eval: EvalConfig,
}

impl Setup {
    /// One more copy of the environment.
    ///
    /// # Errors
    /// If a setting of the environment is out of range.
    pub fn build_env(&self) -> Result<Box<dyn Env>, EnvError> {
        let env = self.env.build()?;
        match self.agent.replicate {
            0 => Ok(env),
            copies => Ok(Box::new(ReplicatedReward::new(env, copies)?)),
        }
    }

    /// Environments side by side; `label` tells their streams apart.
    ///
    /// # Errors
    /// If a setting of the environment is out of range.
    pub fn build_envs(&self, count: usize, seed: u64, label: &str) -> Result<VectorEnv, EnvError> {
        let envs = (0..count)
            .map(|_| self.build_env())
            .collect::<Result<_, _>>()?;
        VectorEnv::from_envs(envs, seed, label)
    }
}

/// A run of the sliced distributional agent.
pub struct SdrlExperiment {
    setup: Setup,
    collector: Collector,
    replay: Replay,
    batch: Batch,
    sampling: StreamRng,
    learner: Learner,
    actor: Box<dyn Actor + Send>,
    judge: Judge,
    window: Window,
}

/// Sums since the last report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Window {
    updates: u64,
    loss: f64,
    gradient_norm: f64,
}

/// What a checkpoint holds beside arrays, the collector's bytes and replay.
#[derive(Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) learner: LearnerState,
    sampling: StreamRng,
}

/// Name of the collector's file in a checkpoint.
pub const COLLECTOR_FILE: &str = "collector.bin";

/// The state of a checkpoint.
///
/// # Errors
/// [`CoreError::Checkpoint`] if it is not such a state.
pub(crate) fn saved_state(checkpoint: &Checkpoint) -> Result<State, CoreError> {
    serde_json::from_value(checkpoint.state.clone()).map_err(|error| CoreError::Checkpoint {
        path: checkpoint.path.display().to_string(),
        message: format!("state.json: {error}"),
    })
}

impl SdrlExperiment {
    /// A fresh run.
    ///
    /// # Errors
    /// If any setting is out of range or does not fit the others; nothing has been written then.
    pub fn new(setup: Setup, device: Device) -> Result<Self, CoreError> {
        let rollout = &setup.rollout;
        if rollout.environments == 0 || rollout.interval == 0 {
            return Err(CoreError::Setting(format!(
                "rollout: got environments {} and interval {}, expected at least 1",
                rollout.environments, rollout.interval
            )));
        }
        if !(rollout.annealing > 0.0 && rollout.annealing <= 1.0) {
            return Err(CoreError::Setting(format!(
                "rollout.annealing: got {}, expected more than 0 and at most 1",
                rollout.annealing
            )));
        }
        let env = setup.build_env()?;
        let spec = env.spec().clone();
        let discount = setup.agent.resolved_discount(spec.reward_dim)?;
        let learner = Learner::new(
            &setup.agent,
            env.as_ref(),
            &discount,
            setup.saved.as_ref(),
            setup.seed,
            device,
        )?;
        let actor: Box<dyn Actor + Send> = match &setup.saved {
            Some(agent) => Box::new(agent.actor()),
            None => Box::new(SdrlActor::new(&learner)),
        };
        let judge = Judge::new(&setup, env, &discount)?;
        let collector = Collector::new(
            setup.build_envs(rollout.environments, setup.seed, "environment")?,
            CollectorConfig {
                seed: setup.seed,
                label: "collect".into(),
                discount: discount.clone(),
                evaluation_discount: judge.discount().clone(),
                conditioned: learner.extra_length() > 0,
            },
        )?;
        let shape = ReplayShape::new(
            &spec.observation,
            spec.reward_dim,
            learner.extra_length(),
            rollout.environments,
        );
        let replay = Replay::new(&setup.replay, shape, &discount)?;
        Ok(Self {
            batch: Batch::new(spec.observation.kind),
            sampling: StreamRng::new(setup.seed, "replay", 0),
            window: Window::default(),
            setup,
            collector,
            replay,
            learner,
            actor,
            judge,
        })
    }

    /// The learner.
    pub fn learner(&self) -> &Learner {
        &self.learner
    }

    /// The replay buffer.
    pub fn replay(&self) -> &Replay {
        &self.replay
    }

    /// The arrays of a checkpoint.
    ///
    /// # Errors
    /// If libtorch cannot copy a tensor to the CPU.
    pub fn arrays(&self) -> Result<Vec<NamedArray>, CoreError> {
        self.learner.arrays()
    }

    /// Counters and streams of a checkpoint.
    ///
    /// # Errors
    /// If a number cannot be written as JSON.
    pub fn state(&self) -> Result<serde_json::Value, CoreError> {
        let state = State {
            learner: self.learner.state(),
            sampling: self.sampling.clone(),
        };
        serde_json::to_value(state)
            .map_err(|error| CoreError::Setting(format!("checkpoint state: {error}")))
    }

    /// The collector's bytes of a checkpoint, to be stored as [`COLLECTOR_FILE`].
    pub fn collector_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.collector.save(&mut bytes);
        bytes
    }

    fn epsilon(&self) -> Option<Schedule> {
        match &self.setup.agent.objective {
            ObjectiveConfig::Control { epsilon, .. } => Some(*epsilon),
            ObjectiveConfig::Evaluation { .. } => None,
        }
    }

    fn collect(&mut self, progress: f64) -> Result<(), CoreError> {
        let epsilon = self.epsilon().map_or(0.0, |schedule| schedule.at(progress));
        let actor = self.actor.as_mut();
        let mut behaviour = match self.learner.rule() {
            Rule::Policy {
                policy: EvaluatedPolicy::Fixed(policy),
                ..
            } => Behaviour::Policy(policy),
            Rule::Policy {
                policy: EvaluatedPolicy::Saved(agent),
                ..
            } => Behaviour::Actor {
                actor,
                epsilon: agent.epsilon(),
            },
            Rule::Greedy { .. } => Behaviour::Actor { actor, epsilon },
        };
        self.collector.step(&mut behaviour, Some(&mut self.replay))
    }

    /// Importance exponent β of prioritised replay, from its setting to 1.
    fn importance_exponent(&self, progress: f64) -> f64 {
        let start = self.setup.replay.importance_exponent;
        start + (1.0 - start) * (progress / self.setup.rollout.annealing).min(1.0)
    }
}

impl Experiment for SdrlExperiment {
    fn steps(&self) -> StepCount {
        StepCount {
            env_steps: self.collector.env_steps(),
            updates: self.learner.updates(),
        }
    }

    fn advance(&mut self, progress: f64) -> Result<(), CoreError> {
        // A window of n steps must be complete before anything can be drawn, whatever the warm-up says.
        while self.collector.env_steps() < self.setup.rollout.warmup || self.replay.is_empty() {
            self.collect(0.0)?;
        }
        if self
            .learner
            .updates()
            .is_multiple_of(self.setup.rollout.interval)
        {
            self.collect(progress)?;
        }
        self.replay.sample(
            self.setup.agent.batch_size,
            self.importance_exponent(progress),
            &mut self.sampling,
            &mut self.batch,
        )?;
        let report = self.learner.update(&self.batch, progress)?;
        if self.setup.replay.prioritised {
            self.replay
                .update_priorities(&self.batch.indices, &report.priorities)?;
        }
        self.window.updates += 1;
        self.window.loss += report.loss;
        self.window.gradient_norm += report.gradient_norm;
        Ok(())
    }

    fn report(&mut self, progress: f64) -> Vec<(String, f64)> {
        let window = std::mem::take(&mut self.window);
        let count = window.updates.max(1) as f64;
        let constrained = !self.collector.spec().constraints.is_empty();
        let mut scalars = self.collector.take_statistics().scalars(constrained);
        let mut put = |name: &str, value: f64| scalars.push((name.to_owned(), value));
        put(tag::TRAIN_LOSS, window.loss / count);
        put(tag::TRAIN_GRADIENT_NORM, window.gradient_norm / count);
        put(
            tag::TRAIN_LEARNING_RATE,
            self.setup.agent.optimiser.learning_rate.at(progress),
        );
        put(tag::COLLECT_REPLAY_LENGTH, self.replay.len() as f64);
        if let Some(epsilon) = self.epsilon() {
            put(tag::COLLECT_EPSILON, epsilon.at(progress));
        }
        if self.setup.replay.prioritised {
            put(
                tag::TRAIN_IMPORTANCE_EXPONENT,
                self.importance_exponent(progress),
            );
        }
        scalars
    }

    fn evaluate(&mut self, last: bool) -> Result<Evaluation, CoreError> {
        self.judge.evaluate(&self.setup, &self.learner, last)
    }

    fn save(&self, store: &CheckpointStore, headline: Option<&Headline>) -> Result<(), CoreError> {
        let contents = Contents {
            arrays: &self.arrays()?,
            state: &self.state()?,
            files: &[(COLLECTOR_FILE, &self.collector_bytes())],
            replay: Some(&self.replay),
            headline,
        };
        store.save(self.steps().updates, &contents).map(drop)
    }

    /// Without its replay buffer only the agent is restored, which is enough to judge it but not to go on.
    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), CoreError> {
        let arrays = checkpoint.matching(&self.learner.array_names())?;
        let state = saved_state(checkpoint)?;
        self.learner.load(&arrays, &state.learner)?;
        self.sampling = state.sampling;
        self.collector.load(&checkpoint.file(COLLECTOR_FILE)?)?;
        if checkpoint.has_replay() {
            checkpoint.load_replay(&mut self.replay)?;
        }
        self.window = Window::default();
        Ok(())
    }

    fn sizes(&self) -> String {
        let replay = self.setup.replay.bytes(self.replay.shape()) as f64 / f64::from(1 << 30);
        format!(
            "{} parameters, replay {replay:.2} GiB",
            self.learner.parameter_count()
        )
    }
}
