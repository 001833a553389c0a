//! What a run reports: values under `area/name` tags, stamped with the step counts.

use pushforward_envs::Picture;
use serde::{Deserialize, Serialize};

use crate::CoreError;

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepCount {
    /// Environment steps taken, over all environments together.
    pub env_steps: u64,
    /// Learner updates done.
    pub updates: u64,
}

/// One reported value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A number.
    Scalar(f64),
    /// Samples, to be shown as a distribution.
    Histogram(Vec<f32>),
    /// A picture.
    Picture(Picture),
    /// Words.
    Text(String),
}

/// Where reported values go.
pub trait Sink {
    /// Takes one value under a tag.
    ///
    /// # Errors
    /// If it cannot be written.
    fn record(&mut self, step: StepCount, tag: &str, value: &Value) -> Result<(), CoreError>;

    /// Makes everything recorded so far visible to readers.
    ///
    /// # Errors
    /// If it cannot be written.
    fn flush(&mut self) -> Result<(), CoreError>;
}

/// A sink that drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Null;

impl Sink for Null {
    fn record(&mut self, _step: StepCount, _tag: &str, _value: &Value) -> Result<(), CoreError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        Ok(())
    }
}

/// A sink that keeps everything in order, for tests.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// What was recorded.
    pub records: Vec<(StepCount, String, Value)>,
}

impl Memory {
    /// The scalars recorded under `tag`, in order.
    pub fn scalars(&self, tag: &str) -> Vec<f64> {
        self.records
            .iter()
            .filter(|(_, name, _)| name == tag)
            .filter_map(|(_, _, value)| match value {
                Value::Scalar(number) => Some(*number),
                _ => None,
            })
            .collect()
    }
}

impl Sink for Memory {
    fn record(&mut self, step: StepCount, tag: &str, value: &Value) -> Result<(), CoreError> {
        self.records.push((step, tag.to_owned(), value.clone()));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        Ok(())
    }
}

/// The tags, one constant each, so that a name is written in one place.
///
/// `collect/*` describes episodes seen while collecting, `train/*` the updates, `evaluate/*` evaluation episodes and learned laws,
/// `time/*` wall-clock figures (which differ between two runs of the same seed).
pub mod tag {
    /// Mean length of the episodes ended since the last report, in steps.
    pub const COLLECT_EPISODE_LENGTH: &str = "collect/episode_length";
    /// Mean undiscounted return of the episodes ended since the last report, one tag per coordinate (see [`coordinate`]).
    pub const COLLECT_RETURN: &str = "collect/return";
    /// Mean return discounted by the evaluation discount, one tag per coordinate.
    pub const COLLECT_DISCOUNTED_RETURN: &str = "collect/discounted_return";
    /// Share of those episodes whose discounted return met all constraints.
    pub const COLLECT_CONSTRAINTS_MET: &str = "collect/constraints_met";
    /// Episodes ended since the last report.
    pub const COLLECT_EPISODES: &str = "collect/episodes";
    /// Share of those episodes that were terminated (the rest were truncated).
    pub const COLLECT_TERMINATED: &str = "collect/terminated";
    /// Exploration rate ε.
    pub const COLLECT_EPSILON: &str = "collect/epsilon";
    /// Transitions in replay that can be sampled.
    pub const COLLECT_REPLAY_LENGTH: &str = "collect/replay_length";
    /// Value of a mean-field policy on the paths of an update, Σ_s μ_0(s) V_0(s), mean over paths.
    pub const TRAIN_POLICY_VALUE: &str = "train/policy_value";
    /// What one individual could gain by leaving a mean-field policy, knowing each path (lower is better, never below 0).
    pub const EVALUATE_EXPLOITABILITY: &str = "evaluate/exploitability";
    /// Mean loss per update.
    pub const TRAIN_LOSS: &str = "train/loss";
    /// Global norm of the gradient before clipping.
    pub const TRAIN_GRADIENT_NORM: &str = "train/gradient_norm";
    /// Learning rate.
    pub const TRAIN_LEARNING_RATE: &str = "train/learning_rate";
    /// Importance exponent β of prioritised replay.
    pub const TRAIN_IMPORTANCE_EXPONENT: &str = "train/importance_exponent";
    /// Figure of the learned law over the sampling floor, sliced Cramér at the start state (lower is better, 1 = as good as N true samples).
    pub const EVALUATE_RATIO_TO_FLOOR: &str = "evaluate/ratio_to_floor";
    /// Mean undiscounted return of the evaluation episodes, one tag per coordinate.
    pub const EVALUATE_RETURN: &str = "evaluate/return";
    /// Mean discounted return of the evaluation episodes, one tag per coordinate.
    pub const EVALUATE_DISCOUNTED_RETURN: &str = "evaluate/discounted_return";
    /// Mean length of the evaluation episodes, in steps.
    pub const EVALUATE_EPISODE_LENGTH: &str = "evaluate/episode_length";
    /// Share of the evaluation episodes whose discounted return met all constraints.
    pub const EVALUATE_CONSTRAINTS_MET: &str = "evaluate/constraints_met";
    /// Mean utility of the evaluation episodes' discounted returns.
    pub const EVALUATE_UTILITY: &str = "evaluate/utility";
    /// Samples of learned returns at the start state, one histogram per coordinate.
    pub const EVALUATE_LEARNED_RETURNS: &str = "evaluate/learned_returns";
    /// Samples of true returns at the start state, one histogram per coordinate.
    pub const EVALUATE_TRUE_RETURNS: &str = "evaluate/true_returns";
    /// Picture of the learned joint law beside the true one.
    pub const EVALUATE_JOINT_LAW: &str = "evaluate/joint_law";
    /// The resolved configuration, as text.
    pub const RUN_CONFIG: &str = "run/config";
    /// Environment steps per second.
    pub const TIME_ENV_STEPS_PER_SECOND: &str = "time/env_steps_per_second";
    /// Learner updates per second.
    pub const TIME_UPDATES_PER_SECOND: &str = "time/updates_per_second";
    /// Seconds since the run (or its resumption) started.
    pub const TIME_ELAPSED: &str = "time/elapsed_seconds";

    /// The tag of one coordinate of a vector figure: `collect/return` becomes `collect/return_1`.
    pub fn coordinate(tag: &str, index: usize) -> String {
        format!("{tag}_{index}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_sink_keeps_scalars_in_order() {
        let mut sink = Memory::default();
        for (updates, number) in [(1, 0.5), (2, 0.25)] {
            let step = StepCount {
                env_steps: 10 * updates,
                updates,
            };
            sink.record(step, tag::TRAIN_LOSS, &Value::Scalar(number))
                .unwrap();
            sink.record(step, tag::RUN_CONFIG, &Value::Text("x".into()))
                .unwrap();
        }
        sink.flush().unwrap();
        assert_eq!(sink.scalars(tag::TRAIN_LOSS), [0.5, 0.25]);
        assert_eq!(tag::coordinate(tag::COLLECT_RETURN, 1), "collect/return_1");
    }
}
