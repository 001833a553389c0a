//! The exact simulator: tomorrow's population is today's, pushed through the policy.

use rayon::prelude::*;

use crate::EnvError;

use super::game::{MeanFieldGame, Moment};
use super::noise_paths::NoisePaths;
use super::policies::{Policies, check_step, of_path};
use super::real::{self, Real};
use super::rollout::{PathRows, Rollout};
use super::transitions::{MASS_TOLERANCE, Moves};

/// From this many products of a mass and a probability on, a step is worth waking other threads for.
const PARALLEL_WORK: usize = 1 << 16;

/// Room that one thread needs.
#[derive(Debug)]
pub(crate) struct Scratch<R> {
    pub moves: Moves<R>,
    pub held: Vec<R>,
    /// `[S, A]`.
    pub rewards: Vec<R>,
}

impl<R: Real> Scratch<R> {
    pub fn new(pairs: usize) -> Self {
        Self {
            moves: Moves::default(),
            held: Vec::new(),
            rewards: vec![R::ZERO; pairs],
        }
    }
}

/// Checks what the simulators and solvers rely on: sizes of at least one, γ in (0, 1], and transition laws at the start of a path.
///
/// Laws that only later populations reach are not seen here; stepping notices mass that goes missing.
///
/// # Errors
/// [`EnvError::Game`] with what was got and expected, for a law with its state and action.
pub fn check_game<R: Real, G: MeanFieldGame<R> + ?Sized>(game: &G) -> Result<(), EnvError> {
    let spec = game.spec();
    let wrong = |message: String| Err(EnvError::game(&spec.name, message));
    for (what, number) in [
        ("states", spec.states),
        ("actions", spec.actions()),
        ("horizon", spec.horizon),
        ("observation entries", spec.observation_dim()),
    ] {
        if number == 0 {
            return wrong(format!("{what} = 0, expected at least 1"));
        }
    }
    if !(spec.discount > 0.0 && spec.discount <= 1.0) {
        return wrong(format!(
            "discount = {}, expected 0 < discount <= 1",
            spec.discount
        ));
    }
    let noise = NoisePaths::sample(game, 1, 0)?;
    let rollout = Rollout::start(game, noise)?;
    let mut moves = Moves::default();
    let times = [0, spec.horizon / 2, spec.horizon - 1];
    for time in times {
        let now = Moment {
            time,
            noise: rollout.noise().at(time, 0),
            ..rollout.moment(0, 0)
        };
        let law = game.transitions(&now, &mut moves);
        law.check(spec.states, spec.actions())
            .map_err(|message| EnvError::game(&spec.name, format!("step {time}, {message}")))?;
    }
    Ok(())
}

/// The exact simulator of a game: μ_{t+1}(s') = Σ_{s,a} μ_t(s) π_t(a|s) P_t(s'|s, a) on E common-noise paths at once.
///
/// Given the paths and the policies it is deterministic, whatever the number of threads. Laws are renormalised in double precision at every
/// step. A step does not allocate after the first.
///
/// ```
/// use pushforward_envs::mean_field::{GameConfig, NoisePaths, PushForward};
/// let game = GameConfig::new("linear-quadratic", toml::Table::new())?.build::<f32>()?;
/// let mut simulator = PushForward::new(&*game)?;
/// let mut rollout = simulator.start(NoisePaths::sample(&*game, 8, 7)?)?;
/// let uniform = vec![1.0 / 7.0; 99 * 7];
/// while !rollout.done() {
///     // A policy may look at `rollout.inputs(t)` of all times up to now.
///     simulator.step(&mut rollout, &uniform)?;
/// }
/// assert_eq!(rollout.mu(30).len(), 8 * 99);
/// # Ok::<(), pushforward_envs::EnvError>(())
/// ```
#[derive(Debug)]
pub struct PushForward<'g, G: ?Sized, R = f32> {
    game: &'g G,
    /// One for each group of paths that a thread takes.
    scratch: Vec<Scratch<R>>,
}

impl<'g, R: Real, G: MeanFieldGame<R> + ?Sized> PushForward<'g, G, R> {
    /// A simulator of the game.
    ///
    /// # Errors
    /// As [`check_game`].
    pub fn new(game: &'g G) -> Result<Self, EnvError> {
        check_game(game)?;
        Ok(Self {
            game,
            scratch: Vec::new(),
        })
    }

