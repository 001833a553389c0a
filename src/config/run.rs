//! The settings of a run.

use std::path::Path;

use pushforward_core::ReplayConfig;
use pushforward_core::trainer::Intervals;
use pushforward_envs::EnvConfig;
use pushforward_sdrl::{EvalConfig, RolloutConfig, SavedAgent, SdrlConfig, Setup};
use serde::{Deserialize, Serialize};

use super::Layers;
use crate::cli::Settings;
use crate::failure::{Failure, nearest};
use crate::presets::{self, PRESETS};

/// Everything that decides what a run computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
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

impl Default for RunConfig {
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

impl RunConfig {
    /// The configuration as TOML; read as a file, it gives the same configuration.
    ///
    /// # Errors
    /// [`Failure::Input`] if a value has no TOML form.
    pub fn to_toml(&self) -> Result<String, Failure> {
        toml::to_string(self).map_err(|e| Failure::input(format!("configuration: {e}")))
    }

    /// How often things happen.
    pub fn intervals(&self) -> Intervals {
        Intervals {
            updates: self.train.updates,
            log: self.log.interval,
            evaluate: self.eval.interval,
            checkpoint: self.checkpoint.interval,
        }
    }

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

    /// Checks what concerns the run as a whole; the agent and the environment check their own settings when they are built.
    ///
    /// # Errors
    /// [`Failure::Input`] naming the setting.
    pub fn validate(&self) -> Result<(), Failure> {
        let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(plain) || self.name.starts_with('.') {
            return Err(Failure::input(format!(
                "name: got `{}`, expected letters, digits, `-`, `_` and `.`",
                self.name
            )));
        }
        if self.checkpoint.keep == 0 {
            return Err(Failure::input(
                "checkpoint.keep: got 0, expected at least 1",
            ));
        }
        self.intervals().validate().map_err(Failure::input)
    }
}

/// The configuration of a preset or a file with everything on top of it.
///
/// # Errors
/// [`Failure::Input`] if the source is neither a preset nor a file, or a setting is wrong.
pub fn resolve(settings: &Settings) -> Result<RunConfig, Failure> {
    let mut layers = Layers::default();
    let path = Path::new(&settings.source);
    let name = match presets::find(&settings.source) {
        Some(preset) => {
            layers.text(&format!("preset {}", preset.name), preset.text)?;
            preset.name.to_owned()
        }
        None if path.is_file() => {
            layers.file(path)?;
            let stem = path.file_stem().unwrap_or_default();
            stem.to_string_lossy().into_owned()
        }
        None => {
            let names = || PRESETS.iter().map(|preset| preset.name);
            let advice = match nearest(&settings.source, names()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("presets: {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::input(format!(
                "`{}` is neither a preset nor a file; {advice}",
                settings.source
            )));
        }
    };
    for file in &settings.config {
        layers.file(file)?;
    }
    layers.set(&settings.set)?;
    if let Some(seed) = settings.seed {
        layers.set(&[format!("seed={seed}")])?;
    }
    if !layers.sets("name") {
        layers.set(&[format!("name=\"{name}\"")])?;
    }
    let defaults = toml::Table::try_from(RunConfig::default())
        .map_err(|e| Failure::input(format!("configuration: {e}")))?;
    layers.fill_kinds(&defaults);
    let config: RunConfig = layers.resolve()?;
    config.validate()?;
    Ok(config)
}

/// The configuration in a file, such as the `config.toml` of a run.
///
/// # Errors
/// [`Failure::Input`] if it cannot be read or a setting is wrong.
pub fn read(path: &Path) -> Result<RunConfig, Failure> {
    let mut layers = Layers::default();
    layers.file(path)?;
    let config: RunConfig = layers.resolve()?;
    config.validate()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(source: &str) -> Settings {
        Settings {
            source: source.to_owned(),
            config: Vec::new(),
            set: Vec::new(),
            seed: None,
        }
    }

    #[test]
    fn every_preset_builds_its_experiment_and_reads_back_from_its_own_text() {
        let folder = tempfile::tempdir().unwrap();
        for preset in PRESETS {
            let mut config = resolve(&settings(preset.name)).unwrap();
            assert_eq!(config.name, preset.name);
            let text = config.to_toml().unwrap();
            let file = folder.path().join("config.toml");
            std::fs::write(&file, &text).unwrap();
            assert_eq!(read(&file).unwrap(), config, "{}", preset.name);
            assert_eq!(resolve(&settings(file.to_str().unwrap())).unwrap(), config);
            // The shipped replay size is the user's memory's business, not this test's.
            config.replay.capacity = 4000;
            config.eval.cache = folder.path().join("cache");
            let built = pushforward_sdrl::SdrlExperiment::new(config.setup(None), tch::Device::Cpu);
            assert!(built.is_ok(), "{}: {:?}", preset.name, built.err());
        }
    }

    #[test]
    fn unknown_sources_get_the_nearest_preset() {
        let error = resolve(&settings("chain-exclusiv")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`chain-exclusiv` is neither a preset nor a file; did you mean `chain-exclusive`?"
        );
    }

    #[test]
    fn assignments_beat_presets_and_names_are_checked() {
        let mut layered = settings("chain-exclusive");
        layered.set = vec!["agent.divergence.lift.directions=7".into()];
        layered.seed = Some(5);
        let config = resolve(&layered).unwrap();
        assert_eq!(config.seed, 5);
        let text = config.to_toml().unwrap();
        assert!(text.contains("directions = 7"), "{text}");
        layered.set.push("agent.target.rate=0.25".into());
        let text = resolve(&layered).unwrap().to_toml().unwrap();
        assert!(text.contains("rate = 0.25"), "{text}");
        layered.set.push("name=a/b".into());
        assert!(
            resolve(&layered)
                .unwrap_err()
                .to_string()
                .starts_with("name: ")
        );
    }
}
