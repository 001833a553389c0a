//! The sampled simulator: M individuals on every path, whose histogram is the population.

use rand::Rng;
use rayon::prelude::*;

use crate::{EnvError, StreamRng};

use super::game::MeanFieldGame;
use super::noise_paths::{NoisePaths, path_key};
use super::policies::{check_step, of_path};
use super::push_forward::{Scratch, check_game, observe_step};
use super::real::Real;
use super::rollout::{PathStep, Rollout};
use super::transitions::choose;

/// M individuals on each of E paths, with the rollout that they make.
#[derive(Clone, Debug, PartialEq)]
pub struct Crowd<R = f32> {
    rollout: Rollout<R>,
    /// `[E, M]`.
    states: Vec<u32>,
    actions: Vec<u32>,
    rewards: Vec<R>,
}

impl<R: Real> Crowd<R> {
    /// Histograms, observations and mean rewards so far; populations are the individuals' histograms.
    pub fn rollout(&self) -> &Rollout<R> {
        &self.rollout
    }

    /// The rollout alone.
    pub fn into_rollout(self) -> Rollout<R> {
        self.rollout
    }

    /// Every individual's state now, `[E, M]`.
    pub fn states(&self) -> &[u32] {
        &self.states
    }

    /// Every individual's action in the last step, `[E, M]`; zeros before the first.
    pub fn actions(&self) -> &[u32] {
        &self.actions
    }

    /// Every individual's reward of the last step, `[E, M]`; zeros before the first.
    pub fn rewards(&self) -> &[R] {
        &self.rewards
    }
}

/// A finite population: M individuals draw their actions and moves one by one, and feel their own histogram.
///
/// It tends to [`PushForward`](super::PushForward) as M grows, with an error in proportion to 1/sqrt(M). Draws are a function of the key, the
/// path and the time, whatever the number of threads.
pub struct Sampled<'g, G: ?Sized, R = f32> {
    game: &'g G,
    individuals: usize,
    key: u64,
    /// One for each group of paths that a thread takes.
    scratch: Vec<Scratch<R>>,
}

impl<'g, R: Real, G: MeanFieldGame<R> + ?Sized> Sampled<'g, G, R> {
    /// A simulator of `individuals` individuals on every path, all of whose draws come from `key`.
    ///
    /// # Errors
    /// As [`check_game`], or [`EnvError::Game`] if `individuals` is 0 or above 2^24 (counts up to there are exact in single precision).
    pub fn new(game: &'g G, individuals: usize, key: u64) -> Result<Self, EnvError> {
        check_game(game)?;
        if !(1..=1 << 24).contains(&individuals) {
            let message = format!("{individuals} individuals, expected 1 to 2^24");
            return Err(EnvError::game(&game.spec().name, message));
        }
        Ok(Self {
            game,
            individuals,
            key,
            scratch: Vec::new(),
        })
    }

    /// Draws every individual's first state from μ_0.
    ///
    /// # Errors
    /// As [`PushForward::start`](super::PushForward::start).
    pub fn start(&self, noise: NoisePaths) -> Result<Crowd<R>, EnvError> {
        let mut rollout = Rollout::start(self.game, noise)?;
        let (paths, states) = (rollout.paths(), rollout.states());
        let mut crowd = vec![0; paths * self.individuals];
        let rows = rollout.current_mu_mut().par_chunks_mut(states);
        rows.zip(crowd.par_chunks_mut(self.individuals))
            .enumerate()
            .for_each(|(path, (mu, crowd))| {
                let mut rng = StreamRng::new(path_key(self.key, path), "first states", 0);
                let mut total = 0.0;
                let sums: Vec<f64> = mu
                    .iter()
                    .map(|mass| {
                        total += mass.to_f64();
                        total
                    })
                    .collect();
                // A state with mass ends its part of the sums; rounding may leave a draw above the total.
                let last = mu.iter().rposition(|mass| *mass > R::ZERO).unwrap_or(0);
                for state in crowd.iter_mut() {
                    let uniform = rng.random::<f64>();
                    *state = sums.partition_point(|sum| *sum <= uniform).min(last) as u32;
                }
                histogram(crowd, mu);
            });
        rollout.observe(self.game);
        Ok(Crowd {
            rollout,
            actions: vec![0; crowd.len()],
            rewards: vec![R::ZERO; crowd.len()],
            states: crowd,
        })
    }

