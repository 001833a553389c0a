//! Sparse transition laws in two stages, and the two kernels on them: pushing a law forward, and expected values.
//!
//! P(s'|s, a) = Σ_k move(k|s, a) noise(s'|k): an individual's move leads to a target k, and idiosyncratic noise that does not depend on the
//! action leads on from there. A law then costs S·A·degree + K·band operations instead of S·A·degree·band.

use rand::Rng;

use crate::StreamRng;

use super::real::Real;

/// First stage: `degree` targets with weights for each state and action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moves<R> {
    degree: usize,
    /// `[S, A, degree]`.
    targets: Vec<u32>,
    /// `[S, A, degree]`, or empty where every move is certain (degree 1).
    weights: Vec<R>,
}

impl<R: Real> Moves<R> {
    /// Moves with certain targets, `[S, A]`.
    pub fn certain(targets: Vec<u32>) -> Self {
        Self {
            degree: 1,
            targets,
            weights: Vec::new(),
        }
    }

    /// Makes room for certain targets of `pairs` = S·A pairs and hands them out to be filled, `[S, A]`.
    pub fn certain_mut(&mut self, pairs: usize) -> &mut [u32] {
        self.degree = 1;
        self.targets.resize(pairs, 0);
        self.weights.clear();
        &mut self.targets
    }

    /// Makes room for `degree` weighted targets of each of `pairs` = S·A pairs and hands them out to be filled, `[S, A, degree]` both.
    ///
    /// What they held before stays, and memory once taken is kept.
    pub fn weighted_mut(&mut self, pairs: usize, degree: usize) -> (&mut [u32], &mut [R]) {
        self.degree = degree;
        self.targets.resize(pairs * degree, 0);
        self.weights.resize(pairs * degree, R::ZERO);
        (&mut self.targets, &mut self.weights)
    }

    /// Number of targets of a state and action.
    pub fn degree(&self) -> usize {
        self.degree
    }

    /// The targets of pair s·A + a with their weights.
    pub fn of_pair(&self, pair: usize) -> impl Iterator<Item = (usize, R)> + '_ {
        let range = pair * self.degree..(pair + 1) * self.degree;
        let weights = self.weights.get(range.clone());
        self.targets[range]
            .iter()
            .enumerate()
            .map(move |(i, target)| (*target as usize, weights.map_or(R::ONE, |w| w[i])))
    }
}

/// Second stage: idiosyncratic noise around a target, in one or more variants, stored by diagonals.
///
/// Target k = variant·S + i spreads to the states i + offset with weight `weights[variant][offset][i]`. Weights at the border are those
/// after clipping, so the kernels are plain vector operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise<R> {
    states: usize,
    variants: usize,
    offsets: Vec<isize>,
    /// `[variants, offsets, states]`.
    weights: Vec<R>,
}

impl<R: Real> Noise<R> {
    /// Tabulates noise from its atoms: `atoms(variant, i)` lists (state, probability) around state i; equal states add up.
    pub fn tabulate<I: IntoIterator<Item = (usize, f64)>>(
        states: usize,
        variants: usize,
        atoms: impl Fn(usize, usize) -> I,
    ) -> Self {
        let entries: Vec<(usize, isize, usize, f64)> = (0..variants * states)
            .flat_map(|k| {
                let (variant, i) = (k / states, k % states);
                atoms(variant, i)
                    .into_iter()
                    .map(move |(to, p)| (variant, to as isize - i as isize, i, p))
            })
            .collect();
        let mut offsets: Vec<isize> = entries.iter().map(|entry| entry.1).collect();
        offsets.sort_unstable();
        offsets.dedup();
        let mut weights = vec![0.0; variants * offsets.len() * states];
        for (variant, offset, i, p) in entries {
            let diagonal = offsets.partition_point(|o| *o < offset);
            weights[(variant * offsets.len() + diagonal) * states + i] += p;
        }
        Self {
            states,
            variants,
            offsets,
            weights: weights.into_iter().map(R::from_f64).collect(),
        }
    }

    /// Number of targets, variants x S.
    pub fn targets(&self) -> usize {
        self.variants * self.states
    }

