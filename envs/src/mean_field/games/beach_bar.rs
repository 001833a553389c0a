//! The game `beach-bar`: everybody wants to be next to a bar that may close half way, and being caught next to it then is bad.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::mean_field::game::{ActionKind, GameSpec, MeanFieldGame, Moment, NoiseLaw};
use crate::mean_field::kernels;
use crate::mean_field::real::Real;
use crate::mean_field::registry::GameSettings;
use crate::mean_field::transitions::{Moves, Noise, Transitions};
use crate::{EnvError, StreamRng};

use super::{clip, coin, in_range, uniform};

/// Settings of the game `beach-bar`; the defaults are those of the library MFAX (arXiv 2602.20141).
///
/// An individual at s with action a moves to clip(s + a), then noise adds an atom; nobody enters or crosses the bar at b: both moves stop at
/// b - 1 from the left and at b + 1 from the right. The bar is open, z = 1, until it closes at `closing_time` with some probability. The
/// reward is -|b - s| z_t - S·[|b - s| = 1]·[z_{t+1} = 0] - |a|/S - congestion·log max(μ_t(s), 1e-9).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BeachBarConfig {
    /// Number S of places on the beach, 3 to 4096.
    pub states: usize,
    /// Largest displacement: actions are -largest_action..=largest_action, 1 to 1000.
    pub largest_action: usize,
    /// Steps T of an episode, at least 1.
    pub horizon: usize,
    /// Discount γ in (0, 1].
    pub discount: f64,
    /// Whether the bar's place and its closing are random; without it the bar stands still and stays open, and the game is deterministic.
    pub common_noise: bool,
    /// The bar's place; if left out it is drawn, or the middle S/2 without common noise.
    pub bar: Option<usize>,
    /// Smallest place of a drawn bar; S/4 if left out.
    pub bar_low: Option<usize>,
    /// One more than the largest place of a drawn bar; 3S/4 + 1 if left out.
    pub bar_high: Option<usize>,
    /// Time from which on the bar may be closed; T/2 if left out.
    pub closing_time: Option<usize>,
    /// Probability in [0, 1] that it closes then.
    pub closing_probability: f64,
    /// Probabilities of the noise atoms, an odd number of them around 0.
    pub noise_probabilities: Vec<f64>,
    /// Weight of the crowding cost log μ_t(s); 0, as in MFAX, makes payoffs independent of the population.
    pub congestion: f64,
}

impl Default for BeachBarConfig {
    fn default() -> Self {
        Self {
            states: 101,
            largest_action: 5,
            horizon: 30,
            discount: 0.99,
            common_noise: true,
            bar: None,
            bar_low: None,
            bar_high: None,
            closing_time: None,
            closing_probability: 0.5,
            noise_probabilities: vec![0.05, 0.1, 0.7, 0.1, 0.05],
            congestion: 0.0,
        }
    }
}

impl BeachBarConfig {
    /// Where a drawn bar can be.
    fn drawn_places(&self) -> std::ops::Range<usize> {
        self.bar_low.unwrap_or(self.states / 4)..self.bar_high.unwrap_or(3 * self.states / 4 + 1)
    }
}

/// Smallest crowd that the logarithm of the congestion cost sees.
const CROWD_FLOOR: f64 = 1e-9;

/// Entries of the common noise.
const OPEN: usize = 0;
const BAR: usize = 1;

/// Noise variants: with the bar as a wall, and for those who stand on the bar itself, which holds nobody but has values.
const WALLED: usize = 0;
const ON_THE_BAR: usize = 1;

/// The game `beach-bar`.
#[derive(Debug)]
pub struct BeachBar<R = f32> {
    spec: GameSpec,
    config: BeachBarConfig,
    /// The places as numbers, for the mean.
    positions: Vec<f64>,
    /// |a|/S of every pair, `[S, A]`.
    efforts: Vec<R>,
    /// Tables by the bar's place, made when first needed.
    tables: Vec<OnceLock<Table<R>>>,
}

/// What depends on the bar's place only.
#[derive(Debug)]
struct Table<R> {
    moves: Moves<R>,
    noise: Noise<R>,
    /// |b - s| of every pair, `[S, A]`, so that rewards are one plain loop.
    distances: Vec<R>,
}

