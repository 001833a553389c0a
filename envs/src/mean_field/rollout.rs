//! The record of a population's paths.

use rayon::prelude::*;

use crate::EnvError;

use super::game::{MeanFieldGame, Moment};
use super::kernels;
use super::noise_paths::NoisePaths;
use super::real::Real;

/// What both simulators write: populations, observations and mean rewards on E common-noise paths, time first.
///
/// A rollout whose time is t is also the state of a simulation at t: a step is a function of it and of the policy (and, with sampled
/// individuals, of the individuals and a key). All memory is taken at the start.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout<R = f32> {
    noise: NoisePaths,
    time: usize,
    states: usize,
    actions: usize,
    observation_dim: usize,
    /// `[T + 1, E, S]`.
    mu: Vec<R>,
    /// `[T + 1, E, observation dimension]`, in their own units.
    observations: Vec<f64>,
    /// `[T + 1, E, observation dimension]`, as networks see them.
    inputs: Vec<R>,
    /// `[T, E]`.
    rewards: Vec<f64>,
}

/// One step of neighbouring paths: what it reads of time t and what it writes of time t + 1.
pub(crate) struct StepRows<'a, R> {
    noise: &'a NoisePaths,
    time: usize,
    /// Index of the first of these paths.
    first: usize,
    states: usize,
    width: usize,
    /// `[paths, S]` and `[paths, observation dimension]`.
    mu: &'a [R],
    observations: &'a [f64],
    next_mu: &'a mut [R],
    next_observations: &'a mut [f64],
    next_inputs: &'a mut [R],
    /// `[paths]`.
    rewards: &'a mut [f64],
}

/// One step of one path.
pub(crate) struct PathStep<'a, R> {
    pub path: usize,
    pub now: Moment<'a, R>,
    pub next_noise: &'a [f64],
    pub mu: &'a mut [R],
    pub observation: &'a mut [f64],
    pub input: &'a mut [R],
    pub reward: &'a mut f64,
}

impl<'a, R: Real> StepRows<'a, R> {
    /// The paths one by one.
    pub fn paths(self) -> impl Iterator<Item = PathStep<'a, R>> {
        let (noise, time, first) = (self.noise, self.time, self.first);
        self.mu
            .chunks_exact(self.states)
            .zip(self.observations.chunks_exact(self.width))
            .zip(self.next_mu.chunks_exact_mut(self.states))
            .zip(self.next_observations.chunks_exact_mut(self.width))
            .zip(self.next_inputs.chunks_exact_mut(self.width))
            .zip(self.rewards)
            .enumerate()
            .map(
                move |(member, (((((mu, now), next_mu), observation), input), reward))| {
                    let path = first + member;
                    PathStep {
                        path,
                        now: Moment {
                            time,
                            noise: noise.at(time, path),
                            mu,
                            observation: now,
                        },
                        next_noise: noise.at(time + 1, path),
                        mu: next_mu,
                        observation,
                        input,
                        reward,
                    }
                },
            )
    }

    /// Groups of `group` neighbouring paths (the last may be smaller), for different threads.
    pub fn groups(self, group: usize) -> impl IndexedParallelIterator<Item = StepRows<'a, R>> {
        let (noise, time, first) = (self.noise, self.time, self.first);
        let (states, width) = (self.states, self.width);
        self.mu
            .par_chunks(group * states)
            .zip(self.observations.par_chunks(group * width))
            .zip(self.next_mu.par_chunks_mut(group * states))
            .zip(self.next_observations.par_chunks_mut(group * width))
            .zip(self.next_inputs.par_chunks_mut(group * width))
            .zip(self.rewards.par_chunks_mut(group))
            .enumerate()
            .map(
                move |(index, (((((mu, now), next_mu), next), inputs), rewards))| StepRows {
                    noise,
                    time,
                    first: first + index * group,
                    states,
                    width,
                    mu,
                    observations: now,
                    next_mu,
                    next_observations: next,
                    next_inputs: inputs,
                    rewards,
                },
            )
    }
}

/// Everything that is recorded of one path, by time.
pub(crate) struct PathRows<'a, R> {
    pub path: usize,
    pub mu: Vec<&'a mut [R]>,
    pub observations: Vec<&'a mut [f64]>,
    pub inputs: Vec<&'a mut [R]>,
    pub rewards: Vec<&'a mut [f64]>,
}

/// The rows of every path of an array `[times, E, width]`, as E lists by time.
pub(crate) fn rows_by_path<T>(values: &mut [T], paths: usize, width: usize) -> Vec<Vec<&mut [T]>> {
    let times = values.len() / (paths * width);
    let mut lists: Vec<Vec<&mut [T]>> = (0..paths).map(|_| Vec::with_capacity(times)).collect();
    for (index, row) in values.chunks_exact_mut(width).enumerate() {
        lists[index % paths].push(row);
    }
    lists
}

