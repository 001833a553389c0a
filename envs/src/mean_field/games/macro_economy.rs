//! The game `macro`: households save and consume while their own savings set interest and wages (after Krusell and Smith, 1998).

use rand::Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

use crate::mean_field::game::{
    ActionKind, GameSpec, MeanFieldGame, Moment, NoiseLaw, StateFeatures,
};
use crate::mean_field::kernels;
use crate::mean_field::real::Real;
use crate::mean_field::registry::GameSettings;
use crate::mean_field::transitions::{Moves, Noise, Transitions};
use crate::{EnvError, StreamRng};

use super::grid::Grid;
use super::in_range;

/// Settings of the game `macro`; the defaults are those of the game `endogenous` of the library MFAX (arXiv 2602.20141).
///
/// A household has wealth and income on grids, state = wealth index · income points + income index, and consumes a share of its resources
/// x = (1 + interest)·wealth + wage·income. The rest is its next wealth, split linearly between the two neighbouring grid points; its
/// income index moves by -1, 0 or +1 on its own. With K mean wealth, L mean income and α the capital share, interest =
/// e^z α (L / (K + 1e-6))^(1 - α) and wage = e^z (1 - α) (K / (L + 1e-6))^α, where z_{t+1} = persistence·z_t + noise_scale·N(0, 1) from
/// z_0 = 0. The reward is u(c) for consumption c, u(x) in the last step, with u(y) = y^(1-η)/(1-η), log y for η = 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MacroConfig {
    /// Points of the wealth grid, 2 to 10000.
    pub wealth_points: usize,
    /// Smallest wealth, at least 0.
    pub wealth_low: f64,
    /// Largest wealth.
    pub wealth_high: f64,
    /// Points of the income grid, 2 to 100.
    pub income_points: usize,
    /// Smallest income, above 0.
    pub income_low: f64,
    /// Largest income.
    pub income_high: f64,
    /// Both grids are geometric after adding the larger of this and their smallest value; above 0.
    pub smallest_pivot: f64,
    /// Number A of shares of resources that can be consumed, the midpoints of A equal parts of [0, 1]; 1 to 1000.
    pub shares: usize,
    /// Steps T of an episode, at least 1.
    pub horizon: usize,
    /// Discount γ in (0, 1].
    pub discount: f64,
    /// Whether productivity z is random; without it z = 0 and the game is deterministic.
    pub common_noise: bool,
    /// Persistence of z, in [-1, 1].
    pub persistence: f64,
    /// Standard deviation of the shocks to z.
    pub noise_scale: f64,
    /// Capital share α in (0, 1).
    pub capital_share: f64,
    /// Probability in [0, 0.5] that the income index moves up, and the same for down; off the grid it stays.
    pub income_moves: f64,
    /// Relative risk aversion η >= 0.
    pub risk_aversion: f64,
}

impl Default for MacroConfig {
    fn default() -> Self {
        Self {
            wealth_points: 200,
            wealth_low: 0.0,
            wealth_high: 99.0,
            income_points: 5,
            income_low: 0.1,
            income_high: 2.0,
            smallest_pivot: 0.25,
            shares: 20,
            horizon: 128,
            discount: 0.95,
            common_noise: true,
            persistence: 0.9,
            noise_scale: 0.03,
            capital_share: 0.36,
            income_moves: 0.1,
            risk_aversion: 2.0,
        }
    }
}

/// Added to the denominators of prices, as in MFAX.
const PRICE_FLOOR: f64 = 1e-6;

/// Smallest resources that utility sees, so that an economy without capital has a finite value.
const RESOURCES_FLOOR: f64 = 1e-9;

/// Entries of the public observation.
const INTEREST: usize = 0;
const WAGE: usize = 1;

/// The game `macro`.
#[derive(Clone, Debug)]
pub struct MacroEconomy<R = f32> {
    spec: GameSpec,
    config: MacroConfig,
    wealth_grid: Grid<R>,
    income_grid: Grid<R>,
    /// Wealth and income of every state.
    wealth: Vec<f64>,
    income: Vec<f64>,
    /// Income index of every pair, `[S, A]`.
    income_of_pair: Vec<u32>,
    /// 1 - share and u(share) (for η = 1, log share) of every action.
    saved: Vec<R>,
    utility_factors: Vec<R>,
    /// The income kernel.
    noise: Noise<R>,
}

