//! Backward recursions along recorded paths: policy values, best responses and the structural gradient.

use rayon::prelude::*;

use crate::EnvError;

use super::game::MeanFieldGame;
use super::kernels;
use super::policies::Policies;
use super::push_forward::{Scratch, fill_rewards};
use super::real::Real;
use super::rollout::{Rollout, rows_by_path};

/// What is computed of one path on the way back.
pub(crate) struct PathValues<R> {
    /// V_t of the policy, `[S]`.
    pub policy_values: Vec<R>,
    /// B_t of the best response, `[S]`.
    pub best_values: Vec<R>,
    /// Q_t of the best response, `[S, A]`.
    best_action_values: Vec<R>,
    /// Actions of the best response, one list for each time.
    pub best_actions: Vec<Vec<u32>>,
}

/// Paths that an individual cannot tell apart, by time: equal numbers are one information set.
pub(crate) struct InformationSets {
    /// `[T][E]`.
    pub set_of: Vec<Vec<usize>>,
}

/// A backward pass: which recursions run.
pub(crate) struct Backward<'a, G: ?Sized, R> {
    pub game: &'a G,
    pub rollout: &'a Rollout<R>,
    /// Policies to evaluate.
    pub policies: Option<&'a Policies<'a, R>>,
    /// Whether the best response runs, and whether its actions are kept.
    pub best: bool,
    pub keep_actions: bool,
    /// What the best response can tell apart; everything if left out.
    pub sets: Option<&'a InformationSets>,
}

/// Checks that a rollout is complete and the game's own, and that policies fit it.
pub(crate) fn check_rollout<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    policies: Option<&Policies<'_, R>>,
) -> Result<(), EnvError> {
    let spec = game.spec();
    let got = (rollout.states(), rollout.actions(), rollout.time());
    let expected = (spec.states, spec.actions(), spec.horizon);
    if got != expected {
        let message = format!(
            "a rollout of (states, actions, steps so far) = {got:?}, expected {expected:?}"
        );
        return Err(EnvError::game(&spec.name, message));
    }
    match policies {
        Some(policies) if policies.paths() != rollout.paths() => {
            let message = format!(
                "policies of {} paths, expected {}",
                policies.paths(),
                rollout.paths()
            );
            Err(EnvError::game(&spec.name, message))
        }
        _ => Ok(()),
    }
}

