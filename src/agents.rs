//! The table of agents: every kind with the settings that its runs have.

use pushforward_core::CoreError;
use pushforward_core::run::{RunHeader, RunSettings};
use pushforward_core::trainer::Experiment;
use pushforward_mean_field::StructuralRun;
use pushforward_sdrl::SdrlRun;
use tch::Device;

use crate::config::Layers;
use crate::failure::{Failure, nearest};

/// One line of the table.
struct Agent {
    kind: &'static str,
    summary: &'static str,
    resolve: fn(&mut Layers) -> Result<RunConfig, Failure>,
}

const fn agent<T: RunSettings>(kind: &'static str, summary: &'static str) -> Agent {
    Agent {
        kind,
        summary,
        resolve: |layers| {
            layers.fill_kinds(&T::default())?;
            Ok(RunConfig(Box::new(layers.resolve::<T>()?)))
        },
    }
}

/// Every agent of the suite, one line each; the first is the one of settings that name none.
const AGENTS: &[Agent] = &[
    agent::<SdrlRun>(
        "sdrl",
        "sliced distributional agent: particles or implicit laws, evaluation or control",
    ),
    agent::<StructuralRun>(
        "spg",
        "structural policy gradient for mean-field games: a policy of state and public observation",
    ),
    agent::<StructuralRun>(
        "rspg",
        "the same with a recurrent policy, which remembers public observations",
    ),
];

/// Kind and one-line summary of every agent, in the table's order.
pub fn summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
    AGENTS.iter().map(|agent| (agent.kind, agent.summary))
}

/// The settings of one run, whatever its agent.
#[derive(Debug)]
pub struct RunConfig(Box<dyn AnySettings>);

/// [`RunSettings`] without its type.
trait AnySettings: std::fmt::Debug + Send {
    fn header(&self) -> RunHeader<'_>;
    fn with_seed(&self, seed: u64) -> Box<dyn AnySettings>;
    fn build(
        &mut self,
        device: Device,
        warn: &mut dyn FnMut(String),
    ) -> Result<Box<dyn Experiment>, CoreError>;
    fn to_toml(&self) -> Result<String, CoreError>;
    fn hash(&self) -> Result<String, CoreError>;
}

impl<T: RunSettings> AnySettings for T {
    fn header(&self) -> RunHeader<'_> {
        RunSettings::header(self)
    }

    fn with_seed(&self, seed: u64) -> Box<dyn AnySettings> {
        Box::new(RunSettings::with_seed(self.clone(), seed))
    }

    fn build(
        &mut self,
        device: Device,
        warn: &mut dyn FnMut(String),
    ) -> Result<Box<dyn Experiment>, CoreError> {
        RunSettings::build(self, device, warn)
    }

    fn to_toml(&self) -> Result<String, CoreError> {
        RunSettings::to_toml(self)
    }

    fn hash(&self) -> Result<String, CoreError> {
        RunSettings::hash(self)
    }
}

impl RunConfig {
    /// Reads merged settings as those of the agent that `agent.kind` names.
    ///
    /// # Errors
    /// [`Failure::Input`] for an unknown kind, or naming the setting that is wrong.
    pub fn from_layers(mut layers: Layers) -> Result<Self, Failure> {
        let kind = layers.text_at("agent.kind").unwrap_or(AGENTS[0].kind);
        let Some(agent) = AGENTS.iter().find(|agent| agent.kind == kind) else {
            let kinds = || AGENTS.iter().map(|agent| agent.kind);
            let advice = match nearest(kind, kinds()) {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("expected one of {}", kinds().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::input(format!(
                "[agent] kind: no agent `{kind}`; {advice}"
            )));
        };
        let config = (agent.resolve)(&mut layers)?;
        config.validate()?;
        Ok(config)
    }

    /// What every run has.
    pub fn header(&self) -> RunHeader<'_> {
        self.0.header()
    }

    /// The same run with another root seed.
    pub fn with_seed(&self, seed: u64) -> Self {
        Self(self.0.with_seed(seed))
    }

    /// Builds the experiment, see [`RunSettings::build`].
    ///
    /// # Errors
    /// [`Failure::Input`] naming what does not fit.
    pub fn build(
        &mut self,
        device: Device,
        warn: &mut dyn FnMut(String),
    ) -> Result<Box<dyn Experiment>, Failure> {
        self.0.build(device, warn).map_err(Failure::input)
    }

    /// The configuration as TOML; read as a file, it gives the same configuration.
    ///
    /// # Errors
    /// [`Failure::Input`] if a value has no TOML form.
    pub fn to_toml(&self) -> Result<String, Failure> {
        self.0.to_toml().map_err(Failure::input)
    }

    /// Which configuration a checkpoint belongs to.
    ///
    /// # Errors
    /// As [`RunConfig::to_toml`].
    pub fn hash(&self) -> Result<String, Failure> {
        self.0.hash().map_err(Failure::input)
    }

    /// Checks what concerns the run as a whole; agents and environments check their own settings when they are built.
    fn validate(&self) -> Result<(), Failure> {
        let header = self.header();
        let plain = |c: char| c.is_alphanumeric() || "-_.".contains(c);
        let name = header.name;
        if name.is_empty() || !name.chars().all(plain) || name.starts_with('.') {
            return Err(Failure::input(format!(
                "name: got `{name}`, expected letters, digits, `-`, `_` and `.`"
            )));
        }
        if header.checkpoint.keep == 0 {
            return Err(Failure::input(
                "checkpoint.keep: got 0, expected at least 1",
            ));
        }
        header.intervals().validate().map_err(Failure::input)
    }
}
