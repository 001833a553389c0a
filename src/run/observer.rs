//! What happens beside training: metrics, evaluation files, pictures, checkpoints.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pushforward_core::CoreError;
use pushforward_core::checkpoint::CheckpointStore;
use pushforward_core::metrics::{Sink, StepCount, Value, tag};
use pushforward_core::trainer::{Evaluation, Experiment, Headline, LawPair, Observer};
use serde_json::json;

use super::folder::RunFolder;
use super::pictures;
use crate::failure::Failure;
use crate::sinks::Fanout;

/// Writes everything about a run into its folder.
pub struct Recorder {
    folder: RunFolder,
    title: String,
    sinks: Fanout,
    store: CheckpointStore,
    stop: Arc<AtomicBool>,
    /// Say how far it is in plain lines: where no progress bar shows.
    lines: bool,
    started: Instant,
    last: (Instant, StepCount),
}

impl Recorder {
    /// A recorder for a run that starts or goes on at `steps`; `title` heads its pictures.
    pub fn new(
        folder: RunFolder,
        title: String,
        sinks: Fanout,
        store: CheckpointStore,
        stop: Arc<AtomicBool>,
        steps: StepCount,
        quiet: bool,
    ) -> Self {
        let now = Instant::now();
        Self {
            folder,
            title,
            sinks,
            store,
            stop,
            lines: !quiet && !std::io::stderr().is_terminal(),
            started: now,
            last: (now, steps),
        }
    }

    fn scalars(&mut self, step: StepCount, scalars: &[(String, f64)]) -> Result<(), CoreError> {
        scalars
            .iter()
            .try_for_each(|(tag, number)| self.sinks.record(step, tag, &Value::Scalar(*number)))
    }

    /// Throughput since the last report.
    fn timing(&mut self, step: StepCount) -> Result<(), CoreError> {
        let (then, before) = self.last;
        let now = Instant::now();
        let seconds = (now - then).as_secs_f64().max(1e-9);
        self.last = (now, step);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let figures = [
            (
                tag::TIME_ENV_STEPS_PER_SECOND,
                rate(step.env_steps, before.env_steps),
            ),
            (
                tag::TIME_UPDATES_PER_SECOND,
                rate(step.updates, before.updates),
            ),
            (tag::TIME_ELAPSED, (now - self.started).as_secs_f64()),
        ];
        figures
            .iter()
            .try_for_each(|(tag, number)| self.sinks.record(step, tag, &Value::Scalar(*number)))
    }

    fn law_pictures(&mut self, step: StepCount, laws: &[LawPair]) -> Result<(), CoreError> {
        for (index, picture) in pictures::of_laws(&self.title, laws)
            .map_err(not_drawn)?
            .into_iter()
            .enumerate()
        {
            let tag = match index {
                0 => tag::EVALUATE_JOINT_LAW.to_owned(),
                more => format!("{}_{more}", tag::EVALUATE_JOINT_LAW),
            };
            self.sinks.record(step, &tag, &Value::Picture(picture))?;
        }
        Ok(())
    }
}

fn not_drawn(failure: Failure) -> CoreError {
    CoreError::Setting(failure.to_string())
}

impl<E: Experiment + ?Sized> Observer<E> for Recorder {
    fn reported(&mut self, experiment: &E, scalars: &[(String, f64)]) -> Result<(), CoreError> {
        let step = experiment.steps();
        self.scalars(step, scalars)?;
        self.timing(step)
    }

    fn evaluated(
        &mut self,
        experiment: &E,
        evaluation: &Evaluation,
        last: bool,
    ) -> Result<(), CoreError> {
        let step = experiment.steps();
        self.scalars(step, &evaluation.scalars)?;
        for (tag, samples) in &evaluation.histograms {
            self.sinks
                .record(step, tag, &Value::Histogram(samples.clone()))?;
        }
        self.law_pictures(step, &evaluation.laws)?;
        write_evaluation(&self.folder, step, evaluation)?;
        if self.lines
            && let Some(headline) = &evaluation.headline
        {
            eprintln!(
                "{} updates: {} {:.4}",
                step.updates, headline.name, headline.value
            );
        }
        if last {
            self.sinks.flush()?;
            pictures::write(&self.folder, &self.title, evaluation).map_err(not_drawn)?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, experiment: &E, headline: Option<&Headline>) -> Result<(), CoreError> {
        // Rows first: a checkpoint whose rows were lost could not be resumed to the same file.
        self.sinks.flush()?;
        experiment.save(&self.store, headline)
    }

    fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Writes `eval/step-*.json`.
///
/// # Errors
/// [`CoreError::Io`] if it cannot be written.
pub fn write_evaluation(
    folder: &RunFolder,
    step: StepCount,
    evaluation: &Evaluation,
) -> Result<(), CoreError> {
    let path = folder.evaluation(step.updates);
    let scalars: serde_json::Map<String, serde_json::Value> = evaluation
        .scalars
        .iter()
        .map(|(tag, number)| (tag.clone(), json!(number)))
        .collect();
    let headline = evaluation.headline.as_ref().map(|headline| {
        json!({
            "name": headline.name,
            "value": headline.value,
            "lower_is_better": headline.lower_is_better,
        })
    });
    let document = json!({
        "env_steps": step.env_steps,
        "updates": step.updates,
        "headline": headline,
        "scalars": scalars,
        "report": evaluation.report,
    });
    std::fs::write(&path, format!("{document:#}\n")).map_err(|e| CoreError::io(&path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_file_holds_headline_scalars_and_report() {
        let parent = tempfile::tempdir().unwrap();
        let folder = RunFolder::create(&parent.path().join("run"), "", false).unwrap();
        let evaluation = Evaluation {
            headline: Some(Headline {
                name: tag::EVALUATE_RATIO_TO_FLOOR.into(),
                value: 0.5,
                lower_is_better: true,
            }),
            scalars: vec![("evaluate/a".into(), 0.1)],
            report: json!({"probe": [1, 2]}),
            ..Evaluation::default()
        };
        let step = StepCount {
            env_steps: 40,
            updates: 10,
        };
        write_evaluation(&folder, step, &evaluation).unwrap();
        let text = std::fs::read_to_string(folder.evaluation(10)).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read["headline"]["value"], 0.5);
        assert_eq!(read["scalars"]["evaluate/a"], 0.1);
        assert_eq!(read["report"]["probe"][1], 2);
    }
}
