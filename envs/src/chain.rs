//! A line of states with a choice of vector reward laws: small enough for every return law to be known exactly.

use rand::{Rng, RngCore};
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use crate::registry::EnvSettings;
use crate::{
    Env, EnvError, EnvSpec, MAX_REWARD_DIM, ObservationKind, ObservationMut, ObservationSpec,
    Outcome, StreamRng,
};

/// Largest number of states: the one-hot observation has one float for each.
const MAX_LENGTH: usize = 1 << 20;

/// Settings of the environment `chain`.
///
/// States 0..n-1 lie on a line and an episode starts in 0. `forward` moves right with probability 1 - slip and else stays; leaving
/// the last state terminates. A reward is drawn at every step, also on a slip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChainConfig {
    /// Number of states n, at least 1.
    pub length: usize,
    /// Probability in [0, 1) that a move stays where it is.
    pub slip: f64,
    /// Whether there is a second action `back`, which moves left (slipping likewise; at state 0 it stays).
    pub back: bool,
    /// Length d of the reward vector, 1 to 32.
    pub dim: usize,
    /// Law of the reward of one step.
    pub reward: ChainReward,
    /// Vector of length d that is added to the reward of the leaving step; none by default.
    pub terminal_bonus: Option<Vec<f64>>,
    /// Steps after which an episode is truncated; no limit by default.
    pub max_steps: Option<usize>,
}

impl Default for ChainConfig {
    fn default() -> Self {
        Self {
            length: 5,
            slip: 0.1,
            back: false,
            dim: 2,
            reward: ChainReward::Exclusive {},
            terminal_bonus: None,
            max_steps: None,
        }
    }
}

/// Law of the reward vector of one step of [`Chain`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ChainReward {
    /// One unit vector e_i, i uniform over the coordinates.
    Exclusive {},
    /// Every coordinate is Bernoulli(1/d), independently: the marginals of `exclusive` with another joint law.
    Independent {},
    /// A normal law N(mean, covariance).
    Gaussian {
        /// Mean of length d; zeros if left out.
        #[serde(default)]
        mean: Vec<f64>,
        /// Covariance by rows, d x d, symmetric and positive semi-definite; the identity if left out.
        #[serde(default, alias = "cov")]
        covariance: Vec<Vec<f64>>,
    },
    /// The same vector at every step.
    Deterministic {
        /// The vector, of length d; ones if left out.
        #[serde(default)]
        value: Vec<f64>,
    },
}

/// The reward law in the form that a step draws from.
#[derive(Clone, Debug)]
enum RewardLaw {
    Exclusive,
    /// Success threshold against 32 random bits.
    Independent(u64),
    /// Mean and lower Cholesky factor by rows.
    Gaussian(Vec<f64>, Vec<f64>),
    Deterministic(Vec<f32>),
}

/// The environment `chain`.
#[derive(Clone, Debug)]
pub struct Chain {
    spec: EnvSpec,
    config: ChainConfig,
    law: RewardLaw,
    bonus: Vec<f32>,
    /// A step slips if 32 random bits are below this.
    slip_threshold: u64,
    /// Number of steps from which on an episode is truncated.
    limit: u32,
    /// State 0..n-1, or n after leaving.
    position: u32,
    time: u32,
}

/// The number of 32-bit words, of 2^32, that make an event of this probability.
fn threshold(probability: f64) -> u64 {
    (probability * 4_294_967_296.0).round() as u64
}

