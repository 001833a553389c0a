//! The one training loop: collect, update, report, evaluate, checkpoint.

use pushforward_envs::Picture;

use crate::{
    CoreError,
    checkpoint::{Checkpoint, CheckpointStore},
    metrics::StepCount,
};

/// What one update found.
#[derive(Clone, Debug, PartialEq)]
pub struct UpdateReport {
    /// Mean loss over the batch, importance weights included.
    pub loss: f64,
    /// Euclidean norm of the gradient before clipping.
    pub gradient_norm: f64,
    /// A new priority for each transition of the batch.
    pub priorities: Vec<f32>,
}

/// How long a run is and how often it reports, in updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    /// Updates in the whole run.
    pub updates: u64,
    /// Updates between two reports.
    pub log: u64,
    /// Updates between two evaluations; 0: at the end only.
    pub evaluate: u64,
    /// Updates between two checkpoints; 0: at the end only.
    pub checkpoint: u64,
}

impl Intervals {
    /// Checks that a resumed run can go on exactly: reports are means since the last one, so checkpoints must fall on reports.
    ///
    /// # Errors
    /// [`CoreError::Setting`] naming the interval.
    pub fn validate(&self) -> Result<(), CoreError> {
        let refuse = |message: String| Err(CoreError::Setting(message));
        if self.updates == 0 {
            return refuse("train.updates: got 0, expected at least 1".into());
        }
        if self.log == 0 {
            return refuse("log.interval: got 0, expected at least 1".into());
        }
        for (name, interval) in [("eval", self.evaluate), ("checkpoint", self.checkpoint)] {
            if !interval.is_multiple_of(self.log) {
                return refuse(format!(
                    "{name}.interval: got {interval}, expected a multiple of log.interval = {}",
                    self.log
                ));
            }
        }
        Ok(())
    }
}

/// The figure that a run is judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Headline {
    /// Its metric tag.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// Whether a smaller value is better.
    pub lower_is_better: bool,
}

/// A learned law beside the true one, for a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct LawPair {
    /// What it is the law of, such as `start, down`.
    pub name: String,
    /// Length d of a return.
    pub dim: usize,
    /// Learned points, [N, d].
    pub learned: Vec<f32>,
    /// Samples of the truth, [M, d].
    pub truth: Vec<f32>,
}

/// A picture of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Name of its file, without an extension.
    pub file: String,
    /// What it shows.
    pub title: String,
    /// What runs along the horizontal axis.
    pub x_label: String,
    /// What runs along the vertical axis.
    pub y_label: String,
    /// The numbers.
    pub content: ChartContent,
}

/// The numbers of a [`Chart`].
#[derive(Clone, Debug, PartialEq)]
pub enum ChartContent {
    /// Colours of a grid of values >= 0.
    HeatMap {
        /// Number of columns, at x = 0, 1, ...
        columns: usize,
        /// Values `[rows, columns]`, the first row at the bottom.
        values: Vec<f32>,
        /// Value at the bottom edge of the first row, and at the top edge of the last.
        range: (f64, f64),
    },
    /// Named curves.
    Curves(Vec<Curve>),
}

/// A name and points (x, y) with x ascending.
pub type Curve = (String, Vec<(f64, f64)>);

/// What an evaluation found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// The figure that the run is judged by.
    pub headline: Option<Headline>,
    /// All scalars under their metric tags.
    pub scalars: Vec<(String, f64)>,
    /// Samples under their metric tags.
    pub histograms: Vec<(String, Vec<f32>)>,
    /// Laws for pictures.
    pub laws: Vec<LawPair>,
    /// Further pictures.
    pub charts: Vec<Chart>,
    /// Frames of one episode, where the environment has pictures and the agent acts.
    pub episode: Vec<Picture>,
    /// Everything found, for the evaluation file.
    pub report: serde_json::Value,
}