    /// Advances every individual by one step under π_t: `policy` is `[S, A]` for all paths, or `[E, S, A]`.
    ///
    /// # Errors
    /// [`EnvError::Game`] if the episode is over, the policy has another size, or an individual leaves the state space; in the last case the
    /// crowd is not to be used any more.
    pub fn step(&mut self, crowd: &mut Crowd<R>, policy: &[R]) -> Result<(), EnvError> {
        let (game, key, individuals) = (self.game, self.key, self.individuals);
        let spec = game.spec();
        let (paths, time) = (crowd.rollout.paths(), crowd.rollout.time());
        if crowd.rollout.done() {
            let message = format!("a step at time {time}, expected less than T = {time}");
            return Err(EnvError::game(&spec.name, message));
        }
        check_step(spec, paths, policy.len())
            .map_err(|message| EnvError::game(&spec.name, message))?;
        if crowd.states.len() != paths * individuals {
            let message = format!(
                "a crowd of {} individuals, expected {individuals}",
                crowd.states.len() / paths
            );
            return Err(EnvError::game(&spec.name, message));
        }
        let pairs = spec.states * spec.actions();
        let threads = rayon::current_num_threads().min(paths);
        while self.scratch.len() < threads {
            self.scratch.push(Scratch::new(pairs));
        }
        let group = paths.div_ceil(threads);
        let members = group * individuals;
        crowd
            .rollout
            .step_rows()
            .groups(group)
            .zip(crowd.states.par_chunks_mut(members))
            .zip(crowd.actions.par_chunks_mut(members))
            .zip(crowd.rewards.par_chunks_mut(members))
            .zip(&mut self.scratch)
            .try_for_each(|((((rows, states), actions), rewards), scratch)| {
                let people = states
                    .chunks_exact_mut(individuals)
                    .zip(actions.chunks_exact_mut(individuals))
                    .zip(rewards.chunks_exact_mut(individuals));
                rows.paths()
                    .zip(people)
                    .try_for_each(|(step, ((states, actions), rewards))| {
                        let policy = of_path(policy, step.path, pairs);
                        let people = People {
                            states,
                            actions,
                            rewards,
                        };
                        step_path(game, key, policy, scratch, step, people)
                    })
            })?;
        crowd.rollout.set_time(time + 1);
        Ok(())
    }

    /// A whole episode under a policy that sees the rollout so far: `policy(rollout, table)` writes π_t for t = `rollout.time()`, `[E, S, A]`.
    ///
    /// Also gives all policies, `[T, E, S, A]`.
    ///
    /// # Errors
    /// As [`Sampled::start`] and [`Sampled::step`], or what `policy` says.
    pub fn rollout<E: From<EnvError>>(
        &mut self,
        noise: NoisePaths,
        mut policy: impl FnMut(&Rollout<R>, &mut [R]) -> Result<(), E>,
    ) -> Result<(Crowd<R>, Vec<R>), E> {
        let mut crowd = self.start(noise)?;
        let rollout = &crowd.rollout;
        let step = rollout.paths() * rollout.states() * rollout.actions();
        let mut policies = vec![R::ZERO; rollout.horizon() * step];
        for table in policies.chunks_exact_mut(step) {
            policy(&crowd.rollout, table)?;
            self.step(&mut crowd, table)?;
        }
        Ok((crowd, policies))
    }
}

/// The individuals of one path.
struct People<'a, R> {
    states: &'a mut [u32],
    actions: &'a mut [u32],
    rewards: &'a mut [R],
}

fn step_path<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    key: u64,
    policy: &[R],
    scratch: &mut Scratch<R>,
    step: PathStep<'_, R>,
    people: People<'_, R>,
) -> Result<(), EnvError> {
    let states = step.mu.len();
    let actions = policy.len() / states;
    let time = step.now.time;
    let mut rng = StreamRng::new(path_key(key, step.path), "individuals", time as u64);
    let law = game.transitions(&step.now, &mut scratch.moves);
    for (state, action) in people.states.iter_mut().zip(&mut *people.actions) {
        let row = *state as usize * actions;
        let choices = policy[row..row + actions].iter().copied().enumerate();
        let pair = row + choose(choices, rng.random()).unwrap_or(0);
        // The reward needs the next population: until then the pair stands in for the action.
        *action = pair as u32;
        let Some(next) = law.draw(pair, states, &mut rng) else {
            let message = format!(
                "step {time}, path {}: state {state}, action {} leads outside 0 to {}",
                step.path,
                pair - row,
                states - 1
            );
            return Err(EnvError::game(&game.spec().name, message));
        };
        *state = next as u32;
    }
    histogram(people.states, step.mu);
    let mean = observe_step(game, step, &mut scratch.rewards);
    let mut total = 0.0;
    for (reward, action) in people.rewards.iter_mut().zip(&mut *people.actions) {
        *reward = scratch.rewards[*action as usize];
        *action %= actions as u32;
        total += reward.to_f64();
    }
    *mean = total / people.rewards.len() as f64;
    Ok(())
}

/// Shares of the individuals in each state.
fn histogram<R: Real>(people: &[u32], mu: &mut [R]) {
    mu.fill(R::ZERO);
    people
        .iter()
        .for_each(|state| mu[*state as usize] += R::ONE);
    let share = R::from_f64(1.0 / people.len() as f64);
    mu.iter_mut().for_each(|mass| *mass = *mass * share);
}
