//! The settings of a run.

use pushforward_core::{
    CoreError,
    optimiser::AdamConfig,
    run::{CheckpointConfig, LogConfig, RunHeader, RunSettings, TrainConfig},
    schedule::{Schedule, ScheduleShape},
    trainer::Experiment,
};
use pushforward_envs::mean_field::GameConfig;
use serde::{Deserialize, Serialize};
use tch::Device;

use crate::experiment::StructuralExperiment;

/// What the policy remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Structural policy gradient: π(a|s, o_t), no memory (arXiv 2512.18892).
    Spg,
    /// Recurrent structural policy gradient: π(a|s, o_0..o_t) (arXiv 2602.20141).
    #[default]
    Rspg,
}

/// The agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StructuralConfig {
    /// `spg` or `rspg`.
    pub kind: Kind,
    /// Length of the embeddings of the state and of the public input. Default 64, as in MFAX.
    pub embedding: usize,
    /// Units of the policy's two layers and of the encoder. Default 128, as in MFAX.
    pub hidden: usize,
    /// Whether V_t(s) is subtracted from Q_t(s, a), which changes no gradient but for rounding. Default true.
    pub baseline: bool,
    /// Weight τ of an entropy bonus, in units of reward: Σ_t γ^t Σ_s μ_t(s) τ H(π_t(·|s)) is added to what is maximised, μ held fixed. It keeps
    /// actions alive that only matter once the population has moved; a number or a schedule. Default 0, as in MFAX.
    pub entropy: Schedule,
    /// Adam. Default: learning rate 1e-3 falling linearly to a tenth, gradients clipped to norm 1, as in MFAX.
    pub optimiser: AdamConfig,
}

impl Default for StructuralConfig {
    fn default() -> Self {
        Self {
            kind: Kind::default(),
            embedding: 64,
            hidden: 128,
            baseline: true,
            entropy: Schedule::constant(0.0),
            optimiser: AdamConfig {
                learning_rate: Schedule {
                    initial: 1e-3,
                    last: 1e-4,
                    shape: ScheduleShape::Linear,
                    fraction: 1.0,
                },
                clip_norm: 1.0,
                ..AdamConfig::default()
            },
        }
    }
}

/// What an update is computed from: whole episodes from fresh resets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PathsConfig {
    /// Common-noise paths drawn for each update. Default 8.
    pub paths: usize,
    /// Whether equal paths are computed once and weighted, which changes nothing but the time. Default true.
    pub merge_equal: bool,
    /// Whether every update takes all common-noise paths of the game with their probabilities in place of `paths` draws: no sampling noise,
    /// for games that have few. Default false.
    pub complete: bool,
}

impl Default for PathsConfig {
    fn default() -> Self {
        Self {
            paths: 8,
            merge_equal: true,
            complete: false,
        }
    }
}

/// How the policy is judged; nothing here changes what it learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EvalConfig {
    /// Updates between two evaluations, a multiple of `log.interval`; 0: at the end only. Default 20.
    pub interval: u64,
    /// Seed of the evaluation paths: never that of training. Default 1000.
    pub seed: u64,
    /// Evaluation paths of games whose noise has too many to take all. Default 8.
    pub paths: usize,
}

impl Default for EvalConfig {
    fn default() -> Self {
        Self {
            interval: 20,
            seed: 1000,
            paths: 8,
        }
    }
}

/// Everything that decides what a run computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StructuralRun {
    /// Name of the run, used for its folder; the preset's name or the file's if left out.
    pub name: String,
    /// Root seed of all randomness.
    pub seed: u64,
    /// The game, by its registry name with its settings.
    pub game: GameConfig,
    /// The agent.
    pub agent: StructuralConfig,
    /// What an update is computed from.
    pub rollout: PathsConfig,
    /// How long it trains; an update is one iteration.
    pub train: TrainConfig,
    /// How the policy is judged.
    pub eval: EvalConfig,
    /// What is saved.
    pub checkpoint: CheckpointConfig,
    /// What is logged.
    pub log: LogConfig,
}

impl Default for StructuralRun {
    fn default() -> Self {
        Self {
            name: "run".to_owned(),
            seed: 0,
            game: GameConfig::default(),
            agent: StructuralConfig::default(),
            rollout: PathsConfig::default(),
            train: TrainConfig { updates: 200 },
            eval: EvalConfig::default(),
            checkpoint: CheckpointConfig {
                interval: 100,
                ..CheckpointConfig::default()
            },
            log: LogConfig {
                interval: 1,
                ..LogConfig::default()
            },
        }
    }
}

impl RunSettings for StructuralRun {
    fn header(&self) -> RunHeader<'_> {
        RunHeader {
            name: &self.name,
            seed: self.seed,
            subject: self.game.name(),
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
        _warn: &mut dyn FnMut(String),
    ) -> Result<Box<dyn Experiment>, CoreError> {
        if device != Device::Cpu {
            return Err(CoreError::Setting(format!(
                "device: got {device:?}, expected cpu: mean-field agents run on the processor only"
            )));
        }
        Ok(Box::new(StructuralExperiment::new(self.clone())?))
    }
}
