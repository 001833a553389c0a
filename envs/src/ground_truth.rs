//! True joint return laws: Monte Carlo samples, and exact atoms where there are finitely many.

mod batched;

use std::sync::Mutex;

pub use batched::{Decider, Player, RolloutPolicy};

use crate::chain::{ChainConfig, ChainReward};
use crate::{
    CacheKey, Discount, DiskCache, Env, EnvError, ObservationMut, Outcome, Policy, StreamRng,
    operator_norm,
};
use batched::Lanes;

/// Episodes that share a random stream: fixed, so that samples do not depend on the number of threads.
const BLOCK: usize = 1024;

/// An episode stops where the operator norm of Γ^t is below this: the rest of the return is negligible.
const NEGLIGIBLE: f64 = 1e-6;

/// Largest number of atoms of an exact law.
pub const MAX_ATOMS: usize = 1 << 20;

/// Makes one more copy of an environment; each worker thread has its own.
pub type MakeEnv<'a> = dyn Fn() -> Result<Box<dyn Env>, EnvError> + Sync + 'a;

/// A return law to sample: Z(s, a) of a policy.
#[derive(Clone, Copy, Debug)]
pub struct ReturnLaw<'a> {
    /// The state s, as written by [`Env::save`].
    pub state: &'a [u8],
    /// Draws every action after the first.
    pub policy: &'a dyn RolloutPolicy,
    /// The first action a.
    pub first_action: usize,
    /// The discount Γ.
    pub discount: &'a Discount,
}

/// Draws `samples` independent joint returns Σ_t Γ^t R_t, `[samples, d]`, in parallel.
///
/// Time limits are ignored, because learning targets bootstrap through truncation: an episode stops when it is terminated or absorbed,
/// or when ‖Γ^t‖ < 1e-6. The result is a function of the law, `samples` and `seed` alone; more samples extend fewer.
///
/// # Errors
/// What `make` says, or [`EnvError`] if the state does not fit the environment, or Γ or the first action does not.
pub fn ground_truth(
    make: &MakeEnv<'_>,
    law: &ReturnLaw<'_>,
    samples: usize,
    seed: u64,
) -> Result<Vec<f32>, EnvError> {
    let dim = law.discount.dim();
    let horizon = horizon(law.discount);
    let mut returns = vec![0.0_f32; samples * dim];
    // Workers take blocks from one list in whatever order: which worker computes a block does not matter for its result.
    let blocks = Mutex::new(returns.chunks_mut(BLOCK * dim).enumerate());
    let worker = |_: rayon::BroadcastContext<'_>| -> Result<(), EnvError> {
        let mut env = None;
        let mut rewards = Vec::new();
        let mut lanes = Lanes::default();
        let mut player = law.policy.player();
        loop {
            let block = blocks
                .lock()
                .unwrap_or_else(|poison| poison.into_inner())
                .next();
            let Some((index, block)) = block else {
                return Ok(());
            };
            let policy = match &mut player {
                Player::Single(policy) => *policy,
                Player::Batched { decider, epsilon } => {
                    let (decider, epsilon) = (decider.as_mut(), *epsilon);
                    let first = index * BLOCK;
                    lanes.play(make, law, horizon, seed, first, decider, epsilon, block)?;
                    continue;
                }
            };
            let env = match &mut env {
                Some(env) => env,
                empty => empty.insert(make_checked(make, law)?),
            };
            let mut rng = StreamRng::new(seed, "ground truth", index as u64);
            for sample in block.chunks_exact_mut(dim) {
                env.load(law.state)?;
                episode(env.as_mut(), law, policy, horizon, &mut rng, &mut rewards);
                discounted_sum(&rewards, law.discount, sample);
            }
        }
    };
    rayon::broadcast(worker)
        .into_iter()
        .collect::<Result<(), _>>()?;
    Ok(returns)
}

/// As [`ground_truth`], kept in `cache`; `env` is the environment's complete configuration as text, policy and all inputs go into the key.
///
/// # Errors
/// As [`ground_truth`], or [`EnvError::Io`] if the cache cannot be written.
pub fn cached_ground_truth(
    cache: &DiskCache,
    env: &str,
    make: &MakeEnv<'_>,
    law: &ReturnLaw<'_>,
    samples: usize,
    seed: u64,
) -> Result<Vec<f32>, EnvError> {
    let key = law.key(env).number(samples as u64).number(seed);
    let length = samples * law.discount.dim();
    cache.floats(&key, length, || ground_truth(make, law, samples, seed))
}

