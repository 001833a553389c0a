//! One run from its configuration to its last picture, or from a checkpoint on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pushforward_core::CoreError;
use pushforward_core::checkpoint::{Checkpoint, CheckpointStore};
use pushforward_core::metrics::{Sink, StepCount, Value, tag};
use pushforward_core::trainer::{self, Evaluation, Experiment};
use tch::Device;

use super::folder::RunFolder;
use super::observer::{Recorder, write_evaluation};
use super::pictures;
use crate::agents::RunConfig;
use crate::cli::Which;
use crate::config::read;
use crate::failure::Failure;
use crate::sinks::{Fanout, JsonLines, Progress, TensorBoard};

/// How a session runs; nothing here changes a result.
#[derive(Clone, Debug)]
pub struct Session {
    /// Device of the networks.
    pub device: Device,
    /// Threads in use.
    pub threads: usize,
    /// Print errors only.
    pub quiet: bool,
    /// Raised by the user to stop: the run then saves a checkpoint and ends.
    pub stop: Arc<AtomicBool>,
}

/// How a session ended.
#[derive(Debug)]
pub enum Ending {
    /// The run is complete.
    Complete(Box<Evaluation>),
    /// It was stopped after a checkpoint at this update.
    Stopped(u64),
}

impl Session {
    /// Checks the whole configuration by building the experiment; nothing is written. Where the configuration names a saved agent, the one that
    /// comes back says which of its checkpoints it was.
    ///
    /// # Errors
    /// [`Failure::Input`] naming what does not fit.
    pub fn build(
        &self,
        mut config: RunConfig,
    ) -> Result<(RunConfig, Box<dyn Experiment>), Failure> {
        let mut warn = |warning| eprintln!("warning: {warning}");
        let experiment = config.build(self.device, &mut warn)?;
        Ok((config, experiment))
    }

    /// Trains a fresh experiment in the folder at `path`.
    ///
    /// # Errors
    /// [`Failure::Input`] if the folder cannot be used, [`Failure::Run`] if the run fails.
    pub fn train(
        &self,
        config: &RunConfig,
        mut experiment: Box<dyn Experiment>,
        path: &Path,
        force: bool,
    ) -> Result<(RunFolder, Ending), Failure> {
        let text = config.to_toml()?;
        let folder = RunFolder::create(path, &text, force)?;
        self.announce(config, experiment.as_ref(), &folder);
        let ending = self.go_on(config, experiment.as_mut(), &folder)?;
        Ok((folder, ending))
    }

    /// Goes on with a run from its newest checkpoint.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no usable checkpoint, [`Failure::Run`] if the run fails.
    pub fn resume(&self, folder: &RunFolder) -> Result<Ending, Failure> {
        let (config, mut experiment) = self.load(folder, Which::Latest)?;
        self.announce(&config, experiment.as_ref(), folder);
        self.go_on(&config, experiment.as_mut(), folder)
    }

    /// Judges a checkpoint again and writes its evaluation file and pictures.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no usable checkpoint or a reward is not finite, [`Failure::Run`] if it cannot be judged.
    pub fn evaluate(&self, folder: &RunFolder, which: Which) -> Result<Evaluation, Failure> {
        let (config, mut experiment) = self.load(folder, which)?;
        let evaluation = experiment
            .evaluate(true)
            .map_err(|error| Failure::on_the_way(&error))?;
        write_evaluation(folder, experiment.steps(), &evaluation).map_err(Failure::run)?;
        pictures::write(folder, &title(&config), &evaluation)?;
        Ok(evaluation)
    }

    /// The experiment of a run as it was at a checkpoint.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no usable checkpoint.
    pub fn load(
        &self,
        folder: &RunFolder,
        which: Which,
    ) -> Result<(RunConfig, Box<dyn Experiment>), Failure> {
        let (config, mut experiment) = self.build(read(&folder.config())?)?;
        let store = CheckpointStore::open(&folder.checkpoints(), &config.hash()?);
        let (checkpoint, warnings): (Checkpoint, Vec<String>) = match which {
            Which::Latest => store.load_latest(),
            Which::Best => store.load_best(),
        }
        .map_err(Failure::input)?;
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
        experiment.load(&checkpoint).map_err(Failure::input)?;
        Ok((config, experiment))
    }

    fn go_on(
        &self,
        config: &RunConfig,
        experiment: &mut dyn Experiment,
        folder: &RunFolder,
    ) -> Result<Ending, Failure> {
        let start = experiment.steps();
        let header = config.header();
        let keep = header.checkpoint.keep;
        let store = CheckpointStore::create(&folder.checkpoints(), &config.hash()?, keep)
            .map_err(Failure::run)?;
        let sinks = self.sinks(config, folder, start).map_err(Failure::run)?;
        let mut recorder = Recorder::new(
            folder.clone(),
            title(config),
            sinks,
            store,
            Arc::clone(&self.stop),
            start,
            self.quiet,
        );
        let evaluation = trainer::train(experiment, header.intervals(), &mut recorder)
            .map_err(|error| Failure::on_the_way(&error))?;
        Ok(match evaluation {
            Some(evaluation) => Ending::Complete(Box::new(evaluation)),
            None => Ending::Stopped(experiment.steps().updates),
        })
    }

    fn sinks(
        &self,
        config: &RunConfig,
        folder: &RunFolder,
        start: StepCount,
    ) -> Result<Fanout, CoreError> {
        let mut sinks = Fanout::default();
        sinks.push(JsonLines::open(folder.path(), start)?);
        if config.header().log.tensorboard {
            let mut events = TensorBoard::open(folder.path(), start)?;
            if start == StepCount::default() {
                let text = std::fs::read_to_string(folder.config())
                    .map_err(|e| CoreError::io(&folder.config(), e))?;
                // TensorBoard renders texts as Markdown.
                let text = Value::Text(format!("```toml\n{text}```\n"));
                events.record(start, tag::RUN_CONFIG, &text)?;
            }
            sinks.push(events);
        }
        if !self.quiet {
            sinks.push(Progress::new(config.header().train.updates, start.updates));
        }
        Ok(sinks)
    }

    fn announce(&self, config: &RunConfig, experiment: &dyn Experiment, folder: &RunFolder) {
        if self.quiet {
            return;
        }
        let header = config.header();
        let steps = experiment.steps();
        let from = match steps.updates {
            0 => String::new(),
            updates => format!(" from update {updates}"),
        };
        eprintln!(
            "{} on {}, seed {}{from}: {} updates, {}, {} threads, {:?}; {}",
            header.name,
            header.subject,
            header.seed,
            header.train.updates,
            experiment.sizes(),
            self.threads,
            self.device,
            folder.path().display(),
        );
    }
}

/// What heads the pictures of a run.
fn title(config: &RunConfig) -> String {
    format!("{}: joint law of the return", config.header().name)
}
