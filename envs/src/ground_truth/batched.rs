//! Rollouts of policies that decide on many states at once, such as a network's.

use std::collections::HashMap;

use rand::Rng;

use super::{MakeEnv, ReturnLaw, make_checked};
use crate::policy::uniform_action;
use crate::{Env, EnvError, ObservationBuffer, Outcome, Policy, StreamRng};

/// Memory for remembered decisions, in bytes of observations.
const REMEMBERED_BYTES: usize = 1 << 26;

/// A policy whose return law can be sampled.
pub trait RolloutPolicy: std::fmt::Debug + Sync {
    /// A text that differs between policies that decide differently, for cache keys.
    fn key(&self) -> String;

    /// One more copy for a thread.
    fn player(&self) -> Player<'_>;
}

/// How a thread plays a policy.
pub enum Player<'a> {
    /// One state at a time.
    Single(&'a Policy),
    /// Many observations at a time.
    Batched {
        /// Decides on the observations.
        decider: Box<dyn Decider + 'a>,
        /// Probability ε of a uniform random action in place of the decision.
        epsilon: f64,
    },
}

/// Decides on many observations at once; the decision is a function of the observation.
pub trait Decider {
    /// Writes one action for each of `rows` observations `[rows, length]`.
    ///
    /// # Errors
    /// [`EnvError::Policy`] if there is no decision.
    fn decide(
        &mut self,
        observations: &ObservationBuffer,
        rows: usize,
        actions: &mut [usize],
    ) -> Result<(), EnvError>;
}

impl RolloutPolicy for Policy {
    fn key(&self) -> String {
        format!("{self:?}")
    }

    fn player(&self) -> Player<'_> {
        Player::Single(self)
    }
}

/// Copies of the environment that are stepped side by side by one thread.
#[derive(Default)]
pub(super) struct Lanes {
    envs: Vec<Box<dyn Env>>,
}

impl Lanes {
    /// Plays one episode for each sample of a block `[samples, d]`, whose first sample has the number `first`, and writes the returns.
    #[allow(clippy::too_many_arguments)] // One call, and no two of these belong together.
    pub(super) fn play(
        &mut self,
        make: &MakeEnv<'_>,
        law: &ReturnLaw<'_>,
        horizon: usize,
        seed: u64,
        first: usize,
        decider: &mut dyn Decider,
        epsilon: f64,
        block: &mut [f32],
    ) -> Result<(), EnvError> {
        let dim = law.discount.dim();
        let count = block.len() / dim;
        while self.envs.len() < count {
            self.envs.push(make_checked(make, law)?);
        }
        let spec = self.envs[0].spec().clone();
        let length = spec.observation.len();
        let mut streams: Vec<StreamRng> = (first..first + count)
            .map(|sample| StreamRng::new(seed, "ground truth, batched", sample as u64))
            .collect();
        let mut alive = Vec::with_capacity(count);
        for (lane, env) in self.envs[..count].iter_mut().enumerate() {
            env.load(law.state)?;
            if !env.absorbed() {
                alive.push(lane);
            }
        }
        let mut observations = ObservationBuffer::zeros(spec.observation.kind, count * length);
        let mut decisions = Decisions::new(ObservationBuffer::zeros(spec.observation.kind, 0));
        let mut actions = vec![law.first_action; count];
        let mut totals = vec![0.0_f64; count * dim];
        let mut reward = vec![0.0_f32; dim];
        // All lanes are at the same time t, so one Γ^t serves them.
        let mut power = law.discount.identity();
        for time in 0..horizon {
            if alive.is_empty() {
                break;
            }
            if time > 0 {
                decisions.ask(&alive, &observations, length);
                decisions.answer(decider)?;
                for (&lane, action) in alive.iter().zip(decisions.answers()) {
                    let rng = &mut streams[lane];
                    let explores = rng.random::<f64>() < epsilon;
                    actions[lane] = if explores {
                        uniform_action(spec.actions(), rng)
                    } else {
                        action
                    };
                }
            }
            alive.retain(|&lane| {
                let env = &mut self.envs[lane];
                let row = observations.row_mut(lane, length);
                let outcome = env.step(actions[lane], &mut streams[lane], &mut reward, row);
                let total = &mut totals[lane * dim..(lane + 1) * dim];
                for (sum, row) in total.iter_mut().zip(power.chunks_exact(dim)) {
                    let pairs = row.iter().zip(&reward);
                    *sum += pairs.map(|(p, r)| p * f64::from(*r)).sum::<f64>();
                }
                outcome != Outcome::Terminated && !env.absorbed()
            });
            law.discount.advance(&mut power);
        }
        for (value, total) in block.iter_mut().zip(totals) {
            *value = total as f32;
        }
        Ok(())
    }
}

/// Decisions on the observations of one block, each asked for once.
///
/// They are forgotten from block to block, so that a decision does not depend on which thread met an observation first.
struct Decisions {
    known: HashMap<Vec<u8>, usize>,
    actions: Vec<usize>,
    /// Decision of each lane that asked.
    asked: Vec<usize>,
    /// Observations without a decision yet.
    open: ObservationBuffer,
    rows: usize,
    key: Vec<u8>,
}

impl Decisions {
    fn new(open: ObservationBuffer) -> Self {
        Self {
            known: HashMap::new(),
            actions: Vec::new(),
            asked: Vec::new(),
            open,
            rows: 0,
            key: Vec::new(),
        }
    }

