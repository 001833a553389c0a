//! Tabular equilibrium solvers for games without common noise: an independent check of everything that learns.

use crate::EnvError;

use super::backward::action_values;
use super::game::MeanFieldGame;
use super::noise_paths::NoisePaths;
use super::policies::Policies;
use super::push_forward::PushForward;
use super::real::Real;
use super::rollout::Rollout;
use super::solve::{Information, best_response, exploitability};

/// A policy by time, and how its exploitability fell.
#[derive(Clone, Debug, PartialEq)]
pub struct TabularSolution<R = f64> {
    /// π_t(a|s), `[T, S, A]`.
    pub policy: Vec<R>,
    /// Exploitability of the policy before the first and after every iteration.
    pub exploitability: Vec<f64>,
}

/// Fictitious play from the uniform policy: each iteration answers the average population with a best response and averages that in.
///
/// After n iterations μ̄ and π̄ are those of a population of which every iteration's best response makes up one part in n:
/// π̄(a|s) = Σ_i μ_i(s) π_i(a|s) / Σ_i μ_i(s), the uniform policy counting as the first (Perrin et al., "Fictitious Play for Mean Field
/// Games", arXiv 2007.03458). Best responses are to be unique for π̄ to settle; its exploitability falls like 1/n in monotone games.
///
/// # Errors
/// [`EnvError::Game`] if the game has common noise or is not valid.
pub fn fictitious_play<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    iterations: usize,
) -> Result<TabularSolution<R>, EnvError> {
    let actions = game.spec().actions();
    let mut solver = Solver::new(game)?;
    let mut policy = solver.uniform();
    let mut curve = Vec::with_capacity(iterations + 1);
    // Σ_i μ_i(s) π_i(a|s), `[T, S, A]`.
    let mut occupation = vec![R::ZERO; policy.len()];
    let mut rollout = solver.run(&policy)?;
    add_occupation(&mut occupation, &rollout, &policy);
    for _ in 0..iterations {
        curve.push(solver.gap(&rollout, &policy)?);
        let best = best_response(game, &rollout, Information::Clairvoyant)?.policy(actions);
        add_occupation(&mut occupation, &solver.run(&best)?, &best);
        let rows = policy
            .chunks_exact_mut(actions)
            .zip(occupation.chunks_exact(actions));
        for (row, parts) in rows {
            let mut total = R::ZERO;
            parts.iter().for_each(|part| total += *part);
            // Where nobody has ever been the policy makes no difference and stays.
            if total > R::ZERO {
                for (p, part) in row.iter_mut().zip(parts) {
                    *p = *part / total;
                }
            }
        }
        rollout = solver.run(&policy)?;
    }
    curve.push(solver.gap(&rollout, &policy)?);
    Ok(TabularSolution {
        policy,
        exploitability: curve,
    })
}

/// Online mirror descent from the uniform policy: y_t(s, a) += rate·Q_t(s, a) with the values of the current policy, π_t = softmax(y_t).
///
/// Perolat et al., "Scaling up Mean Field Games with Online Mirror Descent", arXiv 2103.00623. `rate` is per unit of value.
///
/// # Errors
/// [`EnvError::Game`] if the game has common noise or is not valid, or the rate is not above 0.
pub fn online_mirror_descent<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    iterations: usize,
    rate: f64,
) -> Result<TabularSolution<R>, EnvError> {
    let spec = game.spec();
    if rate <= 0.0 || !rate.is_finite() {
        let message = format!("rate = {rate}, expected a number above 0");
        return Err(EnvError::game(&spec.name, message));
    }
    let actions = spec.actions();
    let mut solver = Solver::new(game)?;
    let mut policy = solver.uniform();
    let mut curve = Vec::with_capacity(iterations + 1);
    let mut scores = vec![0.0; policy.len()];
    let mut values = vec![R::ZERO; policy.len()];
    let mut rollout = solver.run(&policy)?;
    for _ in 0..iterations {
        curve.push(solver.gap(&rollout, &policy)?);
        let policies = Policies::from_array(spec, 1, &policy)?;
        action_values(game, &rollout, &policies, &mut values)?;
        for (score, value) in scores.iter_mut().zip(&values) {
            *score += rate * value.to_f64();
        }
        let rows = policy
            .chunks_exact_mut(actions)
            .zip(scores.chunks_exact(actions));
        for (row, scores) in rows {
            let highest = scores.iter().fold(f64::MIN, |m, score| m.max(*score));
            let total: f64 = scores.iter().map(|score| (score - highest).exp()).sum();
            for (p, score) in row.iter_mut().zip(scores) {
                *p = R::from_f64((score - highest).exp() / total);
            }
        }
        rollout = solver.run(&policy)?;
    }
    curve.push(solver.gap(&rollout, &policy)?);
    Ok(TabularSolution {
        policy,
        exploitability: curve,
    })
}

/// occupation(t, s, a) += μ_t(s) π_t(a|s).
fn add_occupation<R: Real>(occupation: &mut [R], rollout: &Rollout<R>, policy: &[R]) {
    let mu = (0..rollout.horizon()).flat_map(|time| rollout.mu(time));
    let rows = occupation
        .chunks_exact_mut(rollout.actions())
        .zip(policy.chunks_exact(rollout.actions()));
    for ((parts, row), mass) in rows.zip(mu) {
        for (part, p) in parts.iter_mut().zip(row) {
            *part += *mass * *p;
        }
    }
}

/// A game's only path.
struct Solver<'g, G: ?Sized, R> {
    game: &'g G,
    simulator: PushForward<'g, G, R>,
    noise: NoisePaths,
}

impl<'g, R: Real, G: MeanFieldGame<R> + ?Sized> Solver<'g, G, R> {
    fn new(game: &'g G) -> Result<Self, EnvError> {
        let spec = game.spec();
        let simulator = PushForward::new(game)?;
        match NoisePaths::complete(game) {
            Some(noise) if noise.paths() == 1 => Ok(Self {
                game,
                simulator,
                noise,
            }),
            _ => {
                let message = "the game has common noise, expected a deterministic one (common_noise = false)";
                Err(EnvError::game(&spec.name, message.to_owned()))
            }
        }
    }

    /// The uniform policy at all times, `[T, S, A]`.
    fn uniform(&self) -> Vec<R> {
        let spec = self.game.spec();
        let entries = spec.horizon * spec.states * spec.actions();
        vec![R::from_f64(1.0 / spec.actions() as f64); entries]
    }

    fn run(&mut self, policy: &[R]) -> Result<Rollout<R>, EnvError> {
        let policies = Policies::from_array(self.game.spec(), 1, policy)?;
        self.simulator.run(self.noise.clone(), &policies)
    }

    fn gap(&self, rollout: &Rollout<R>, policy: &[R]) -> Result<f64, EnvError> {
        let policies = Policies::from_array(self.game.spec(), 1, policy)?;
        Ok(exploitability(self.game, rollout, &policies, Information::Clairvoyant)?.mean)
    }
}