impl Chain {
    /// Builds a chain under a registry name.
    ///
    /// # Errors
    /// [`EnvError::Setting`] with the setting that is out of range.
    pub fn new(name: &str, config: &ChainConfig) -> Result<Self, EnvError> {
        let dim = config.dim;
        let wrong = |message: String| EnvError::Setting {
            name: name.to_owned(),
            message,
        };
        if !(1..=MAX_LENGTH).contains(&config.length) {
            return Err(wrong(format!(
                "length = {}, expected 1 to {MAX_LENGTH}",
                config.length
            )));
        }
        if !(0.0..1.0).contains(&config.slip) {
            return Err(wrong(format!(
                "slip = {}, expected 0 <= slip < 1",
                config.slip
            )));
        }
        if !(1..=MAX_REWARD_DIM).contains(&dim) {
            return Err(wrong(format!(
                "dim = {dim}, expected 1 to {MAX_REWARD_DIM}"
            )));
        }
        if config.max_steps == Some(0) {
            return Err(wrong("max_steps = 0, expected at least 1".to_owned()));
        }
        let vector = |key: &str, values: &[f64]| {
            if values.len() != dim {
                Err(wrong(format!(
                    "{key} has {} entries, expected dim = {dim}",
                    values.len()
                )))
            } else if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                Err(wrong(format!(
                    "{key} has the entry {value}, expected finite numbers"
                )))
            } else {
                Ok(())
            }
        };
        let bonus = match &config.terminal_bonus {
            None => vec![0.0; dim],
            Some(bonus) => {
                vector("terminal_bonus", bonus)?;
                bonus.iter().map(|value| *value as f32).collect()
            }
        };
        let law = match &config.reward {
            ChainReward::Exclusive {} => RewardLaw::Exclusive,
            ChainReward::Independent {} => RewardLaw::Independent(threshold(1.0 / dim as f64)),
            ChainReward::Gaussian { mean, covariance } => {
                let mean = if mean.is_empty() {
                    vec![0.0; dim]
                } else {
                    mean.clone()
                };
                vector("reward.mean", &mean)?;
                let mut factor = vec![0.0; dim * dim];
                if covariance.is_empty() {
                    (0..dim).for_each(|i| factor[i * dim + i] = 1.0);
                } else {
                    if covariance.len() != dim {
                        return Err(wrong(format!(
                            "reward.covariance has {} rows, expected dim = {dim}",
                            covariance.len()
                        )));
                    }
                    for (i, row) in covariance.iter().enumerate() {
                        vector(&format!("reward.covariance row {i}"), row)?;
                    }
                    factor = cholesky(covariance).map_err(wrong)?;
                }
                RewardLaw::Gaussian(mean, factor)
            }
            ChainReward::Deterministic { value } => {
                let value = if value.is_empty() {
                    vec![1.0; dim]
                } else {
                    value.clone()
                };
                vector("reward.value", &value)?;
                RewardLaw::Deterministic(value.iter().map(|value| *value as f32).collect())
            }
        };
        let mut action_names = vec!["forward".to_owned()];
        if config.back {
            action_names.push("back".to_owned());
        }
        Ok(Self {
            spec: EnvSpec {
                name: name.to_owned(),
                observation: ObservationSpec {
                    shape: vec![config.length],
                    kind: ObservationKind::F32,
                    low: 0.0,
                    high: 1.0,
                },
                action_names,
                reward_dim: dim,
                max_steps: config.max_steps,
                constraints: Vec::new(),
            },
            law,
            bonus,
            slip_threshold: threshold(config.slip),
            limit: config
                .max_steps
                .map_or(u32::MAX, |steps| u32::try_from(steps).unwrap_or(u32::MAX)),
            config: config.clone(),
            position: 0,
            time: 0,
        })
    }

    /// The settings that the chain was built from.
    pub fn config(&self) -> &ChainConfig {
        &self.config
    }

    /// Draws one reward; `word` holds 32 unused random bits in its lower half.
    #[inline]
    fn draw_reward(&self, word: u64, rng: &mut StreamRng, reward: &mut [f32]) {
        let dim = self.spec.reward_dim;
        let reward = &mut reward[..dim];
        match &self.law {
            RewardLaw::Exclusive => {
                reward.fill(0.0);
                // 32 bits times d, upper half: uniform on 0..d to within 2^-32.
                let coordinate = ((word & 0xffff_ffff) * dim as u64) >> 32;
                reward[coordinate as usize] = 1.0;
            }
            RewardLaw::Independent(threshold) => {
                let mut bits = word & 0xffff_ffff;
                for (coordinate, entry) in reward.iter_mut().enumerate() {
                    if coordinate % 2 == 1 {
                        bits = rng.next_u64();
                    } else if coordinate > 0 {
                        bits >>= 32;
                    }
                    *entry = f32::from(u8::from((bits & 0xffff_ffff) < *threshold));
                }
            }
            RewardLaw::Gaussian(mean, factor) => {
                let mut normal = [0.0_f64; MAX_REWARD_DIM];
                for (i, entry) in reward.iter_mut().enumerate() {
                    normal[i] = rng.sample(StandardNormal);
                    let row = &factor[i * dim..=i * dim + i];
                    let noise: f64 = row.iter().zip(&normal).map(|(l, z)| l * z).sum();
                    *entry = (mean[i] + noise) as f32;
                }
            }
            RewardLaw::Deterministic(value) => reward.copy_from_slice(value),
        }
    }
}

