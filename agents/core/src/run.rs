//! What the settings of every run have in common, whatever its agent.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tch::Device;

use crate::{
    CoreError,
    checkpoint::sha256_hex,
    trainer::{Experiment, Intervals},
};

/// Name of the settings' file in a run folder.
pub const CONFIG: &str = "config.toml";

/// Name of the checkpoints' folder in a run folder.
pub const CHECKPOINTS: &str = "checkpoints";

/// How long a run trains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Updates in the whole run. Default 20000.
    pub updates: u64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self { updates: 20_000 }
    }
}

/// What is saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// Updates between two checkpoints, a multiple of `log.interval`; 0: at the end only. Default 5000.
    pub interval: u64,
    /// Newest checkpoints kept, beside the best. Default 2.
    pub keep: usize,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        Self {
            interval: 5000,
            keep: 2,
        }
    }
}

/// What is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// Updates between two reports. Default 100.
    pub interval: u64,
    /// Whether a TensorBoard event file is written. Default true.
    pub tensorboard: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self {
            interval: 100,
            tensorboard: true,
        }
    }
}

/// The settings that every run has, as a view of an agent family's own.
#[derive(Clone, Copy, Debug)]
pub struct RunHeader<'a> {
    /// Name of the run, used for its folder.
    pub name: &'a str,
    /// Root seed of all randomness.
    pub seed: u64,
    /// Registry name of the environment or game.
    pub subject: &'a str,
    /// How long it trains.
    pub train: &'a TrainConfig,
    /// Updates between two evaluations; 0: at the end only.
    pub evaluate: u64,
    /// What is saved.
    pub checkpoint: &'a CheckpointConfig,
    /// What is logged.
    pub log: &'a LogConfig,
}

impl RunHeader<'_> {
    /// How often things happen.
    pub fn intervals(&self) -> Intervals {
        Intervals {
            updates: self.train.updates,
            log: self.log.interval,
            evaluate: self.evaluate,
            checkpoint: self.checkpoint.interval,
        }
    }
}

/// The complete settings of a run of one family of agents: a plain serde struct (`deny_unknown_fields, default`) with the keys `name` and
/// `seed`, the sections `train`, `checkpoint`, `log` and `agent`, and whatever else the family needs.
pub trait RunSettings:
    Clone + std::fmt::Debug + PartialEq + Default + Serialize + DeserializeOwned + Send + 'static
{
    /// What every run has.
    fn header(&self) -> RunHeader<'_>;

    /// The same run with another root seed.
    #[must_use]
    fn with_seed(self, seed: u64) -> Self;

    /// Builds the whole experiment, which checks every setting; nothing is written. Where the settings name something outside, such as a saved
    /// agent, they note which one it was. `warn` takes what the user should know.
    ///
    /// # Errors
    /// [`CoreError`] naming the setting that is out of range or does not fit the others.
    fn build(
        &mut self,
        device: Device,
        warn: &mut dyn FnMut(String),
    ) -> Result<Box<dyn Experiment>, CoreError>;

    /// The settings as TOML; read as a file, it gives the same settings.
    ///
    /// # Errors
    /// [`CoreError::Setting`] if a value has no TOML form.
    fn to_toml(&self) -> Result<String, CoreError> {
        toml::to_string(self).map_err(|e| CoreError::Setting(format!("configuration: {e}")))
    }

    /// What checkpoints of a run with these settings are marked with.
    ///
    /// # Errors
    /// As [`RunSettings::to_toml`].
    fn hash(&self) -> Result<String, CoreError> {
        Ok(sha256_hex(self.to_toml()?.as_bytes()))
    }
}