/// One learning problem: an agent, its environments and its data.
pub trait Experiment {
    /// How far it has come.
    fn steps(&self) -> StepCount;

    /// Collects and makes one update; `progress` (0 to 1) is the fraction of the run that is done.
    ///
    /// # Errors
    /// If anything is not finite or does not fit; the run stops.
    fn advance(&mut self, progress: f64) -> Result<(), CoreError>;

    /// Means and counts since the last report, under their metric tags.
    fn report(&mut self, progress: f64) -> Vec<(String, f64)>;

    /// Judges the agent; `last` asks for everything, however long it takes. Must not change what training does next.
    ///
    /// # Errors
    /// If it cannot be judged.
    fn evaluate(&mut self, last: bool) -> Result<Evaluation, CoreError>;

    /// Saves everything that training goes on from; `headline` is that of the latest evaluation.
    ///
    /// # Errors
    /// If it cannot be written.
    fn save(&self, store: &CheckpointStore, headline: Option<&Headline>) -> Result<(), CoreError>;

    /// Goes back to a checkpoint of a run with the same settings.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] naming what does not fit.
    fn load(&mut self, checkpoint: &Checkpoint) -> Result<(), CoreError>;

    /// Sizes worth a line before a run, such as `236000 parameters, replay 0.12 GiB`.
    fn sizes(&self) -> String;
}

/// What happens beside training: logs, pictures, checkpoints.
pub trait Observer<E: Experiment + ?Sized> {
    /// Takes a report.
    ///
    /// # Errors
    /// If it cannot be written.
    fn reported(&mut self, experiment: &E, scalars: &[(String, f64)]) -> Result<(), CoreError>;

    /// Takes an evaluation.
    ///
    /// # Errors
    /// If it cannot be written.
    fn evaluated(
        &mut self,
        experiment: &E,
        evaluation: &Evaluation,
        last: bool,
    ) -> Result<(), CoreError>;

    /// Saves a checkpoint; `headline` is that of the latest evaluation since the last checkpoint.
    ///
    /// # Errors
    /// If it cannot be written.
    fn checkpoint(&mut self, experiment: &E, headline: Option<&Headline>) -> Result<(), CoreError>;

    /// Whether the run is asked to stop; it then saves a checkpoint first.
    fn stop_requested(&self) -> bool {
        false
    }
}

/// Runs an experiment from where it is to the end; gives the last evaluation, or `None` if it was asked to stop.
///
/// # Errors
/// The first error of the experiment or the observer.
pub fn train<E: Experiment + ?Sized>(
    experiment: &mut E,
    intervals: Intervals,
    observer: &mut dyn Observer<E>,
) -> Result<Option<Evaluation>, CoreError> {
    intervals.validate()?;
    let total = intervals.updates;
    let due = |interval: u64, updates: u64| interval > 0 && updates.is_multiple_of(interval);
    loop {
        let updates = experiment.steps().updates;
        if updates >= total {
            break;
        }
        experiment.advance(updates as f64 / total as f64)?;
        let updates = updates + 1;
        let last = updates == total;
        let mut headline = None;
        if due(intervals.log, updates) || last {
            let scalars = experiment.report(updates as f64 / total as f64);
            observer.reported(experiment, &scalars)?;
        }
        if due(intervals.evaluate, updates) && !last {
            let evaluation = experiment.evaluate(false)?;
            observer.evaluated(experiment, &evaluation, false)?;
            headline = evaluation.headline;
        }
        let stop = due(intervals.log, updates) && observer.stop_requested();
        if (due(intervals.checkpoint, updates) || stop) && !last {
            observer.checkpoint(experiment, headline.as_ref())?;
        }
        if stop && !last {
            return Ok(None);
        }
    }
    let evaluation = experiment.evaluate(true)?;
    observer.evaluated(experiment, &evaluation, true)?;
    observer.checkpoint(experiment, evaluation.headline.as_ref())?;
    Ok(Some(evaluation))
}