impl<R: Real, G: MeanFieldGame<R> + ?Sized> Backward<'_, G, R> {
    /// Runs all paths; groups of paths that share an information set at the start stay on one thread.
    pub fn run(&self) -> Vec<PathValues<R>> {
        let paths = self.rollout.paths();
        let mut groups: Vec<Vec<usize>> = Vec::new();
        match self.sets {
            None => groups.extend((0..paths).map(|path| vec![path])),
            Some(sets) => {
                let first = &sets.set_of[0];
                let count = first.iter().max().map_or(0, |last| last + 1);
                groups.resize(count, Vec::new());
                for (path, set) in first.iter().enumerate() {
                    groups[*set].push(path);
                }
            }
        }
        let finished: Vec<Vec<PathValues<R>>> = groups
            .par_iter()
            .with_min_len(groups.len().div_ceil(rayon::current_num_threads()))
            .map_init(
                || self.room(),
                |room, group| self.run_group(group, room, |_, _, _| {}),
            )
            .collect();
        let mut by_path: Vec<Option<PathValues<R>>> = (0..paths).map(|_| None).collect();
        for (path, values) in groups.iter().flatten().zip(finished.into_iter().flatten()) {
            by_path[*path] = Some(values);
        }
        by_path.into_iter().flatten().collect()
    }

    fn room(&self) -> (Scratch<R>, Vec<R>) {
        let pairs = self.rollout.states() * self.rollout.actions();
        (Scratch::new(pairs), vec![R::ZERO; pairs])
    }

    /// Runs a few paths together, backward in time; `each(time, Q_t, V_t)` sees the policy's values of every step, path by path.
    fn run_group(
        &self,
        group: &[usize],
        (scratch, action_values): &mut (Scratch<R>, Vec<R>),
        mut each: impl FnMut(usize, &[R], &[R]),
    ) -> Vec<PathValues<R>> {
        let (states, horizon) = (self.rollout.states(), self.rollout.horizon());
        let discount = R::from_f64(self.game.spec().discount);
        let pairs = action_values.len();
        let mut values: Vec<PathValues<R>> = group
            .iter()
            .map(|_| PathValues {
                policy_values: vec![R::ZERO; states],
                best_values: vec![R::ZERO; states],
                best_action_values: vec![R::ZERO; if self.best { pairs } else { 0 }],
                best_actions: Vec::new(),
            })
            .collect();
        for time in (0..horizon).rev() {
            for (path, values) in group.iter().zip(&mut values) {
                let now = self.rollout.moment(time, *path);
                let next = self.rollout.moment(time + 1, *path);
                let Scratch {
                    moves,
                    room,
                    rewards,
                    ..
                } = &mut *scratch;
                fill_rewards(self.game, &now, &next, rewards);
                let law = self.game.transitions(&now, moves);
                if let Some(policies) = self.policies {
                    let old = &values.policy_values;
                    law.action_values(rewards, discount, old, room, action_values);
                    let policy = policies.at(time, *path);
                    kernels::average(action_values, policy, &mut values.policy_values);
                    each(time, action_values, &values.policy_values);
                }
                if self.best {
                    let new = &mut values.best_action_values;
                    law.action_values(rewards, discount, &values.best_values, room, new);
                }
            }
            if self.best {
                self.improve(time, group, &mut values);
            }
        }
        if self.keep_actions {
            values
                .iter_mut()
                .for_each(|path| path.best_actions.reverse());
        }
        values
    }

    /// B_t(s) = Q_t(s, a*) with a* the best action on average over the paths of an information set.
    fn improve(&self, time: usize, group: &[usize], values: &mut [PathValues<R>]) {
        let (states, actions) = (self.rollout.states(), self.rollout.actions());
        let weights = self.rollout.noise().weights();
        for first in 0..group.len() {
            // Members of the set of `first`, if it is the first of its set.
            let set_of = |member: usize| match self.sets {
                None => member,
                Some(sets) => sets.set_of[time][group[member]],
            };
            let set = set_of(first);
            if (0..first).any(|earlier| set_of(earlier) == set) {
                continue;
            }
            let alone = (first + 1..group.len()).all(|later| set_of(later) != set);
            if alone && !self.keep_actions {
                let path = &mut values[first];
                kernels::maximum(&path.best_action_values, &mut path.best_values);
                continue;
            }
            let members: Vec<usize> = (first..group.len())
                .filter(|member| set_of(*member) == set)
                .collect();
            let mut best = vec![0_u32; states];
            for (s, best) in best.iter_mut().enumerate() {
                let mean = |a: usize| -> f64 {
                    let terms = members.iter().map(|member| {
                        let value = values[*member].best_action_values[s * actions + a].to_f64();
                        // Alone, the value itself: a weight could be 0.
                        if alone {
                            value
                        } else {
                            weights[group[*member]] * value
                        }
                    });
                    terms.sum()
                };
                let mut highest = mean(0);
                for a in 1..actions {
                    let value = mean(a);
                    if value > highest {
                        (highest, *best) = (value, a as u32);
                    }
                }
            }
            for member in &members {
                let path = &mut values[*member];
                for (s, a) in best.iter().enumerate() {
                    path.best_values[s] = path.best_action_values[s * actions + *a as usize];
                }
                if self.keep_actions {
                    path.best_actions.push(best.clone());
                }
            }
        }
    }
}

/// What is subtracted from Q_t in the structural gradient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Baseline {
    /// Nothing.
    #[default]
    None,
    /// V_t(s): changes no gradient with respect to parameters whose probabilities sum to 1, but gives smaller numbers.
    Value,
}

