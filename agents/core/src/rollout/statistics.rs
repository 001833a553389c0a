//! Episodes that ended, one by one and in sums.

use pushforward_envs::Outcome;
use serde::{Deserialize, Serialize};

use crate::metrics::tag;

/// One episode that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Index of the environment in the vector.
    pub environment: usize,
    /// Number of steps.
    pub length: u64,
    /// How it ended; `Continue` where it was cut because it grew too long.
    pub outcome: Outcome,
    /// Σ_t R_t, `[d]`.
    pub undiscounted_return: Vec<f64>,
    /// Σ_t Γ^t R_t with the evaluation discount, `[d]`.
    pub discounted_return: Vec<f64>,
    /// Whether the discounted return meets all of the environment's constraints; true where there are none.
    pub constraints_met: bool,
}

/// Sums over the episodes that ended since the last report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeStatistics {
    /// Episodes that ended.
    pub episodes: u64,
    /// Of these, terminated.
    pub terminated: u64,
    /// Of these, truncated by a time limit.
    pub truncated: u64,
    /// Of these, with all constraints met.
    pub constraints_met: u64,
    /// Sum of their lengths, in steps.
    pub steps: u64,
    /// Sum of their undiscounted returns, `[d]`.
    pub undiscounted_return: Vec<f64>,
    /// Sum of their discounted returns, `[d]`.
    pub discounted_return: Vec<f64>,
}

impl EpisodeStatistics {
    pub(super) fn new(dim: usize) -> Self {
        Self {
            undiscounted_return: vec![0.0; dim],
            discounted_return: vec![0.0; dim],
            ..Self::default()
        }
    }

    pub(super) fn add(
        &mut self,
        outcome: Outcome,
        length: u64,
        undiscounted: &[f64],
        discounted: &[f64],
        met: bool,
    ) {
        self.episodes += 1;
        self.terminated += u64::from(outcome == Outcome::Terminated);
        self.truncated += u64::from(outcome == Outcome::Truncated);
        self.constraints_met += u64::from(met);
        self.steps += length;
        for (sum, value) in self.undiscounted_return.iter_mut().zip(undiscounted) {
            *sum += value;
        }
        for (sum, value) in self.discounted_return.iter_mut().zip(discounted) {
            *sum += value;
        }
    }

    /// Counts and means under their metric tags; only the count if no episode ended.
    pub fn scalars(&self, constrained: bool) -> Vec<(String, f64)> {
        let count = self.episodes as f64;
        let mut scalars = vec![(tag::COLLECT_EPISODES.to_owned(), count)];
        if self.episodes == 0 {
            return scalars;
        }
        let mut put = |name: &str, sum: f64| scalars.push((name.to_owned(), sum / count));
        put(tag::COLLECT_EPISODE_LENGTH, self.steps as f64);
        put(tag::COLLECT_TERMINATED, self.terminated as f64);
        if constrained {
            put(tag::COLLECT_CONSTRAINTS_MET, self.constraints_met as f64);
        }
        for (name, sums) in [
            (tag::COLLECT_RETURN, &self.undiscounted_return),
            (tag::COLLECT_DISCOUNTED_RETURN, &self.discounted_return),
        ] {
            for (index, &sum) in sums.iter().enumerate() {
                put(&tag::coordinate(name, index), sum);
            }
        }
        scalars
    }
}
