//! The game `linear-quadratic`: individuals on a line seek the population's mean while a common shock pushes everybody.

use serde::{Deserialize, Serialize};

use crate::mean_field::game::{ActionKind, GameSpec, MeanFieldGame, Moment, NoiseLaw};
use crate::mean_field::kernels;
use crate::mean_field::real::Real;
use crate::mean_field::registry::GameSettings;
use crate::mean_field::transitions::{Moves, Noise, Transitions};
use crate::{EnvError, StreamRng};

use super::{clip, coin, in_range};

/// Settings of the game `linear-quadratic`; the defaults are those of the base game in the library MFAX (arXiv 2602.20141).
///
/// An individual at s with action a moves to trunc(clip(s + a + σ ρ ε_t)), then idiosyncratic noise adds round(σ sqrt(1 - ρ²) k), k normal on
/// a few atoms, clipped again. The common shock ε_t is -shock·z before `early_until`, +shock·z after `late_after` and 0 in between, with
/// z = ±1 at equal odds for the whole episode. With m' the mean of μ_{t+1} the reward is -c_a a² + q a (m' - s) - (κ/2)(m' - s)², and
/// -(c_T/2)(m' - s)² in the last step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinearQuadraticConfig {
    /// Number S of states on the line, 2 to 65536.
    pub states: usize,
    /// Largest displacement: actions are -largest_action..=largest_action, 1 to 1000.
    pub largest_action: usize,
    /// Steps T of an episode, at least 1.
    pub horizon: usize,
    /// Discount γ in (0, 1].
    pub discount: f64,
    /// Whether the common shock is there; without it z = 0 and the game is deterministic.
    pub common_noise: bool,
    /// Scale σ >= 0 of both noises, in states.
    pub noise_scale: f64,
    /// Correlation ρ in [0, 1] between an individual's noise and the common shock.
    pub correlation: f64,
    /// Size of the common shock before scaling by σρ.
    pub shock: f64,
    /// The first shock lasts while t < early_until.
    pub early_until: usize,
    /// The second, opposite shock lasts while t > late_after.
    pub late_after: usize,
    /// Atoms of the idiosyncratic noise are the integers -noise_atoms..=noise_atoms, with weights in proportion to the standard normal density.
    pub noise_atoms: usize,
    /// Cost c_a of an action squared.
    pub action_cost: f64,
    /// Gain q of moving towards the mean.
    pub coupling: f64,
    /// Cost κ of the distance to the mean, squared and halved.
    pub distance_cost: f64,
    /// The same in the last step, c_T.
    pub terminal_cost: f64,
}

impl Default for LinearQuadraticConfig {
    fn default() -> Self {
        Self {
            states: 99,
            largest_action: 3,
            horizon: 30,
            discount: 0.99,
            common_noise: true,
            noise_scale: 1.0,
            correlation: 0.5,
            shock: 10.0,
            early_until: 8,
            late_after: 20,
            noise_atoms: 3,
            action_cost: 0.5,
            coupling: 0.1,
            distance_cost: 0.5,
            terminal_cost: 1.0,
        }
    }
}

/// The game `linear-quadratic`.
#[derive(Clone, Debug)]
pub struct LinearQuadratic<R = f32> {
    spec: GameSpec,
    config: LinearQuadraticConfig,
    /// The states as numbers, for the mean.
    positions: Vec<f64>,
    /// Moves under a drift of -1, 0 and +1 times σρ·shock.
    moves: [Moves<R>; 3],
    noise: Noise<R>,
    /// State and action of every pair, `[S, A]`, so that rewards are one plain loop.
    pair_states: Vec<R>,
    pair_actions: Vec<R>,
}

impl<R: Real> LinearQuadratic<R> {
    /// Builds the game under a registry name.
    ///
    /// # Errors
    /// [`EnvError::Game`] with the setting that is out of range.
    pub fn new(name: &str, config: &LinearQuadraticConfig) -> Result<Self, EnvError> {
        in_range(name, "states", config.states, 2, 1 << 16)?;
        in_range(name, "largest_action", config.largest_action, 1, 1000)?;
        in_range(name, "correlation", config.correlation, 0.0, 1.0)?;
        in_range(name, "noise_atoms", config.noise_atoms, 0, 1000)?;
        for (key, value, low) in [
            ("noise_scale", config.noise_scale, 0.0),
            ("shock", config.shock, -1e6),
            ("action_cost", config.action_cost, -1e6),
            ("coupling", config.coupling, -1e6),
            ("distance_cost", config.distance_cost, -1e6),
            ("terminal_cost", config.terminal_cost, -1e6),
        ] {
            in_range(name, key, value, low, 1e6)?;
        }
        let reach = config.largest_action as i64;
        let spec = GameSpec {
            name: name.to_owned(),
            states: config.states,
            action_values: (-reach..=reach).map(|a| a as f64).collect(),
            action_kind: ActionKind::Discrete,
            horizon: config.horizon,
            discount: config.discount,
            noise_names: vec!["z".to_owned()],
            observation_names: vec!["mean".to_owned()],
            state_features: None,
        };
        let atoms = config.noise_atoms as i64;
        let density: Vec<(f64, f64)> = (-atoms..=atoms)
            .map(|k| (k as f64, (-0.5 * (k * k) as f64).exp()))
            .collect();
        let total: f64 = density.iter().map(|(_, weight)| weight).sum();
        let scale = config.noise_scale * (1.0 - config.correlation.powi(2)).sqrt();
        let noise = Noise::tabulate(config.states, 1, |_, i| {
            density.iter().map(move |(k, weight)| {
                let moved = (i as f64 + scale * k).round_ties_even();
                (clip(moved, config.states), weight / total)
            })
        });
        let unit = config.noise_scale * config.correlation * config.shock;
        let moves = [-1.0, 0.0, 1.0].map(|sign| {
            let mut targets = vec![0; config.states * spec.actions()];
            fill_targets(&spec, sign * unit, &mut targets);
            Moves::certain(targets)
        });
        let actions = spec.actions();
        let pairs = config.states * actions;
        Ok(Self {
            pair_states: (0..pairs)
                .map(|i| R::from_f64((i / actions) as f64))
                .collect(),
            pair_actions: (0..pairs)
                .map(|i| R::from_f64(spec.action_values[i % actions]))
                .collect(),
            positions: (0..config.states).map(|s| s as f64).collect(),
            moves,
            noise,
            config: config.clone(),
            spec,
        })
    }