/// Lower Cholesky factor by rows of a symmetric positive semi-definite matrix.
fn cholesky(covariance: &[Vec<f64>]) -> Result<Vec<f64>, String> {
    let dim = covariance.len();
    let scale = (0..dim).map(|i| covariance[i][i].abs()).fold(0.0, f64::max);
    let tolerance = 1e-12 * scale;
    let mut factor = vec![0.0; dim * dim];
    for i in 0..dim {
        for j in 0..=i {
            let (lower, upper) = (covariance[i][j], covariance[j][i]);
            if (lower - upper).abs() > tolerance {
                return Err(format!(
                    "reward.covariance has {lower} at ({i}, {j}) and {upper} at ({j}, {i}), expected a symmetric matrix"
                ));
            }
            let done: f64 = (0..j)
                .map(|k| factor[i * dim + k] * factor[j * dim + k])
                .sum();
            let rest = lower - done;
            let indefinite = || {
                format!(
                    "reward.covariance is not positive semi-definite (row {i}, remainder {rest:e})"
                )
            };
            if i == j {
                if rest < -tolerance {
                    return Err(indefinite());
                }
                factor[i * dim + i] = if rest > tolerance { rest.sqrt() } else { 0.0 };
            } else if factor[j * dim + j] > 0.0 {
                factor[i * dim + j] = rest / factor[j * dim + j];
            } else if rest.abs() > tolerance {
                // A coordinate without variance cannot covary.
                return Err(indefinite());
            }
        }
    }
    Ok(factor)
}

impl Env for Chain {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _rng: &mut StreamRng, observation: ObservationMut<'_>) {
        self.position = 0;
        self.time = 0;
        self.observe(observation);
    }

    #[inline]
    fn step(
        &mut self,
        action: usize,
        rng: &mut StreamRng,
        reward: &mut [f32],
        observation: ObservationMut<'_>,
    ) -> Outcome {
        assert!(
            action <= usize::from(self.config.back),
            "no action {action}"
        );
        self.time = self.time.saturating_add(1);
        // One word serves both the slip (upper half) and the reward (lower half).
        let word = rng.next_u64();
        self.draw_reward(word, rng, reward);
        if (word >> 32) >= self.slip_threshold {
            self.position = match action {
                0 => self.position + 1,
                _ => self.position.saturating_sub(1),
            };
        }
        self.observe(observation);
        if self.position as usize == self.config.length {
            for (entry, bonus) in reward.iter_mut().zip(&self.bonus) {
                *entry += bonus;
            }
            Outcome::Terminated
        } else if self.time >= self.limit {
            Outcome::Truncated
        } else {
            Outcome::Continue
        }
    }

    fn observe(&mut self, observation: ObservationMut<'_>) {
        match observation {
            ObservationMut::Skip => {}
            ObservationMut::F32(values) => {
                let values = &mut values[..self.config.length];
                values.fill(0.0);
                // Outside the line, after leaving, no state is marked.
                if let Some(value) = values.get_mut(self.position as usize) {
                    *value = 1.0;
                }
            }
            ObservationMut::U8(_) => panic!("{} observes floats, not bytes", self.spec.name),
        }
    }

    fn save(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.position.to_le_bytes());
        bytes.extend_from_slice(&self.time.to_le_bytes());
    }

    fn load(&mut self, bytes: &[u8]) -> Result<(), EnvError> {
        let Ok(bytes) = <[u8; 8]>::try_from(bytes) else {
            return Err(EnvError::State(format!(
                "{} bytes for {}, expected 8",
                bytes.len(),
                self.spec.name
            )));
        };
        let word = u64::from_le_bytes(bytes);
        let position = word as u32;
        if position as usize > self.config.length {
            return Err(EnvError::State(format!(
                "position {position} for {}, expected at most {}",
                self.spec.name, self.config.length
            )));
        }
        self.position = position;
        self.time = (word >> 32) as u32;
        Ok(())
    }

    fn table_state(&self) -> Option<(usize, usize)> {
        // After leaving there is no next action; the last state keeps a table lookup in range.
        let last = self.config.length - 1;
        Some(((self.position as usize).min(last), self.config.length))
    }
}

impl EnvSettings for ChainConfig {
    fn build(&self, name: &str) -> Result<Box<dyn Env>, EnvError> {
        Ok(Box::new(Chain::new(name, self)?))
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