impl<R: Real> MacroEconomy<R> {
    /// Builds the game under a registry name.
    ///
    /// # Errors
    /// [`EnvError::Game`] with the setting that is out of range.
    pub fn new(name: &str, config: &MacroConfig) -> Result<Self, EnvError> {
        in_range(name, "wealth_points", config.wealth_points, 2, 10_000)?;
        in_range(name, "income_points", config.income_points, 2, 100)?;
        in_range(name, "shares", config.shares, 1, 1000)?;
        for (key, value, low, high) in [
            ("wealth_low", config.wealth_low, 0.0, 1e9),
            ("income_low", config.income_low, 1e-6, 1e9),
            ("smallest_pivot", config.smallest_pivot, 1e-3, 1e9),
            ("persistence", config.persistence, -1.0, 1.0),
            ("noise_scale", config.noise_scale, 0.0, 10.0),
            ("capital_share", config.capital_share, 1e-6, 1.0 - 1e-6),
            ("income_moves", config.income_moves, 0.0, 0.5),
            ("risk_aversion", config.risk_aversion, 0.0, 100.0),
        ] {
            in_range(name, key, value, low, high)?;
        }
        let above = |low: f64| low + 1e-3;
        let (wealth_low, income_low) = (above(config.wealth_low), above(config.income_low));
        in_range(name, "wealth_high", config.wealth_high, wealth_low, 1e9)?;
        in_range(name, "income_high", config.income_high, income_low, 1e9)?;
        let wealth_grid = Grid::geometric(
            config.wealth_low,
            config.wealth_high,
            config.wealth_points,
            config.smallest_pivot,
        );
        let income_grid = Grid::geometric(
            config.income_low,
            config.income_high,
            config.income_points,
            config.smallest_pivot,
        );
        let incomes = config.income_points;
        let states = config.wealth_points * incomes;
        let shares: Vec<f64> = (0..config.shares)
            .map(|a| (a as f64 + 0.5) / config.shares as f64)
            .collect();
        let noise = Noise::tabulate(states, 1, |_, state| {
            let (first, i) = (state - state % incomes, state % incomes);
            [
                (first + i.saturating_sub(1), config.income_moves),
                (state, 1.0 - 2.0 * config.income_moves),
                (first + (i + 1).min(incomes - 1), config.income_moves),
            ]
        });
        let wealth: Vec<f64> = (0..states)
            .map(|s| wealth_grid.exact[s / incomes])
            .collect();
        let income: Vec<f64> = (0..states)
            .map(|s| income_grid.exact[s % incomes])
            .collect();
        let features = wealth
            .iter()
            .zip(&income)
            .flat_map(|(w, i)| {
                [
                    wealth_grid.relative(*w) as f32,
                    income_grid.relative(*i) as f32,
                ]
            })
            .collect();
        let factor = |share: &f64| R::from_f64(utility_factor(*share, config.risk_aversion));
        Ok(Self {
            spec: GameSpec {
                name: name.to_owned(),
                states,
                action_kind: ActionKind::Interval,
                horizon: config.horizon,
                discount: config.discount,
                noise_names: vec!["productivity".to_owned()],
                observation_names: vec!["interest".to_owned(), "wage".to_owned()],
                state_features: Some(StateFeatures {
                    names: vec!["wealth".to_owned(), "income".to_owned()],
                    values: features,
                }),
                action_values: shares.clone(),
            },
            saved: shares
                .iter()
                .map(|share| R::from_f64(1.0 - share))
                .collect(),
            utility_factors: shares.iter().map(factor).collect(),
            income_of_pair: (0..states * shares.len())
                .map(|pair| (pair / shares.len() % incomes) as u32)
                .collect(),
            config: config.clone(),
            wealth_grid,
            income_grid,
            wealth,
            income,
            noise,
        })
    }

    /// The points of the wealth grid.
    pub fn wealth_grid(&self) -> &[f64] {
        &self.wealth_grid.exact
    }

    /// The points of the income grid.
    pub fn income_grid(&self) -> &[f64] {
        &self.income_grid.exact
    }

