//! Sparse transition laws in two stages, and the two kernels on them: pushing a law forward, and expected values.
//!
//! P(s'|s, a) = Σ_k move(k|s, a) noise(s'|k): an individual's move leads to a target k, and idiosyncratic noise that does not depend on the
//! action leads on from there. A law then costs S·A·degree + K·band operations instead of S·A·degree·band.

use rand::Rng;

use crate::StreamRng;

use super::kernels;
use super::real::Real;

/// How the targets of a state and action are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Layout {
    /// One target.
    #[default]
    Certain,
    /// Two targets, the second `stride` after the first, with the second's weight.
    Lottery { stride: u32 },
    /// `degree` targets, each with its weight.
    Weighted { degree: usize },
}

/// First stage: a fixed number of targets with weights for each state and action.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moves<R> {
    layout: Layout,
    /// `[S, A]`, or `[S, A, degree]` if weighted.
    targets: Vec<u32>,
    /// As many as targets; none if certain.
    weights: Vec<R>,
    /// The pairs of each target, for certain moves that are used again and again.
    incoming: Option<Incoming>,
}

/// Certain moves sorted by target: the pairs that lead to k are `pairs[starts[k]..starts[k + 1]]`.
#[derive(Clone, Debug, Default, PartialEq)]
struct Incoming {
    starts: Vec<u32>,
    pairs: Vec<u32>,
}

impl<R: Real> Moves<R> {
    /// Moves with certain targets, `[S, A]`, to be kept.
    pub fn certain(targets: Vec<u32>) -> Self {
        let mut pairs: Vec<u32> = (0..targets.len() as u32).collect();
        pairs.sort_by_key(|pair| targets[*pair as usize]);
        let last = targets.iter().max().copied().unwrap_or(0);
        let starts = (0..=last + 1)
            .map(|k| pairs.partition_point(|pair| targets[*pair as usize] < k) as u32)
            .collect();
        Self {
            layout: Layout::Certain,
            targets,
            weights: Vec::new(),
            incoming: Some(Incoming { starts, pairs }),
        }
    }

    /// Makes room for certain targets of `pairs` = S·A pairs and hands them out to be filled, `[S, A]`.
    pub fn certain_mut(&mut self, pairs: usize) -> &mut [u32] {
        self.layout = Layout::Certain;
        self.incoming = None;
        self.targets.resize(pairs, 0);
        self.weights.clear();
        &mut self.targets
    }

    /// Makes room for lotteries between two targets, the second `stride` after the first, and hands out the first targets and the second's
    /// weights to be filled, `[S, A]` both; the first target has the rest of the weight.
    ///
    /// What they held before stays, and memory once taken is kept.
    pub fn lottery_mut(&mut self, pairs: usize, stride: usize) -> (&mut [u32], &mut [R]) {
        self.layout = Layout::Lottery {
            stride: stride as u32,
        };
        self.room(pairs)
    }

    /// Makes room for `degree` weighted targets of each of `pairs` = S·A pairs and hands them out to be filled, `[S, A, degree]` both.
    ///
    /// What they held before stays, and memory once taken is kept.
    pub fn weighted_mut(&mut self, pairs: usize, degree: usize) -> (&mut [u32], &mut [R]) {
        self.layout = Layout::Weighted { degree };
        self.room(pairs * degree)
    }

    fn room(&mut self, entries: usize) -> (&mut [u32], &mut [R]) {
        self.incoming = None;
        self.targets.resize(entries, 0);
        self.weights.resize(entries, R::ZERO);
        (&mut self.targets, &mut self.weights)
    }

    /// Number of targets of a state and action.
    pub fn degree(&self) -> usize {
        match self.layout {
            Layout::Certain => 1,
            Layout::Lottery { .. } => 2,
            Layout::Weighted { degree } => degree,
        }
    }

    /// The targets of pair s·A + a with their weights.
    pub fn of_pair(&self, pair: usize) -> impl Iterator<Item = (usize, R)> + '_ {
        let layout = self.layout;
        (0..self.degree()).map(move |i| match layout {
            Layout::Certain => (self.targets[pair] as usize, R::ONE),
            Layout::Lottery { stride } => {
                let (first, weight) = (self.targets[pair] as usize, self.weights[pair]);
                if i == 0 {
                    (first, R::ONE - weight)
                } else {
                    (first + stride as usize, weight)
                }
            }
            Layout::Weighted { degree } => {
                let entry = pair * degree + i;
                (self.targets[entry] as usize, self.weights[entry])
            }
        })
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
    fn push(&self, held: &[R], next: &mut [R]) {
        for (variant, from, to, weights) in self.diagonals() {
            let held = &held[variant * self.states..][..self.states];
            kernels::add_products(&held[from], weights, &mut next[to]);
        }
    }