    /// The game.
    pub fn game(&self) -> &'g G {
        self.game
    }

    /// A rollout at time 0 on the given common-noise paths.
    ///
    /// # Errors
    /// [`EnvError::Game`] if the paths are another game's, or the game's initial law has another mass than 1.
    pub fn start(&self, noise: NoisePaths) -> Result<Rollout<R>, EnvError> {
        Rollout::start(self.game, noise)
    }

    /// Advances all paths by one step under π_t: `policy` is `[S, A]` for all paths, or `[E, S, A]`.
    ///
    /// # Errors
    /// [`EnvError::Game`] if the episode is over, the policy has another size, or mass is lost or gained: rows of the policy or transition laws
    /// do not sum to 1. The rollout then stays at its time.
    pub fn step(&mut self, rollout: &mut Rollout<R>, policy: &[R]) -> Result<(), EnvError> {
        let game = self.game;
        let spec = game.spec();
        let (paths, time) = (rollout.paths(), rollout.time());
        if rollout.done() {
            let message = format!("a step at time {time}, expected less than T = {time}");
            return Err(EnvError::game(&spec.name, message));
        }
        check_step(spec, paths, policy.len())
            .map_err(|message| EnvError::game(&spec.name, message))?;
        let (states, width) = (spec.states, spec.observation_dim());
        let pairs = states * spec.actions();
        let group = self.group(paths, pairs);
        let parts = rollout.step_parts();
        let noise = parts.noise;
        let one_group = |(index, rows, scratch): (usize, GroupRows<'_, R>, &mut Scratch<R>)| {
            let members = rows.rewards.len();
            for member in 0..members {
                let path = index * group + member;
                let moment = Moment {
                    time,
                    noise: noise.at(time, path),
                    mu: &rows.mu[member * states..][..states],
                    observation: &rows.observations[member * width..][..width],
                };
                let out = StepMut {
                    mu: &mut rows.next_mu[member * states..][..states],
                    observation: &mut rows.next_observations[member * width..][..width],
                    input: &mut rows.next_inputs[member * width..][..width],
                    reward: &mut rows.rewards[member],
                };
                let policy = of_path(policy, path, pairs);
                step_path(
                    game,
                    &moment,
                    noise.at(time + 1, path),
                    policy,
                    scratch,
                    out,
                )
                .map_err(|message| mass_error(&spec.name, time, path, &message))?;
            }
            Ok(())
        };
        if group == paths {
            let rows = GroupRows {
                mu: parts.mu,
                observations: parts.observations,
                next_mu: parts.next_mu,
                next_observations: parts.next_observations,
                next_inputs: parts.next_inputs,
                rewards: parts.rewards,
            };
            one_group((0, rows, &mut self.scratch[0]))?;
        } else {
            parts
                .mu
                .par_chunks(group * states)
                .zip(parts.observations.par_chunks(group * width))
                .zip(parts.next_mu.par_chunks_mut(group * states))
                .zip(parts.next_observations.par_chunks_mut(group * width))
                .zip(parts.next_inputs.par_chunks_mut(group * width))
                .zip(parts.rewards.par_chunks_mut(group))
                .zip(&mut self.scratch)
                .enumerate()
                .try_for_each(
                    |(index, ((((((mu, o), next_mu), next_o), input), rewards), scratch))| {
                        let rows = GroupRows {
                            mu,
                            observations: o,
                            next_mu,
                            next_observations: next_o,
                            next_inputs: input,
                            rewards,
                        };
                        one_group((index, rows, scratch))
                    },
                )?;
        }
        rollout.set_time(time + 1);
        Ok(())
    }

    /// A whole episode under policies that are known beforehand; paths run side by side, so this is faster than stepping.
    ///
    /// # Errors
    /// As [`PushForward::start`] and [`PushForward::step`].
    pub fn run(
        &mut self,
        noise: NoisePaths,
        policies: &Policies<'_, R>,
    ) -> Result<Rollout<R>, EnvError> {
        let mut rollout = self.start(noise)?;
        self.rerun(&mut rollout, policies)?;
        Ok(rollout)
    }

    /// As [`PushForward::run`] on the noise paths and in the memory of an earlier rollout of the game.
    ///
    /// # Errors
    /// As [`PushForward::step`].
    pub fn rerun(
        &mut self,
        rollout: &mut Rollout<R>,
        policies: &Policies<'_, R>,
    ) -> Result<(), EnvError> {
        let game = self.game;
        let spec = game.spec();
        let paths = rollout.paths();
        if policies.paths() != paths {
            let message = format!("policies of {} paths, expected {paths}", policies.paths());
            return Err(EnvError::game(&spec.name, message));
        }
        let horizon = spec.horizon;
        let group = self.group(paths, horizon * spec.states * spec.actions());
        let (noise, mut rows) = rollout.paths_mut();
        let one_path = |path: usize, rows: &mut PathRows<'_, R>, scratch: &mut Scratch<R>| {
            for time in 0..horizon {
                let (mu, next_mu) = rows.mu.split_at_mut(time + 1);
                let (observations, next) = rows.observations.split_at_mut(time + 1);
                let moment = Moment {
                    time,
                    noise: noise.at(time, path),
                    mu: mu[time],
                    observation: observations[time],
                };
                let out = StepMut {
                    mu: next_mu[0],
                    observation: next[0],
                    input: rows.inputs[time + 1],
                    reward: &mut rows.rewards[time][0],
                };
                let policy = policies.at(time, path);
                step_path(
                    game,
                    &moment,
                    noise.at(time + 1, path),
                    policy,
                    scratch,
                    out,
                )
                .map_err(|message| mass_error(&spec.name, time, path, &message))?;
            }
            Ok(())
        };
        rows.par_chunks_mut(group)
            .zip(&mut self.scratch)
            .enumerate()
            .try_for_each(|(index, (rows, scratch))| {
                rows.iter_mut()
                    .enumerate()
                    .try_for_each(|(member, rows)| one_path(index * group + member, rows, scratch))
            })?;
        drop(rows);
        rollout.set_time(horizon);
        Ok(())
    }

    /// A whole episode under a policy that sees the rollout so far: `policy(rollout, table)` writes π_t for t = `rollout.time()`, `[E, S, A]`.
    ///
    /// Also gives all policies, `[T, E, S, A]`.
    ///
    /// # Errors
    /// As [`PushForward::start`] and [`PushForward::step`], or what `policy` says.
    pub fn rollout<E: From<EnvError>>(
        &mut self,
        noise: NoisePaths,
        mut policy: impl FnMut(&Rollout<R>, &mut [R]) -> Result<(), E>,
    ) -> Result<(Rollout<R>, Vec<R>), E> {
        let mut rollout = self.start(noise)?;
        let step = rollout.paths() * rollout.states() * rollout.actions();
        let mut policies = vec![R::ZERO; rollout.horizon() * step];
        for table in policies.chunks_exact_mut(step) {
            policy(&rollout, table)?;
            self.step(&mut rollout, table)?;
        }
        Ok((rollout, policies))
    }

    /// The number of paths that one thread takes, with scratch for each group of them.
    fn group(&mut self, paths: usize, work_per_path: usize) -> usize {
        let threads = if paths * work_per_path < PARALLEL_WORK {
            1
        } else {
            rayon::current_num_threads().min(paths)
        };
        let pairs = self.game.spec().states * self.game.spec().actions();
        while self.scratch.len() < threads {
            self.scratch.push(Scratch::new(pairs));
        }
        paths.div_ceil(threads)
    }
}