impl<R: Real> BeachBar<R> {
    /// Builds the game under a registry name.
    ///
    /// # Errors
    /// [`EnvError::Game`] with the setting that is out of range.
    pub fn new(name: &str, config: &BeachBarConfig) -> Result<Self, EnvError> {
        in_range(name, "states", config.states, 3, 4096)?;
        in_range(name, "largest_action", config.largest_action, 1, 1000)?;
        let last = config.states - 1;
        if let Some(bar) = config.bar {
            in_range(name, "bar", bar, 0, last)?;
        }
        let places = config.drawn_places();
        in_range(name, "bar_high", places.end, 1, last + 1)?;
        in_range(name, "bar_low", places.start, 0, places.end - 1)?;
        in_range(name, "congestion", config.congestion, -1e6, 1e6)?;
        let closing = config.closing_probability;
        in_range(name, "closing_probability", closing, 0.0, 1.0)?;
        let probabilities = &config.noise_probabilities;
        let total: f64 = probabilities.iter().sum();
        if probabilities.len().is_multiple_of(2)
            || probabilities.iter().any(|p| *p < 0.0)
            || (total - 1.0).abs() > 1e-9
            || total.is_nan()
        {
            let message = format!(
                "noise_probabilities = {probabilities:?}, expected an odd number of them, at least 0, with sum 1"
            );
            return Err(EnvError::game(name, message));
        }
        let reach = config.largest_action as i64;
        Ok(Self {
            spec: GameSpec {
                name: name.to_owned(),
                states: config.states,
                action_values: (-reach..=reach).map(|a| a as f64).collect(),
                action_kind: ActionKind::Discrete,
                horizon: config.horizon,
                discount: config.discount,
                noise_names: vec!["open".to_owned(), "bar".to_owned()],
                observation_names: ["mean", "open", "bar"].map(str::to_owned).to_vec(),
                state_features: None,
            },
            config: config.clone(),
            positions: (0..config.states).map(|s| s as f64).collect(),
            efforts: (0..config.states)
                .flat_map(|_| -reach..=reach)
                .map(|a| R::from_f64(a.abs() as f64 / config.states as f64))
                .collect(),
            tables: (0..config.states).map(|_| OnceLock::new()).collect(),
        })
    }

    fn bar(&self, noise: &[f64]) -> usize {
        clip(noise[BAR], self.spec.states)
    }

    fn closing_time(&self) -> usize {
        self.config.closing_time.unwrap_or(self.spec.horizon / 2)
    }

    fn table(&self, bar: usize) -> &Table<R> {
        self.tables[bar].get_or_init(|| self.tabulate(bar))
    }

    fn tabulate(&self, bar: usize) -> Table<R> {
        let (states, actions) = (self.spec.states, self.spec.actions());
        // Where somebody who was at `from` ends up who would otherwise be at `to`.
        let walled = |from: usize, to: usize| {
            if from < bar {
                to.min(bar - 1)
            } else if from > bar {
                to.max(bar + 1)
            } else {
                to
            }
        };
        let targets = (0..states * actions)
            .map(|pair| {
                let s = pair / actions;
                let target = clip(s as f64 + self.spec.action_values[pair % actions], states);
                let variant = if s == bar { ON_THE_BAR } else { WALLED };
                (variant * states + walled(s, target)) as u32
            })
            .collect();
        let reach = self.config.noise_probabilities.len() / 2;
        // After a move nobody has changed sides, so the target's side is that of the start.
        let noise = Noise::tabulate(states, 2, |variant, i| {
            let atoms = self.config.noise_probabilities.iter().enumerate();
            atoms.map(move |(atom, p)| {
                let to = clip(i as f64 + atom as f64 - reach as f64, states);
                (if variant == WALLED { walled(i, to) } else { to }, *p)
            })
        });
        Table {
            moves: Moves::certain(targets),
            noise,
            distances: (0..states * actions)
                .map(|pair| R::from_f64((pair / actions).abs_diff(bar) as f64))
                .collect(),
        }
    }
}

impl<R: Real> MeanFieldGame<R> for BeachBar<R> {
    fn spec(&self) -> &GameSpec {
        &self.spec
    }

    fn initial_noise(&self, rng: &mut StreamRng, noise: &mut [f64]) {
        let config = &self.config;
        let places = config.drawn_places();
        let drawn = places.start + uniform(rng, places.len());
        let bar = match (config.bar, config.common_noise) {
            (Some(bar), _) => bar,
            (None, true) => drawn,
            (None, false) => config.states / 2,
        };
        let closed = self.closing_time() == 0
            && config.common_noise
            && coin(rng, config.closing_probability);
        noise[OPEN] = if closed { 0.0 } else { 1.0 };
        noise[BAR] = bar as f64;
    }

