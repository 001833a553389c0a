//! What a mean-field game is.

use crate::StreamRng;

use super::real::Real;
use super::transitions::{Moves, Transitions};

/// How the actions of a game are meant, for networks that choose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionKind {
    /// Separate choices: a policy is a free distribution over them.
    Discrete,
    /// Points of a grid on an interval: a policy may be a density on the interval, evaluated at the points.
    Interval,
}

/// What a game is, fixed for its life.
#[derive(Clone, Debug, PartialEq)]
pub struct GameSpec {
    /// Registry name, such as `linear-quadratic`.
    pub name: String,
    /// Number S of individual states.
    pub states: usize,
    /// The value of each of the A actions, such as a displacement or a share.
    pub action_values: Vec<f64>,
    /// How the actions are meant.
    pub action_kind: ActionKind,
    /// Number T of steps of an episode.
    pub horizon: usize,
    /// Discount γ in (0, 1].
    pub discount: f64,
    /// A name for each entry of the common noise z_t.
    pub noise_names: Vec<String>,
    /// A name for each entry of the public observation o_t.
    pub observation_names: Vec<String>,
    /// Values that describe an individual state to a network, `[S, d]`, for states with a geometry; `None` where they are looked up by index.
    pub state_features: Option<StateFeatures>,
}

/// Individual states as network inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct StateFeatures {
    /// A name for each of the d columns.
    pub names: Vec<String>,
    /// `[S, d]`, each in [0, 1].
    pub values: Vec<f32>,
}

impl GameSpec {
    /// Number A of actions.
    pub fn actions(&self) -> usize {
        self.action_values.len()
    }

    /// Length of the common noise z_t.
    pub fn noise_dim(&self) -> usize {
        self.noise_names.len()
    }

    /// Length of the public observation o_t.
    pub fn observation_dim(&self) -> usize {
        self.observation_names.len()
    }
}

/// Everything that an individual's step can depend on at one time of one common-noise path.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a, R> {
    /// Time t, 0 to T.
    pub time: usize,
    /// Common noise z_t.
    pub noise: &'a [f64],
    /// Population law μ_t, `[S]`.
    pub mu: &'a [R],
    /// Public observation o_t in its own units.
    pub observation: &'a [f64],
}

/// Complete common-noise paths with their probabilities, each path as z_0..z_T, `[T + 1, noise dimension]`.
pub type NoiseLaw = Vec<(f64, Vec<f64>)>;

/// A finite mean-field game with common noise: a population of exchangeable individuals, each with a state s in 0..S and an action a in 0..A.
///
/// An individual moves by P_t(s'|s, a) and collects r_t(s, a); both may depend on the population law μ_t and on the common noise z_t,
/// which evolves on its own (no individual and no population moves it). Methods compute and draw from the generator that they are given;
/// they keep nothing. A new game is one type with this trait and, to be configurable by name, one line in the registry.
pub trait MeanFieldGame<R: Real = f32>: Send + Sync {
    /// The game's fixed description.
    fn spec(&self) -> &GameSpec;

    /// Draws z_0 into `noise`; does nothing by default.
    fn initial_noise(&self, _rng: &mut StreamRng, _noise: &mut [f64]) {}

    /// Draws z_{t+1} into `next` given z_t, t being `time`; copies it by default.
    fn next_noise(&self, _time: usize, noise: &[f64], _rng: &mut StreamRng, next: &mut [f64]) {
        next.copy_from_slice(noise);
    }

    /// Every common-noise path with its probability where there are few; `None` by default unless the game has no noise at all.
    fn noise_law(&self) -> Option<NoiseLaw> {
        (self.spec().noise_dim() == 0).then(|| vec![(1.0, Vec::new())])
    }

    /// Writes the initial law μ_0 for a path that starts with z_0, `[S]`.
    fn initial_population(&self, noise: &[f64], mu: &mut [R]);

    /// Writes the public observation o_t = O(μ_t, z_t) in its own units, the same for every individual.
    fn observe(&self, time: usize, noise: &[f64], mu: &[R], observation: &mut [f64]);

    /// Writes the observation as a network sees it; unchanged by default.
    fn normalise(&self, observation: &[f64], normalised: &mut [R]) {
        for (to, from) in normalised.iter_mut().zip(observation) {
            *to = R::from_f64(*from);
        }
    }

    /// Names and values of what is worth watching along a path, beside the observation; nothing by default.
    fn indicators(&self, _now: &Moment<'_, R>) -> Vec<(&'static str, f64)> {
        Vec::new()
    }

    /// The transition law P_t: tables of the game's own where they do not change, else `scratch` after filling it.
    fn transitions<'a>(
        &'a self,
        now: &Moment<'_, R>,
        scratch: &'a mut Moves<R>,
    ) -> Transitions<'a, R>;

    /// Writes r_t(s, a), `[S, A]`, which may depend on the aggregate at both ends of the step.
    fn rewards(&self, now: &Moment<'_, R>, next: &Moment<'_, R>, rewards: &mut [R]);

    /// Writes the rewards of the last step, which take the place of the step rewards; the same by default.
    fn terminal_rewards(&self, now: &Moment<'_, R>, next: &Moment<'_, R>, rewards: &mut [R]) {
        self.rewards(now, next, rewards);
    }
}