impl ReturnLaw<'_> {
    /// A hash of everything that the law depends on, `env` being the environment's complete configuration as text.
    pub fn key(&self, env: &str) -> CacheKey {
        CacheKey::new("ground truth 1")
            .bytes(env.as_bytes())
            .bytes(self.state)
            .bytes(self.policy.key().as_bytes())
            .number(self.first_action as u64)
            .number(self.discount.dim() as u64)
            .floats(self.discount.matrix())
    }
}

fn make_checked(make: &MakeEnv<'_>, law: &ReturnLaw<'_>) -> Result<Box<dyn Env>, EnvError> {
    let env = make()?;
    let (actions, dim) = (env.spec().actions(), env.spec().reward_dim);
    if law.first_action >= actions {
        return Err(EnvError::Policy(format!(
            "first action {}, expected 0 to {}",
            law.first_action,
            actions - 1
        )));
    }
    if law.discount.dim() != dim {
        return Err(EnvError::Discount(format!(
            "{0} x {0}, expected {dim} x {dim} (the rewards of {1})",
            law.discount.dim(),
            env.spec().name
        )));
    }
    Ok(env)
}

/// Plays one episode from the loaded state and writes its rewards `[T, d]`.
fn episode(
    env: &mut dyn Env,
    law: &ReturnLaw<'_>,
    policy: &Policy,
    horizon: usize,
    rng: &mut StreamRng,
    rewards: &mut Vec<f32>,
) {
    let dim = law.discount.dim();
    rewards.clear();
    if env.absorbed() {
        return;
    }
    for time in 0..horizon {
        let action = match time {
            0 => law.first_action,
            _ => policy.sample(env, rng),
        };
        let start = rewards.len();
        rewards.resize(start + dim, 0.0);
        let outcome = env.step(action, rng, &mut rewards[start..], ObservationMut::Skip);
        if outcome == Outcome::Terminated || env.absorbed() {
            return;
        }
    }
}

/// Σ_t Γ^t r_t of rewards `[T, d]`, by Horner's rule from the last step: z ← r_t + Γ z.
fn discounted_sum(rewards: &[f32], discount: &Discount, sum: &mut [f32]) {
    let dim = discount.dim();
    let mut total = [0.0_f64; crate::MAX_REWARD_DIM];
    let total = &mut total[..dim];
    for reward in rewards.chunks_exact(dim).rev() {
        apply(discount, total);
        total
            .iter_mut()
            .zip(reward)
            .for_each(|(z, r)| *z += f64::from(*r));
    }
    sum.iter_mut().zip(total).for_each(|(s, z)| *s = *z as f32);
}

/// Replaces z by Γz.
fn apply(discount: &Discount, point: &mut [f64]) {
    let dim = discount.dim();
    let matrix = discount.matrix();
    if let Some(gamma) = discount.scalar() {
        point.iter_mut().for_each(|z| *z *= gamma);
    } else if discount.is_diagonal() {
        for (i, z) in point.iter_mut().enumerate() {
            *z *= matrix[i * dim + i];
        }
    } else {
        let mut product = [0.0; crate::MAX_REWARD_DIM];
        for (row, out) in matrix.chunks_exact(dim).zip(&mut product) {
            *out = row.iter().zip(point.iter()).map(|(m, z)| m * z).sum();
        }
        point.copy_from_slice(&product[..dim]);
    }
}

/// The smallest t with ‖Γ^t‖ < 1e-6. Norms fall with t since ‖Γ‖ < 1, so doubling brackets it and binary digits find it.
fn horizon(discount: &Discount) -> usize {
    let dim = discount.dim();
    let multiply = |a: &[f64], b: &[f64]| -> Vec<f64> {
        let mut product = vec![0.0; dim * dim];
        for i in 0..dim {
            for k in 0..dim {
                for j in 0..dim {
                    product[i * dim + j] += a[i * dim + k] * b[k * dim + j];
                }
            }
        }
        product
    };
    let small = |matrix: &[f64]| operator_norm(matrix, dim, discount.is_diagonal()) < NEGLIGIBLE;
    // squares[k] = Γ^(2^k), up to the first small one.
    let mut squares = vec![discount.matrix().to_vec()];
    while !small(&squares[squares.len() - 1]) {
        let last = &squares[squares.len() - 1];
        squares.push(multiply(last, last));
    }
    // The largest t with ‖Γ^t‖ not small, digit by digit.
    let mut power = discount.identity();
    let mut time = 0;
    for (digit, square) in squares.iter().enumerate().rev() {
        let next = multiply(&power, square);
        if !small(&next) {
            power = next;
            time += 1 << digit;
        }
    }
    time + 1
}