    fn next_noise(&self, time: usize, noise: &[f64], rng: &mut StreamRng, next: &mut [f64]) {
        next.copy_from_slice(noise);
        if self.config.common_noise
            && time + 1 == self.closing_time()
            && coin(rng, self.config.closing_probability)
        {
            next[OPEN] = 0.0;
        }
    }

    fn noise_law(&self) -> Option<NoiseLaw> {
        let config = &self.config;
        let bars = match (config.bar, config.common_noise) {
            (Some(bar), _) => bar..bar + 1,
            (None, true) => config.drawn_places(),
            (None, false) => config.states / 2..config.states / 2 + 1,
        };
        let closes = if config.common_noise && self.closing_time() <= self.spec.horizon {
            config.closing_probability
        } else {
            0.0
        };
        let share = 1.0 / bars.len() as f64;
        let path = |bar: usize, closing: usize| -> Vec<f64> {
            (0..=self.spec.horizon)
                .flat_map(|time| [f64::from(u8::from(time < closing)), bar as f64])
                .collect()
        };
        let mut law = Vec::new();
        for bar in bars {
            for (weight, closing) in [(closes, self.closing_time()), (1.0 - closes, usize::MAX)] {
                if weight > 0.0 {
                    law.push((weight * share, path(bar, closing)));
                }
            }
        }
        Some(law)
    }

    fn initial_population(&self, noise: &[f64], mu: &mut [R]) {
        mu.fill(R::from_f64(1.0 / (self.spec.states - 1) as f64));
        mu[self.bar(noise)] = R::ZERO;
    }

    fn indicators(&self, now: &Moment<'_, R>) -> Vec<(&'static str, f64)> {
        let bar = self.bar(now.noise);
        let beside = |s: Option<usize>| {
            s.and_then(|s| now.mu.get(s))
                .map_or(0.0, |mass| mass.to_f64())
        };
        let beside = beside(bar.checked_sub(1)) + beside(Some(bar + 1));
        vec![("share next to the bar", beside)]
    }

    fn observe(&self, _time: usize, noise: &[f64], mu: &[R], observation: &mut [f64]) {
        observation[0] = kernels::mean(mu, &self.positions);
        observation[1] = noise[OPEN];
        observation[2] = noise[BAR];
    }

    fn normalise(&self, observation: &[f64], normalised: &mut [R]) {
        let states = self.spec.states as f64;
        normalised[0] = R::from_f64(1.0 - observation[0] / states);
        normalised[1] = R::from_f64(observation[1]);
        normalised[2] = R::from_f64(1.0 - observation[2] / states);
    }

    fn transitions<'a>(
        &'a self,
        now: &Moment<'_, R>,
        _scratch: &'a mut Moves<R>,
    ) -> Transitions<'a, R> {
        let table = self.table(self.bar(now.noise));
        Transitions {
            moves: &table.moves,
            noise: Some(&table.noise),
        }
    }

    fn rewards(&self, now: &Moment<'_, R>, next: &Moment<'_, R>, rewards: &mut [R]) {
        let states = self.spec.states as f64;
        let actions = self.spec.actions();
        let bar = self.bar(now.noise);
        let open = R::from_f64(now.noise[OPEN]);
        let table = self.table(bar);
        let pairs = table.distances.iter().zip(&self.efforts);
        for (reward, (distance, effort)) in rewards.iter_mut().zip(pairs) {
            *reward = -(*distance * open) - *effort;
        }
        if next.noise[OPEN] == 0.0 {
            let trapped = -R::from_f64(states);
            for neighbour in [bar.wrapping_sub(1), bar + 1] {
                if let Some(row) = rewards.chunks_exact_mut(actions).nth(neighbour) {
                    row.iter_mut().for_each(|reward| *reward += trapped);
                }
            }
        }
        if self.config.congestion != 0.0 {
            for (row, mass) in rewards.chunks_exact_mut(actions).zip(now.mu) {
                let crowd = mass.to_f64().max(CROWD_FLOOR).ln();
                let cost = R::from_f64(-self.config.congestion * crowd);
                row.iter_mut().for_each(|reward| *reward += cost);
            }
        }
    }
}

impl GameSettings for BeachBarConfig {
    fn build<R: Real>(&self, name: &str) -> Result<Box<dyn MeanFieldGame<R>>, EnvError> {
        Ok(Box::new(BeachBar::new(name, self)?))
    }
}