impl<R: Real> Rollout<R> {
    /// A rollout at time 0 with the game's initial laws.
    pub(crate) fn start<G: MeanFieldGame<R> + ?Sized>(
        game: &G,
        noise: NoisePaths,
    ) -> Result<Self, EnvError> {
        let spec = game.spec();
        if (noise.horizon(), noise.dim()) != (spec.horizon, spec.noise_dim()) {
            let message = format!(
                "noise paths of {} steps and {} entries, expected {} and {}",
                noise.horizon(),
                noise.dim(),
                spec.horizon,
                spec.noise_dim()
            );
            return Err(EnvError::game(&spec.name, message));
        }
        let (paths, times) = (noise.paths(), spec.horizon + 1);
        let width = spec.observation_dim();
        let mut rollout = Self {
            time: 0,
            states: spec.states,
            actions: spec.actions(),
            observation_dim: width,
            mu: vec![R::ZERO; times * paths * spec.states],
            observations: vec![0.0; times * paths * width],
            inputs: vec![R::ZERO; times * paths * width],
            rewards: vec![0.0; spec.horizon * paths],
            noise,
        };
        for path in 0..paths {
            let z = rollout.noise.at(0, path);
            let mu = &mut rollout.mu[path * spec.states..][..spec.states];
            game.initial_population(z, mu);
            let mass = kernels::sum(mu);
            if (mass - 1.0).abs() > super::transitions::MASS_TOLERANCE {
                let message = format!("initial law of path {path} has mass {mass}, expected 1");
                return Err(EnvError::game(&spec.name, message));
            }
        }
        rollout.observe(game);
        Ok(rollout)
    }

    /// Writes the observations of the current time from its populations.
    pub(crate) fn observe<G: MeanFieldGame<R> + ?Sized>(&mut self, game: &G) {
        let width = self.observation_dim;
        for path in 0..self.paths() {
            let row = self.time * self.paths() + path;
            let mu = &self.mu[row * self.states..][..self.states];
            let observation = &mut self.observations[row * width..][..width];
            game.observe(self.time, self.noise.at(self.time, path), mu, observation);
            game.normalise(observation, &mut self.inputs[row * width..][..width]);
        }
    }

    /// Number E of paths.
    pub fn paths(&self) -> usize {
        self.noise.paths()
    }

    /// Current time t, the number of steps that are recorded.
    pub fn time(&self) -> usize {
        self.time
    }

    /// Number T of steps of the episode.
    pub fn horizon(&self) -> usize {
        self.noise.horizon()
    }

    /// Whether the episode is over.
    pub fn done(&self) -> bool {
        self.time == self.horizon()
    }

    /// Number S of individual states.
    pub fn states(&self) -> usize {
        self.states
    }

    /// Number A of actions.
    pub fn actions(&self) -> usize {
        self.actions
    }

    /// The common-noise paths and their weights.
    pub fn noise(&self) -> &NoisePaths {
        &self.noise
    }

    /// Population laws of all paths at one time, `[E, S]`.
    pub fn mu(&self, time: usize) -> &[R] {
        let row = self.paths() * self.states;
        &self.mu[time * row..][..row]
    }

    /// Public observations of all paths at one time in their own units, `[E, observation dimension]`.
    pub fn observations(&self, time: usize) -> &[f64] {
        let row = self.paths() * self.observation_dim;
        &self.observations[time * row..][..row]
    }

    /// Public observations of all paths at one time as networks see them, `[E, observation dimension]`.
    pub fn inputs(&self, time: usize) -> &[R] {
        let row = self.paths() * self.observation_dim;
        &self.inputs[time * row..][..row]
    }

    /// Mean rewards of the populations in one step, Σ_s μ_t(s) Σ_a π_t(a|s) r_t(s, a), or the mean over sampled individuals; `[E]`.
    pub fn rewards(&self, time: usize) -> &[f64] {
        &self.rewards[time * self.paths()..][..self.paths()]
    }

    /// The aggregate at one time of one path.
    pub fn moment(&self, time: usize, path: usize) -> Moment<'_, R> {
        let row = time * self.paths() + path;
        Moment {
            time,
            noise: self.noise.at(time, path),
            mu: &self.mu[row * self.states..][..self.states],
            observation: &self.observations[row * self.observation_dim..][..self.observation_dim],
        }
    }

    /// The current step of all paths.
    pub(crate) fn step_rows(&mut self) -> StepRows<'_, R> {
        let (paths, time) = (self.noise.paths(), self.time);
        let (row, width) = (paths * self.states, paths * self.observation_dim);
        let (mu, next_mu) = self.mu.split_at_mut((time + 1) * row);
        let (observations, next) = self.observations.split_at_mut((time + 1) * width);
        StepRows {
            noise: &self.noise,
            time,
            first: 0,
            states: self.states,
            width: self.observation_dim,
            mu: &mu[time * row..],
            observations: &observations[time * width..],
            next_mu: &mut next_mu[..row],
            next_observations: &mut next[..width],
            next_inputs: &mut self.inputs[(time + 1) * width..][..width],
            rewards: &mut self.rewards[time * paths..][..paths],
        }
    }

    /// The populations of the current time, `[E, S]`, to be replaced before anything is observed.
    pub(crate) fn current_mu_mut(&mut self) -> &mut [R] {
        let row = self.noise.paths() * self.states;
        &mut self.mu[self.time * row..][..row]
    }

    /// All times of every path.
    pub(crate) fn paths_mut(&mut self) -> (&NoisePaths, Vec<PathRows<'_, R>>) {
        let (paths, width) = (self.noise.paths(), self.observation_dim);
        let rows = rows_by_path(&mut self.mu, paths, self.states)
            .into_iter()
            .zip(rows_by_path(&mut self.observations, paths, width))
            .zip(rows_by_path(&mut self.inputs, paths, width))
            .zip(rows_by_path(&mut self.rewards, paths, 1))
            .enumerate()
            .map(|(path, (((mu, observations), inputs), rewards))| PathRows {
                path,
                mu,
                observations,
                inputs,
                rewards,
            })
            .collect();
        (&self.noise, rows)
    }

    /// Sets the current time.
    pub(crate) fn set_time(&mut self, time: usize) {
        self.time = time;
    }
}