    /// (1 + interest)·wealth + wage·income of every state.
    fn resources(&self, now: &Moment<'_, R>) -> impl Iterator<Item = f64> + '_ {
        let (growth, wage) = (1.0 + now.observation[INTEREST], now.observation[WAGE]);
        let states = self.wealth.iter().zip(&self.income);
        states.map(move |(wealth, income)| growth * wealth + wage * income)
    }
}

/// y^(1-η), log y for η = 1: u(c·x) is the product of the factors of c and x over 1 - η, or their sum for η = 1.
fn utility_factor(y: f64, risk_aversion: f64) -> f64 {
    if risk_aversion == 1.0 {
        y.ln()
    } else if risk_aversion == 2.0 {
        1.0 / y
    } else {
        y.powf(1.0 - risk_aversion)
    }
}

impl<R: Real> MeanFieldGame<R> for MacroEconomy<R> {
    fn spec(&self) -> &GameSpec {
        &self.spec
    }

    fn next_noise(&self, _time: usize, noise: &[f64], rng: &mut StreamRng, next: &mut [f64]) {
        if self.config.common_noise {
            let shock: f64 = rng.sample(StandardNormal);
            next[0] = self.config.persistence * noise[0] + self.config.noise_scale * shock;
        }
    }

    fn noise_law(&self) -> Option<NoiseLaw> {
        let still = vec![(1.0, vec![0.0; self.spec.horizon + 1])];
        (!self.config.common_noise).then_some(still)
    }

    fn initial_population(&self, _noise: &[f64], mu: &mut [R]) {
        mu.fill(R::from_f64(1.0 / self.spec.states as f64));
    }

    fn observe(&self, _time: usize, noise: &[f64], mu: &[R], observation: &mut [f64]) {
        let capital = kernels::mean(mu, &self.wealth);
        let labour = kernels::mean(mu, &self.income);
        let share = self.config.capital_share;
        let productivity = noise[0].exp();
        observation[INTEREST] =
            productivity * share * (labour / (capital + PRICE_FLOOR)).powf(1.0 - share);
        observation[WAGE] =
            productivity * (1.0 - share) * (capital / (labour + PRICE_FLOOR)).powf(share);
    }

    fn indicators(&self, now: &Moment<'_, R>) -> Vec<(&'static str, f64)> {
        vec![("mean wealth", kernels::mean(now.mu, &self.wealth))]
    }

    fn transitions<'a>(
        &'a self,
        now: &Moment<'_, R>,
        scratch: &'a mut Moves<R>,
    ) -> Transitions<'a, R> {
        let incomes = self.config.income_points;
        let (targets, weights) = scratch.lottery_mut(self.income_of_pair.len(), incomes);
        // Wealth that leaves the grid stays at its end; lotteries turn wealth into the upper point's weight.
        let ends = self.wealth_grid.ends();
        let prices = [1.0 + now.observation[INTEREST], now.observation[WAGE]];
        let resources = ([&*self.wealth, &*self.income], prices);
        kernels::clamped_products(resources, &self.saved, ends, weights);
        let bases = &self.income_of_pair;
        self.wealth_grid
            .lotteries(incomes as u32, bases, targets, weights);
        Transitions {
            moves: scratch,
            noise: Some(&self.noise),
        }
    }

    fn rewards(&self, now: &Moment<'_, R>, _next: &Moment<'_, R>, rewards: &mut [R]) {
        let aversion = self.config.risk_aversion;
        let rows = rewards.chunks_exact_mut(self.spec.actions());
        for (resources, row) in self.resources(now).zip(rows) {
            let factor = utility_factor(resources.max(RESOURCES_FLOOR), aversion);
            if aversion == 1.0 {
                let factor = R::from_f64(factor);
                for (reward, share) in row.iter_mut().zip(&self.utility_factors) {
                    *reward = factor + *share;
                }
            } else {
                let factor = R::from_f64(factor / (1.0 - aversion));
                for (reward, share) in row.iter_mut().zip(&self.utility_factors) {
                    *reward = factor * *share;
                }
            }
        }
    }

    fn terminal_rewards(&self, now: &Moment<'_, R>, _next: &Moment<'_, R>, rewards: &mut [R]) {
        let aversion = self.config.risk_aversion;
        let rows = rewards.chunks_exact_mut(self.spec.actions());
        for (resources, row) in self.resources(now).zip(rows) {
            let factor = utility_factor(resources.max(RESOURCES_FLOOR), aversion);
            let utility = if aversion == 1.0 {
                factor
            } else {
                factor / (1.0 - aversion)
            };
            row.fill(R::from_f64(utility));
        }
    }
}

impl GameSettings for MacroConfig {
    fn build<R: Real>(&self, name: &str) -> Result<Box<dyn MeanFieldGame<R>>, EnvError> {
        Ok(Box::new(MacroEconomy::new(name, self)?))
    }
}