    /// spread(k) = Σ weight values(i + offset).
    fn expect(&self, values: &[R], spread: &mut [R]) {
        spread.fill(R::ZERO);
        for (variant, from, to, weights) in self.diagonals() {
            let spread = &mut spread[variant * self.states..][..self.states];
            kernels::add_products(&values[to], weights, &mut spread[from]);
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
        let per_pair = match self.moves.layout {
            Layout::Weighted { degree } => degree,
            _ => 1,
        };
        let (entries, expected) = (self.moves.targets.len(), states * actions * per_pair);
        if entries != expected || per_pair == 0 {
            return Err(format!(
                "{entries} targets, expected S x A x degree = {expected} and at least one of each state and action"
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
        let target = match self.moves.layout {
            Layout::Certain => self.moves.targets[pair] as usize,
            _ => choose(self.moves.of_pair(pair), rng.random())?,
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

    /// μ'(s') = Σ_{s,a} joint(s, a) P(s'|s, a), not normalised, for the joint law μ(s) π(a|s) of states and actions.
    ///
    /// Shapes: `joint` `[S, A]`, `next` `[S]`. What leaves the state space is dropped, so that the caller sees mass missing.
    pub fn push(&self, joint: &[R], room: &mut Room<R>, next: &mut [R]) {
        let targets = self.targets(next.len());
        match self.noise {
            None => self.lead(joint, &mut room.parts, next),
            Some(noise) => {
                room.held.resize(targets, R::ZERO);
                self.lead(joint, &mut room.parts, &mut room.held);
                next.fill(R::ZERO);
                noise.push(&room.held, next);
            }
        }
    }

    /// The law of the targets.
    fn lead(&self, joint: &[R], parts: &mut Vec<[R; 2]>, held: &mut [R]) {
        let Moves {
            layout,
            targets,
            weights,
            incoming,
        } = self.moves;
        match (*layout, incoming) {
            (Layout::Certain, Some(Incoming { starts, pairs })) => {
                // Targets beyond the last that is reached hold nothing.
                held.fill(R::ZERO);
                kernels::collect(joint, starts, pairs, held);
            }
            (Layout::Certain, None) => {
                held.fill(R::ZERO);
                kernels::scatter(joint, targets, held);
            }
            (Layout::Lottery { stride }, _) => {
                parts.resize(held.len(), [R::ZERO; 2]);
                let stride = stride as usize;
                kernels::scatter_lotteries(joint, targets, weights, stride, parts, held);
            }
            (Layout::Weighted { degree }, _) => {
                held.fill(R::ZERO);
                let entries = targets
                    .chunks_exact(degree)
                    .zip(weights.chunks_exact(degree));
                for (mass, (targets, weights)) in joint.iter().zip(entries) {
                    for (target, weight) in targets.iter().zip(weights) {
                        if let Some(held) = held.get_mut(*target as usize) {
                            *held += *mass * *weight;
                        }
                    }
                }
            }
        }
    }

    /// Q(s, a) = r(s, a) + γ Σ_{s'} P(s'|s, a) v(s').
    ///
    /// Shapes: `rewards` and `action_values` `[S, A]`, `values` `[S]`. A successor outside the state space gives NaN.
    pub fn action_values(
        &self,
        rewards: &[R],
        discount: R,
        values: &[R],
        room: &mut Room<R>,
        action_values: &mut [R],
    ) {
        let Room { held, parts } = room;
        let values = match self.noise {
            None => values,
            Some(noise) => {
                held.resize(noise.targets(), R::ZERO);
                noise.expect(values, held);
                held
            }
        };
        let Moves {
            layout,
            targets,
            weights,
            ..
        } = self.moves;
        match *layout {
            Layout::Certain => kernels::gather(rewards, discount, targets, values, action_values),
            Layout::Lottery { stride } => {
                parts.resize(values.len(), [R::ZERO; 2]);
                kernels::slopes(values, stride as usize, parts);
                kernels::gather_lotteries(
                    rewards,
                    discount,
                    targets,
                    weights,
                    parts,
                    action_values,
                );
            }
            Layout::Weighted { degree } => {
                let missing = R::from_f64(f64::NAN);
                let entries = action_values.iter_mut().zip(rewards);
                let laws = targets
                    .chunks_exact(degree)
                    .zip(weights.chunks_exact(degree));
                for ((action_value, reward), (targets, weights)) in entries.zip(laws) {
                    let mut expected = R::ZERO;
                    for (target, weight) in targets.iter().zip(weights) {
                        let value = values.get(*target as usize).copied().unwrap_or(missing);
                        expected += *weight * value;
                    }
                    *action_value = *reward + discount * expected;
                }
            }
        }
    }
}

/// Room that the kernels need between moves and noise; memory once taken is kept.
#[derive(Clone, Debug, Default)]
pub struct Room<R> {
    /// Laws or values of the targets.
    held: Vec<R>,
    /// What lotteries need of each target.
    parts: Vec<[R; 2]>,
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
