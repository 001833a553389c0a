//! The exact simulator: tomorrow's population is today's, pushed through the policy.

use rayon::prelude::*;

use crate::EnvError;

use super::game::{MeanFieldGame, Moment};
use super::kernels;
use super::noise_paths::NoisePaths;
use super::policies::{Policies, check_step, of_path};
use super::real::Real;
use super::rollout::{PathRows, PathStep, Rollout, StepRows};
use super::transitions::{MASS_TOLERANCE, Moves, Room};

/// From this many products of a mass and a probability on, a step is worth waking other threads for.
const PARALLEL_WORK: usize = 1 << 16;

/// Room that one thread needs.
#[derive(Debug)]
pub(crate) struct Scratch<R> {
    pub moves: Moves<R>,
    pub room: Room<R>,
    /// `[S, A]`.
    pub rewards: Vec<R>,
    /// μ_t(s) π_t(a|s), `[S, A]`.
    pub joint: Vec<R>,
}

impl<R: Real> Scratch<R> {
    pub fn new(pairs: usize) -> Self {
        Self {
            moves: Moves::default(),
            room: Room::default(),
            rewards: vec![R::ZERO; pairs],
            joint: vec![R::ZERO; pairs],
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
        let pairs = spec.states * spec.actions();
        let group = self.group(paths, pairs);
        let rows = rollout.step_rows();
        let advance = |rows: StepRows<'_, R>, scratch: &mut Scratch<R>| {
            rows.paths().try_for_each(|step| {
                let policy = of_path(policy, step.path, pairs);
                step_path(game, policy, scratch, step)
            })
        };
        if group == paths {
            advance(rows, &mut self.scratch[0])?;
        } else {
            rows.groups(group)
                .zip(&mut self.scratch)
                .try_for_each(|(rows, scratch)| advance(rows, scratch))?;
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
        rows.par_chunks_mut(group)
            .zip(&mut self.scratch)
            .try_for_each(|(rows, scratch)| {
                rows.iter_mut()
                    .try_for_each(|rows| run_path(game, noise, policies, scratch, rows))
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

/// One path, all steps.
fn run_path<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    noise: &NoisePaths,
    policies: &Policies<'_, R>,
    scratch: &mut Scratch<R>,
    rows: &mut PathRows<'_, R>,
) -> Result<(), EnvError> {
    let path = rows.path;
    for time in 0..noise.horizon() {
        let (mu, next_mu) = rows.mu.split_at_mut(time + 1);
        let (observations, next) = rows.observations.split_at_mut(time + 1);
        let step = PathStep {
            path,
            now: Moment {
                time,
                noise: noise.at(time, path),
                mu: mu[time],
                observation: observations[time],
            },
            next_noise: noise.at(time + 1, path),
            mu: next_mu[0],
            observation: next[0],
            input: rows.inputs[time + 1],
            reward: &mut rows.rewards[time][0],
        };
        step_path(game, policies.at(time, path), scratch, step)?;
    }
    Ok(())
}

/// One path, one step.
fn step_path<R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    policy: &[R],
    scratch: &mut Scratch<R>,
    step: PathStep<'_, R>,
) -> Result<(), EnvError> {
    let law = game.transitions(&step.now, &mut scratch.moves);
    kernels::joint_law(step.now.mu, policy, &mut scratch.joint);
    law.push(&scratch.joint, &mut scratch.room, step.mu);
    let mass = kernels::sum(step.mu);
    if (mass - 1.0).abs() > MASS_TOLERANCE || mass.is_nan() {
        let message = format!(
            "step {}, path {}: the population has mass {mass} after the step, expected 1; do the rows of the policy and the transition laws sum to 1?",
            step.now.time, step.path
        );
        return Err(EnvError::game(&game.spec().name, message));
    }
    let scale = R::from_f64(1.0 / mass);
    step.mu.iter_mut().for_each(|mass| *mass = *mass * scale);
    let reward = observe_step(game, step, &mut scratch.rewards);
    *reward = kernels::dot(&scratch.joint, &scratch.rewards);
    Ok(())
}

/// Once the next population is known: writes the observation, and r_t(s, a) into `rewards`; gives the place of the mean reward.
pub(crate) fn observe_step<'a, R: Real, G: MeanFieldGame<R> + ?Sized>(
    game: &G,
    step: PathStep<'a, R>,
    rewards: &mut [R],
) -> &'a mut f64 {
    let time = step.now.time + 1;
    game.observe(time, step.next_noise, step.mu, step.observation);
    game.normalise(step.observation, step.input);
    let next = Moment {
        time,
        noise: step.next_noise,
        mu: step.mu,
        observation: step.observation,
    };
    fill_rewards(game, &step.now, &next, rewards);
    step.reward
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
