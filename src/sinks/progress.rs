//! Progress in the terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use pushforward_core::CoreError;
use pushforward_core::metrics::{Sink, StepCount, Value, tag};

/// A progress bar with the time left and the live figure that matters.
///
/// Where standard error is not a terminal, indicatif draws nothing.
pub struct Progress {
    bar: ProgressBar,
    figure: String,
}

/// The figures worth a place in the progress bar, the most telling last, with their short names.
const FIGURES: [(&str, &str); 5] = [
    (tag::TRAIN_LOSS, "loss"),
    (tag::COLLECT_CONSTRAINTS_MET, "constraints met"),
    (tag::EVALUATE_UTILITY, "utility"),
    (
        tag::EVALUATE_CONSTRAINTS_MET,
        "constraints met (evaluation)",
    ),
    (tag::EVALUATE_RATIO_TO_FLOOR, "ratio to floor"),
];

impl Progress {
    /// A bar over `total` updates that starts at `done`.
    pub fn new(total: u64, done: u64) -> Self {
        let bar = ProgressBar::new(total).with_position(done);
        let style = ProgressStyle::with_template(
            "{bar:32.cyan/blue} {pos}/{len} updates  {per_sec}  {eta} left  {msg}",
        );
        // The template is a constant: the tests build it.
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        bar.reset_eta();
        Self {
            bar,
            figure: String::new(),
        }
    }
}

impl Sink for Progress {
    fn record(&mut self, step: StepCount, tag: &str, value: &Value) -> Result<(), CoreError> {
        self.bar.set_position(step.updates);
        let rank = |tag: &str| FIGURES.iter().position(|(name, _)| *name == tag);
        if let (Value::Scalar(number), Some(new)) = (value, rank(tag))
            && rank(&self.figure).is_none_or(|old| new >= old)
        {
            self.figure = tag.to_owned();
            self.bar
                .set_message(format!("{} {number:.3}", FIGURES[new].1));
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.abandon();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_telling_figure_stays() {
        let mut progress = Progress::new(100, 40);
        let step = StepCount {
            env_steps: 80,
            updates: 50,
        };
        for (tag, number) in [
            (tag::TRAIN_LOSS, 0.5),
            (tag::EVALUATE_RATIO_TO_FLOOR, 1.25),
            (tag::TRAIN_LOSS, 0.25),
        ] {
            progress.record(step, tag, &Value::Scalar(number)).unwrap();
        }
        assert_eq!(progress.bar.position(), 50);
        assert_eq!(progress.bar.message(), "ratio to floor 1.250");
    }
}