/// The structural gradient ∂J/∂π_t(a|s) = w_e γ^t μ_t(s) (Q_t(s, a) - baseline) of J = Σ_e w_e Σ_s μ_0(s) V_0(s), into `gradient`,
/// `[T, E, S, A]`; also gives each path's Σ_s μ_0(s) V_0(s), `[E]`.
///
/// Q_t = r_t + γ E_t V_{t+1}, V_t = Σ_a π_t Q_t, V_T = 0, with μ, P and r as recorded: an individual is too small to move the population, so
/// they are constants ("Structural Reinforcement Learning for Heterogeneous Agent Macroeconomics", arXiv 2512.18892; with a recurrent policy,
/// arXiv 2602.20141). The gradient with respect to parameters is that of Σ π·gradient with `gradient` held fixed. Where paths share one
/// policy table, their gradients are to be added up.
///
/// # Errors
/// [`EnvError::Game`] if the rollout is not finished or not the game's, or the policies or the room for results have another size.
pub fn structural_gradient<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    policies: &Policies<'_, R>,
    baseline: Baseline,
    gradient: &mut [R],
) -> Result<Vec<f64>, EnvError> {
    let spec = game.spec();
    each_step(
        game,
        rollout,
        policies,
        gradient,
        |time, path, out, q, values| {
            let scale = rollout.noise().weights()[path] * spec.discount.powi(time as i32);
            let scale = R::from_f64(scale);
            let mu = rollout.moment(time, path).mu;
            let actions = rollout.actions();
            let rows = out.chunks_exact_mut(actions).zip(q.chunks_exact(actions));
            for (((out, q), mass), value) in rows.zip(mu).zip(values) {
                let scale = scale * *mass;
                let base = match baseline {
                    Baseline::None => R::ZERO,
                    Baseline::Value => *value,
                };
                for (entry, q) in out.iter_mut().zip(q) {
                    *entry = scale * (*q - base);
                }
            }
        },
    )
}

/// Q_t(s, a) of the policies along each path into `action_values`, `[T, E, S, A]`; also gives each path's Σ_s μ_0(s) V_0(s), `[E]`.
///
/// # Errors
/// As [`structural_gradient`].
pub fn action_values<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    policies: &Policies<'_, R>,
    action_values: &mut [R],
) -> Result<Vec<f64>, EnvError> {
    each_step(game, rollout, policies, action_values, |_, _, out, q, _| {
        out.copy_from_slice(q);
    })
}

/// Runs the policies' recursion on all paths and lets `write(time, path, out_t, Q_t, V_t)` fill `out`, `[T, E, S, A]`, step by step.
fn each_step<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    rollout: &Rollout<R>,
    policies: &Policies<'_, R>,
    out: &mut [R],
    write: impl Fn(usize, usize, &mut [R], &[R], &[R]) + Sync,
) -> Result<Vec<f64>, EnvError> {
    check_rollout(game, rollout, Some(policies))?;
    let (paths, actions) = (rollout.paths(), rollout.actions());
    let pairs = rollout.states() * actions;
    if out.len() != rollout.horizon() * paths * pairs {
        let message = format!(
            "room for {} results, expected T x E x S x A = {}",
            out.len(),
            rollout.horizon() * paths * pairs
        );
        return Err(EnvError::game(&game.spec().name, message));
    }
    let pass = Backward {
        game,
        rollout,
        policies: Some(policies),
        best: false,
        keep_actions: false,
        sets: None,
    };
    Ok(rows_by_path(out, paths, pairs)
        .into_par_iter()
        .enumerate()
        .with_min_len(paths.div_ceil(rayon::current_num_threads()))
        .map_init(
            || pass.room(),
            |room, (path, mut rows)| {
                let values = pass.run_group(&[path], room, |time, action_values, values| {
                    write(time, path, &mut *rows[time], action_values, values);
                });
                start_value(rollout, path, &values[0].policy_values)
            },
        )
        .collect())
}

/// Σ_s μ_0(s) v(s).
pub(crate) fn start_value<R: Real>(rollout: &Rollout<R>, path: usize, values: &[R]) -> f64 {
    kernels::dot(rollout.moment(0, path).mu, values)
}