/// A return law of finitely many atoms.
#[derive(Clone, Debug, PartialEq)]
pub struct ExactLaw {
    /// Distinct points `[atoms, d]`, row-major, in lexicographic order.
    pub atoms: Vec<f64>,
    /// Probability of each atom.
    pub weights: Vec<f64>,
}

/// The exact return law from state `position` of a chain without slip under the policy `forward`; equal atoms are merged.
///
/// # Errors
/// [`EnvError::Enumeration`] if there is slip, the reward law is continuous, or there are more than 2^20 atoms.
pub fn exact_chain_law(
    config: &ChainConfig,
    discount: &Discount,
    position: usize,
) -> Result<ExactLaw, EnvError> {
    let refuse = |message: String| Err(EnvError::Enumeration(message));
    let dim = config.dim;
    if discount.dim() != dim {
        return refuse(format!(
            "Γ is {0} x {0}, expected {dim} x {dim}",
            discount.dim()
        ));
    }
    if config.slip > 0.0 {
        return refuse(format!(
            "slip = {}, expected 0: with slip an episode has no longest length",
            config.slip
        ));
    }
    if position >= config.length {
        return refuse(format!(
            "position {position}, expected 0 to {}",
            config.length - 1
        ));
    }
    let support = match &config.reward {
        ChainReward::Exclusive {} => (0..dim)
            .map(|i| {
                let mut point = vec![0.0; dim];
                point[i] = 1.0;
                (point, 1.0 / dim as f64)
            })
            .collect(),
        ChainReward::Independent {} if dim == 1 => vec![(vec![1.0], 1.0)],
        ChainReward::Independent {} if dim > 20 => {
            return refuse(format!("a step has 2^{dim} rewards, expected at most 2^20"));
        }
        ChainReward::Independent {} => (0..1_u32 << dim)
            .map(|set| {
                let point = (0..dim).map(|i| f64::from(set >> i & 1)).collect();
                let p = 1.0 / dim as f64;
                let ones = set.count_ones() as i32;
                (point, p.powi(ones) * (1.0 - p).powi(dim as i32 - ones))
            })
            .collect(),
        ChainReward::Deterministic { value } if value.is_empty() => vec![(vec![1.0; dim], 1.0)],
        ChainReward::Deterministic { value } => vec![(value.clone(), 1.0)],
        ChainReward::Gaussian { .. } => {
            return refuse(
                "the reward law is continuous, expected exclusive, independent or deterministic"
                    .to_owned(),
            );
        }
    };
    let support: Vec<(Vec<f64>, f64)> = support;
    let bonus = config
        .terminal_bonus
        .clone()
        .unwrap_or_else(|| vec![0.0; dim]);
    // After the leaving step the return is zero; its bonus is a constant part of that step's reward. Then Z ← R + ΓZ backwards.
    let mut law = vec![(bonus, 1.0)];
    for step in 0..config.length - position {
        if step > 0 {
            law.iter_mut().for_each(|(point, _)| apply(discount, point));
        }
        if support.len().saturating_mul(law.len()) > MAX_ATOMS {
            return refuse(format!(
                "{} x {} atoms after {} of {} steps, expected at most 2^20",
                support.len(),
                law.len(),
                step + 1,
                config.length - position
            ));
        }
        law = merged(
            support
                .iter()
                .flat_map(|(reward, p)| {
                    law.iter().map(move |(point, q)| {
                        let sum = point.iter().zip(reward).map(|(z, r)| z + r).collect();
                        (sum, p * q)
                    })
                })
                .collect(),
        );
    }
    let (atoms, weights): (Vec<Vec<f64>>, Vec<f64>) = law.into_iter().unzip();
    Ok(ExactLaw {
        atoms: atoms.concat(),
        weights,
    })
}

/// Sorts atoms lexicographically and adds up the weights of equal ones.
fn merged(mut law: Vec<(Vec<f64>, f64)>) -> Vec<(Vec<f64>, f64)> {
    let order = |a: &[f64], b: &[f64]| {
        a.iter()
            .zip(b)
            .map(|(x, y)| x.total_cmp(y))
            .find(|order| order.is_ne())
            .unwrap_or(std::cmp::Ordering::Equal)
    };
    law.sort_by(|a, b| order(&a.0, &b.0));
    law.dedup_by(|later, kept| {
        let equal = later.0 == kept.0;
        if equal {
            kept.1 += later.1;
        }
        equal
    });
    law
}

#[cfg(test)]
#[path = "ground_truth_tests.rs"]
mod tests;