    /// The states that target k spreads to, with their weights (zero weights included).
    pub fn of_target(&self, k: usize) -> impl Iterator<Item = (isize, R)> + '_ {
        let (variant, i) = (k / self.states, k % self.states);
        let first = variant * self.offsets.len();
        self.offsets.iter().enumerate().map(move |(d, offset)| {
            let weight = self.weights[(first + d) * self.states + i];
            (i as isize + offset, weight)
        })
    }

    /// Diagonals as (variant, range of source states, range of destination states, weights of the sources).
    fn diagonals(
        &self,
    ) -> impl Iterator<Item = (usize, std::ops::Range<usize>, std::ops::Range<usize>, &[R])> {
        let states = self.states as isize;
        self.weights
            .chunks_exact(self.states)
            .enumerate()
            .map(move |(row, weights)| {
                let offset = self.offsets[row % self.offsets.len()];
                // Sources whose destination is a state; by construction all others have weight zero.
                let first = (-offset).clamp(0, states) as usize;
                let last = (states - offset).clamp(0, states) as usize;
                let first = first.min(last);
                let shifted = (first as isize + offset) as usize;
                (
                    row / self.offsets.len(),
                    first..last,
                    shifted..shifted + (last - first),
                    &weights[first..last],
                )
            })
    }

    /// next(i + offset) += Σ held(k) weight.
    #[inline(always)]
    fn push(&self, held: &[R], next: &mut [R]) {
        for (variant, from, to, weights) in self.diagonals() {
            let held = &held[variant * self.states..(variant + 1) * self.states][from];
            for ((next, held), weight) in next[to].iter_mut().zip(held).zip(weights) {
                *next += *held * *weight;
            }
        }
    }

    /// spread(k) = Σ weight values(i + offset).
    #[inline(always)]
    fn expect(&self, values: &[R], spread: &mut [R]) {
        spread.fill(R::ZERO);
        for (variant, from, to, weights) in self.diagonals() {
            let spread = &mut spread[variant * self.states..(variant + 1) * self.states][from];
            for ((spread, value), weight) in spread.iter_mut().zip(&values[to]).zip(weights) {
                *spread += *weight * *value;
            }
        }
    }
}

/// The transition law of one step: moves, then noise where there is any.
#[derive(Clone, Copy, Debug)]
pub struct Transitions<'a, R> {
    /// First stage.
    pub moves: &'a Moves<R>,
    /// Second stage; without it the targets of the moves are the next states.
    pub noise: Option<&'a Noise<R>>,
}

/// Relative mass that a law may lose or gain in one step before it is an error and not rounding.
pub(crate) const MASS_TOLERANCE: f64 = 1e-4;