    /// -cost·a² + gain·a·(m' - s) - (distance/2)(m' - s)².
    fn quadratic(&self, mean: f64, terms: [f64; 3], rewards: &mut [R]) {
        let mean = R::from_f64(mean);
        let [cost, gain, distance] = terms.map(R::from_f64);
        let half = distance * R::from_f64(0.5);
        let pairs = self.pair_states.iter().zip(&self.pair_actions);
        for (reward, (s, a)) in rewards.iter_mut().zip(pairs) {
            let gap = mean - *s;
            *reward = gap * (gain * *a - half * gap) - cost * *a * *a;
        }
    }

    /// The shock at a time, as a multiple of σρ·shock.
    fn shock_sign(&self, time: usize, z: f64) -> f64 {
        if !self.config.common_noise {
            0.0
        } else if time < self.config.early_until {
            -z
        } else if time > self.config.late_after {
            z
        } else {
            0.0
        }
    }
}

/// Targets trunc(clip(s + a + drift)).
fn fill_targets(spec: &GameSpec, drift: f64, targets: &mut [u32]) {
    let actions = spec.actions();
    for (s, row) in targets.chunks_exact_mut(actions).enumerate() {
        for (target, a) in row.iter_mut().zip(&spec.action_values) {
            *target = clip(s as f64 + a + drift, spec.states) as u32;
        }
    }
}

impl<R: Real> MeanFieldGame<R> for LinearQuadratic<R> {
    fn spec(&self) -> &GameSpec {
        &self.spec
    }

    fn initial_noise(&self, rng: &mut StreamRng, noise: &mut [f64]) {
        noise[0] = match (self.config.common_noise, coin(rng, 0.5)) {
            (false, _) => 0.0,
            (true, true) => 1.0,
            (true, false) => -1.0,
        };
    }

    fn noise_law(&self) -> Option<NoiseLaw> {
        let path = |z: f64| vec![z; self.spec.horizon + 1];
        Some(if self.config.common_noise {
            vec![(0.5, path(1.0)), (0.5, path(-1.0))]
        } else {
            vec![(1.0, path(0.0))]
        })
    }

    fn initial_population(&self, _noise: &[f64], mu: &mut [R]) {
        mu.fill(R::from_f64(1.0 / self.spec.states as f64));
    }

    fn observe(&self, _time: usize, _noise: &[f64], mu: &[R], observation: &mut [f64]) {
        observation[0] = kernels::mean(mu, &self.positions);
    }

    fn normalise(&self, observation: &[f64], normalised: &mut [R]) {
        normalised[0] = R::from_f64(observation[0] / self.spec.states as f64);
    }

    fn transitions<'a>(
        &'a self,
        now: &Moment<'_, R>,
        scratch: &'a mut Moves<R>,
    ) -> Transitions<'a, R> {
        let sign = self.shock_sign(now.time, now.noise[0]);
        let table = [-1.0, 0.0, 1.0].iter().position(|known| *known == sign);
        let moves = match table {
            Some(table) => &self.moves[table],
            None => {
                let config = &self.config;
                let drift = sign * config.noise_scale * config.correlation * config.shock;
                let pairs = self.pair_states.len();
                fill_targets(&self.spec, drift, scratch.certain_mut(pairs));
                scratch
            }
        };
        Transitions {
            moves,
            noise: Some(&self.noise),
        }
    }

    fn rewards(&self, _now: &Moment<'_, R>, next: &Moment<'_, R>, rewards: &mut [R]) {
        let config = &self.config;
        let terms = [config.action_cost, config.coupling, config.distance_cost];
        self.quadratic(next.observation[0], terms, rewards);
    }

    fn terminal_rewards(&self, _now: &Moment<'_, R>, next: &Moment<'_, R>, rewards: &mut [R]) {
        let terms = [0.0, 0.0, self.config.terminal_cost];
        self.quadratic(next.observation[0], terms, rewards);
    }
}

impl GameSettings for LinearQuadraticConfig {
    fn build<R: Real>(&self, name: &str) -> Result<Box<dyn MeanFieldGame<R>>, EnvError> {
        Ok(Box::new(LinearQuadratic::new(name, self)?))
    }
}