/// Rows of neighbouring paths in one step.
struct GroupRows<'a, R> {
    mu: &'a [R],
    observations: &'a [f64],
    next_mu: &'a mut [R],
    next_observations: &'a mut [f64],
    next_inputs: &'a mut [R],
    rewards: &'a mut [f64],
}

/// What a step writes of one path.
struct StepMut<'a, R> {
    mu: &'a mut [R],
    observation: &'a mut [f64],
    input: &'a mut [R],
    reward: &'a mut f64,
}

fn mass_error(name: &str, time: usize, path: usize, message: &str) -> EnvError {
    EnvError::game(name, format!("step {time}, path {path}: {message}"))
}

/// One path, one step.
fn step_path<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    now: &Moment<'_, R>,
    next_noise: &[f64],
    policy: &[R],
    scratch: &mut Scratch<R>,
    out: StepMut<'_, R>,
) -> Result<(), String> {
    let law = game.transitions(now, &mut scratch.moves);
    law.push(now.mu, policy, &mut scratch.held, out.mu);
    let mass = real::sum(out.mu);
    if (mass - 1.0).abs() > MASS_TOLERANCE || mass.is_nan() {
        return Err(format!(
            "the population has mass {mass} after the step, expected 1; do the rows of the policy and the transition laws sum to 1?"
        ));
    }
    let scale = R::from_f64(1.0 / mass);
    out.mu.iter_mut().for_each(|mass| *mass = *mass * scale);
    let time = now.time + 1;
    game.observe(time, next_noise, out.mu, out.observation);
    game.normalise(out.observation, out.input);
    let next = Moment {
        time,
        noise: next_noise,
        mu: out.mu,
        observation: out.observation,
    };
    fill_rewards(game, now, &next, &mut scratch.rewards);
    *out.reward = mean_reward(now.mu, policy, &scratch.rewards);
    Ok(())
}

/// r_t(s, a), with the terminal reward in the last step.
pub(crate) fn fill_rewards<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    now: &Moment<'_, R>,
    next: &Moment<'_, R>,
    rewards: &mut [R],
) {
    if next.time == game.spec().horizon {
        game.terminal_rewards(now, next, rewards);
    } else {
        game.rewards(now, next, rewards);
    }
}

/// Σ_s μ(s) Σ_a π(a|s) r(s, a).
fn mean_reward<R: Real>(mu: &[R], policy: &[R], rewards: &[R]) -> f64 {
    let actions = policy.len() / mu.len();
    mu.iter()
        .zip(policy.chunks_exact(actions))
        .zip(rewards.chunks_exact(actions))
        .map(|((mass, policy), rewards)| mass.to_f64() * real::dot(policy, rewards))
        .sum()
}