impl<R: Real> Transitions<'_, R> {
    /// Number of targets of the first stage.
    pub fn targets(&self, states: usize) -> usize {
        self.noise.map_or(states, Noise::targets)
    }

    /// Calls `each` with every successor of a state and action and its weight; a state may come more than once.
    ///
    /// Successors outside 0..S, which a valid law does not have, come as they are.
    pub fn successors(&self, pair: usize, mut each: impl FnMut(isize, f64)) {
        for (target, weight) in self.moves.of_pair(pair) {
            match self.noise {
                None => each(target as isize, weight.to_f64()),
                Some(noise) if target < noise.targets() => {
                    for (next, p) in noise.of_target(target) {
                        if p != R::ZERO {
                            each(next, weight.to_f64() * p.to_f64());
                        }
                    }
                }
                Some(_) => each(target as isize, weight.to_f64()),
            }
        }
    }

    /// Checks that every law P(·|s, a) is a law on 0..S.
    ///
    /// # Errors
    /// A line with the state, the action and what is wrong.
    pub fn check(&self, states: usize, actions: usize) -> Result<(), String> {
        let entries = states * actions * self.moves.degree;
        let sizes = (self.moves.targets.len(), self.moves.weights.len());
        let certain = self.moves.degree == 1 && sizes.1 == 0;
        if sizes.0 != entries || (sizes.1 != entries && !certain) || entries == 0 {
            return Err(format!(
                "{} targets and {} weights of degree {}, expected S x A x degree = {entries} of each and at least one",
                sizes.0, sizes.1, self.moves.degree
            ));
        }
        for pair in 0..states * actions {
            let at = || format!("state {}, action {}", pair / actions, pair % actions);
            let mut total = 0.0;
            let mut outside = None;
            let mut negative = None;
            self.successors(pair, |next, p| {
                total += p;
                if !(0..states as isize).contains(&next) {
                    outside = Some(next);
                }
                if p < 0.0 || p.is_nan() {
                    negative = Some(p);
                }
            });
            if let Some(next) = outside {
                return Err(format!(
                    "{}: a successor is {next}, expected 0 to {}",
                    at(),
                    states - 1
                ));
            }
            if let Some(p) = negative {
                return Err(format!("{}: a successor has probability {p}", at()));
            }
            if (total - 1.0).abs() > MASS_TOLERANCE {
                return Err(format!(
                    "{}: successor probabilities sum to {total}, expected 1",
                    at()
                ));
            }
        }
        Ok(())
    }

    /// Draws one individual's next state; `None` if it leaves the state space.
    pub fn draw(&self, pair: usize, states: usize, rng: &mut StreamRng) -> Option<usize> {
        let target = if self.moves.weights.is_empty() {
            self.moves.targets[pair] as usize
        } else {
            choose(self.moves.of_pair(pair), rng.random())?
        };
        let next = match self.noise {
            None => target as isize,
            Some(noise) if target < noise.targets() => {
                choose(noise.of_target(target), rng.random())?
            }
            Some(_) => return None,
        };
        usize::try_from(next).ok().filter(|next| *next < states)
    }

    /// μ'(s') = Σ_{s,a} μ(s) π(a|s) P(s'|s, a), not normalised; `held` is room for the law after the moves.
    ///
    /// Shapes: `mu` and `next` `[S]`, `policy` `[S, A]`. What leaves the state space is dropped, so that the caller sees mass missing.
    pub fn push(&self, mu: &[R], policy: &[R], held: &mut Vec<R>, next: &mut [R]) {
        match self.noise {
            None => {
                next.fill(R::ZERO);
                self.scatter(mu, policy, next);
            }
            Some(noise) => {
                held.clear();
                held.resize(noise.targets(), R::ZERO);
                self.scatter(mu, policy, held);
                next.fill(R::ZERO);
                noise.push(held, next);
            }
        }
    }

    #[inline(always)]
    fn scatter(&self, mu: &[R], policy: &[R], held: &mut [R]) {
        let actions = policy.len() / mu.len();
        let mut add = |target: u32, mass: R| {
            if let Some(held) = held.get_mut(target as usize) {
                *held += mass;
            }
        };
        let Moves {
            degree,
            targets,
            weights,
        } = self.moves;
        if weights.is_empty() {
            let rows = targets
                .chunks_exact(actions)
                .zip(policy.chunks_exact(actions));
            for (mass, (targets, policy)) in mu.iter().zip(rows) {
                for (target, p) in targets.iter().zip(policy) {
                    add(*target, *mass * *p);
                }
            }
            return;
        }
        let rows = targets
            .chunks_exact(actions * degree)
            .zip(weights.chunks_exact(actions * degree))
            .zip(policy.chunks_exact(actions));
        for (mass, ((targets, weights), policy)) in mu.iter().zip(rows) {
            let pairs = targets
                .chunks_exact(*degree)
                .zip(weights.chunks_exact(*degree));
            for ((targets, weights), p) in pairs.zip(policy) {
                let mass = *mass * *p;
                for (target, weight) in targets.iter().zip(weights) {
                    add(*target, mass * *weight);
                }
            }
        }
    }

    /// Q(s, a) = r(s, a) + γ Σ_{s'} P(s'|s, a) v(s'); `spread` is room for the values before the noise.
    ///
    /// Shapes: `rewards` and `action_values` `[S, A]`, `values` `[S]`. A successor outside the state space gives NaN.
    pub fn action_values(
        &self,
        rewards: &[R],
        discount: R,
        values: &[R],
        spread: &mut Vec<R>,
        action_values: &mut [R],
    ) {
        match self.noise {
            None => self.gather(rewards, discount, values, action_values),
            Some(noise) => {
                spread.resize(noise.targets(), R::ZERO);
                noise.expect(values, spread);
                self.gather(rewards, discount, spread, action_values);
            }
        }
    }

    #[inline(always)]
    fn gather(&self, rewards: &[R], discount: R, spread: &[R], action_values: &mut [R]) {
        let at = |target: u32| {
            spread
                .get(target as usize)
                .copied()
                .unwrap_or_else(|| R::from_f64(f64::NAN))
        };
        let Moves {
            degree,
            targets,
            weights,
        } = self.moves;
        let entries = action_values.iter_mut().zip(rewards);
        if weights.is_empty() {
            for ((value, reward), target) in entries.zip(targets) {
                *value = *reward + discount * at(*target);
            }
            return;
        }
        let pairs = targets
            .chunks_exact(*degree)
            .zip(weights.chunks_exact(*degree));
        for ((value, reward), (targets, weights)) in entries.zip(pairs) {
            let mut expected = R::ZERO;
            for (target, weight) in targets.iter().zip(weights) {
                expected += *weight * at(*target);
            }
            *value = *reward + discount * expected;
        }
    }
}

/// The item whose part of [0, total) holds `uniform`; the last with any weight if rounding left `uniform` above the total.
#[inline]
pub(crate) fn choose<T, R: Real>(
    items: impl IntoIterator<Item = (T, R)>,
    mut uniform: f64,
) -> Option<T> {
    let mut chosen = None;
    for (item, weight) in items {
        if weight > R::ZERO {
            chosen = Some(item);
            uniform -= weight.to_f64();
            if uniform < 0.0 {
                break;
            }
        }
    }
    chosen
}