    fn ask(&mut self, lanes: &[usize], observations: &ObservationBuffer, length: usize) {
        self.asked.clear();
        self.open.resize(0);
        self.rows = 0;
        for &lane in lanes {
            let row = lane * length..(lane + 1) * length;
            self.key.clear();
            match observations {
                ObservationBuffer::F32(values) => {
                    let bytes = values[row.clone()].iter().flat_map(|x| x.to_ne_bytes());
                    self.key.extend(bytes);
                }
                ObservationBuffer::U8(values) => self.key.extend_from_slice(&values[row.clone()]),
            }
            if let Some(&decision) = self.known.get(&self.key) {
                self.asked.push(decision);
                continue;
            }
            let decision = self.actions.len() + self.rows;
            if self.known.len() * self.key.len() < REMEMBERED_BYTES {
                self.known.insert(self.key.clone(), decision);
            }
            self.asked.push(decision);
            self.rows += 1;
            match (&mut self.open, observations) {
                (ObservationBuffer::F32(open), ObservationBuffer::F32(all)) => {
                    open.extend_from_slice(&all[row]);
                }
                (ObservationBuffer::U8(open), ObservationBuffer::U8(all)) => {
                    open.extend_from_slice(&all[row]);
                }
                _ => unreachable!("both buffers have the environment's element type"),
            }
        }
    }

    fn answer(&mut self, decider: &mut dyn Decider) -> Result<(), EnvError> {
        if self.rows == 0 {
            return Ok(());
        }
        let start = self.actions.len();
        self.actions.resize(start + self.rows, 0);
        decider.decide(&self.open, self.rows, &mut self.actions[start..])
    }

    fn answers(&self) -> impl Iterator<Item = usize> {
        self.asked.iter().map(|decision| self.actions[*decision])
    }
}

#[cfg(test)]
mod tests {
    use super::super::ground_truth;
    use super::*;
    use crate::walk::Walk;
    use crate::{Discount, DiscountConfig, PolicyConfig};

    /// Stays in state 1 and goes forward elsewhere, but for a uniform action with probability ε.
    #[derive(Debug)]
    struct Hesitant {
        epsilon: f64,
    }

    impl RolloutPolicy for Hesitant {
        fn key(&self) -> String {
            format!("{self:?}")
        }

        fn player(&self) -> Player<'_> {
            Player::Batched {
                decider: Box::new(Decide),
                epsilon: self.epsilon,
            }
        }
    }

    struct Decide;

    impl Decider for Decide {
        fn decide(
            &mut self,
            observations: &ObservationBuffer,
            rows: usize,
            actions: &mut [usize],
        ) -> Result<(), EnvError> {
            let ObservationBuffer::F32(values) = observations else {
                return Err(EnvError::Policy("bytes".into()));
            };
            assert_eq!((values.len(), actions.len()), (3 * rows, rows));
            for (row, action) in values.chunks_exact(3).zip(actions) {
                *action = usize::from(row[1] == 1.0);
            }
            Ok(())
        }
    }

    fn make() -> Result<Box<dyn Env>, EnvError> {
        Ok(Box::new(Walk::new(3, 0.3)))
    }

    fn discount() -> Discount {
        Discount::new(
            &DiscountConfig::Dense(vec![vec![0.8, 0.1], vec![-0.1, 0.8]]),
            2,
        )
        .unwrap()
    }

    fn sample(policy: &dyn RolloutPolicy, samples: usize, threads: usize) -> Vec<f32> {
        let law = ReturnLaw {
            state: &[0, 0],
            policy,
            first_action: 0,
            discount: &discount(),
        };
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap()
            .install(|| ground_truth(&make, &law, samples, 3))
            .unwrap()
    }

    #[test]
    fn the_law_is_that_of_the_same_policy_as_a_table() {
        let n = 20_000;
        let epsilon = 0.4;
        let hesitant = sample(&Hesitant { epsilon }, n, 2);
        // forward, stay: 1 - ε/2 for the decision, ε/2 for the other.
        let rows = [[0.8, 0.2], [0.2, 0.8], [0.8, 0.2]];
        let config = PolicyConfig::Table {
            probabilities: rows.iter().map(|row| row.to_vec()).collect(),
        };
        let table = Policy::new(&config, &Walk::new(3, 0.3)).unwrap();
        let table = sample(&table, n, 2);
        for k in 0..2 {
            // First and second moments within 5 standard errors of their difference.
            for power in [1, 2] {
                let moments = |values: &[f32]| {
                    let own = values.iter().skip(k).step_by(2);
                    let own: Vec<f64> = own.map(|x| f64::from(*x).powi(power)).collect();
                    let mean = own.iter().sum::<f64>() / n as f64;
                    let square = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
                    (mean, square / n as f64 / n as f64)
                };
                let ((a, va), (b, vb)) = (moments(&hesitant), moments(&table));
                assert!(
                    (a - b).abs() < 5.0 * (va + vb).sqrt(),
                    "{k} {power}: {a} {b}"
                );
            }
        }
    }

    #[test]
    fn samples_do_not_depend_on_threads_and_more_extend_fewer() {
        let policy = Hesitant { epsilon: 0.1 };
        let few = sample(&policy, 1500, 1);
        assert_eq!(few, sample(&policy, 1500, 3));
        assert_eq!(few, sample(&policy, 2600, 2)[..3000]);
    }
}
