//! Common-noise paths: drawn from a key, enumerated where there are few, or given.

use rand::RngCore;

use crate::{EnvError, StreamRng};

use super::game::MeanFieldGame;
use super::real::Real;

/// Where paths come from, which decides what a mean over them means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// Independent draws, this many before equal ones were merged.
    Sampled(usize),
    /// All paths that there are, or paths that the caller weighted: a mean over them has no sampling error.
    Exact { complete: bool },
}

/// E common-noise paths z_0..z_T with weights that sum to 1.
///
/// Common noise evolves on its own, so a whole path is a function of the game and a key, whatever the policy; everything after that is
/// deterministic in the exact simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct NoisePaths {
    horizon: usize,
    dim: usize,
    /// `[T + 1, E, dim]`.
    values: Vec<f64>,
    weights: Vec<f64>,
    origin: Origin,
}

impl NoisePaths {
    /// Draws `paths` independent paths for training from `key`; path e of a key does not depend on how many are drawn.
    ///
    /// # Errors
    /// [`EnvError::Game`] if `paths` is 0.
    pub fn sample<R: Real, G: MeanFieldGame<R> + ?Sized>(
        game: &G,
        paths: usize,
        key: u64,
    ) -> Result<Self, EnvError> {
        Self::draw(game, paths, key, "common noise")
    }

    /// Paths to judge a policy on: all of them, weighted, where there are few, else `paths` draws from `key` on streams of their own, so that
    /// no training path ever comes back.
    ///
    /// # Errors
    /// [`EnvError::Game`] if `paths` is 0.
    pub fn evaluation<R: Real, G: MeanFieldGame<R> + ?Sized>(
        game: &G,
        paths: usize,
        key: u64,
    ) -> Result<Self, EnvError> {
        match Self::complete(game) {
            Some(complete) => Ok(complete),
            None => Self::draw(game, paths, key, "evaluation noise"),
        }
    }

    /// All paths that the game has, weighted by their probability; `None` where they are not few.
    pub fn complete<R: Real, G: MeanFieldGame<R> + ?Sized>(game: &G) -> Option<Self> {
        let law = game.noise_law()?;
        let (horizon, dim) = (game.spec().horizon, game.spec().noise_dim());
        let mut values = Vec::with_capacity((horizon + 1) * law.len() * dim);
        for time in 0..=horizon {
            for (_, path) in &law {
                values.extend_from_slice(&path[time * dim..(time + 1) * dim]);
            }
        }
        Some(Self {
            horizon,
            dim,
            values,
            weights: law.iter().map(|(weight, _)| *weight).collect(),
            origin: Origin::Exact { complete: true },
        })
    }

    /// Paths given by the caller: `values` as `[T + 1, E, noise dimension]` and E weights that sum to 1.
    ///
    /// # Errors
    /// [`EnvError::Game`] if the lengths do not fit the game, a value is not finite, a weight is negative or the weights do not sum to 1.
    pub fn from_values<R: Real, G: MeanFieldGame<R> + ?Sized>(
        game: &G,
        values: Vec<f64>,
        weights: Vec<f64>,
    ) -> Result<Self, EnvError> {
        let spec = game.spec();
        let expected = (spec.horizon + 1) * weights.len() * spec.noise_dim();
        let total: f64 = weights.iter().sum();
        let message = if weights.is_empty() {
            "0 paths, expected at least 1".to_owned()
        } else if values.len() != expected {
            format!(
                "{} noise values, expected (T + 1) x E x {} = {expected}",
                values.len(),
                spec.noise_dim()
            )
        } else if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            format!("a noise value is {value}, expected finite numbers")
        } else if let Some(weight) = weights.iter().find(|w| **w < 0.0 || w.is_nan()) {
            format!("a path has weight {weight}, expected at least 0")
        } else if (total - 1.0).abs() > 1e-9 {
            format!("path weights sum to {total}, expected 1")
        } else {
            return Ok(Self {
                horizon: spec.horizon,
                dim: spec.noise_dim(),
                values,
                weights,
                origin: Origin::Exact { complete: false },
            });
        };
        Err(EnvError::game(&spec.name, message))
    }

    fn draw<R: Real, G: MeanFieldGame<R> + ?Sized>(
        game: &G,
        paths: usize,
        key: u64,
        label: &str,
    ) -> Result<Self, EnvError> {
        let spec = game.spec();
        if paths == 0 {
            let message = "0 paths, expected at least 1".to_owned();
            return Err(EnvError::game(&spec.name, message));
        }
        let (horizon, dim) = (spec.horizon, spec.noise_dim());
        let row = paths * dim;
        let mut values = vec![0.0; (horizon + 1) * row];
        for path in 0..paths {
            let mut rng = StreamRng::new(key, label, path as u64);
            game.initial_noise(&mut rng, &mut values[path * dim..(path + 1) * dim]);
            for time in 0..horizon {
                let (past, future) = values.split_at_mut((time + 1) * row);
                let now = &past[time * row + path * dim..][..dim];
                game.next_noise(time, now, &mut rng, &mut future[path * dim..][..dim]);
            }
        }
        Ok(Self {
            horizon,
            dim,
            values,
            weights: vec![1.0 / paths as f64; paths],
            origin: Origin::Sampled(paths),
        })
    }

    /// The distinct paths, each with the weight of all its copies, in the order of their first copy.
    ///
    /// Every mean over paths stays what it was, and so does its standard error. Also gives, for each path of `self`, the index of its
    /// distinct path.
    pub fn distinct(&self) -> (Self, Vec<usize>) {
        let same = |a: usize, b: usize| {
            (0..=self.horizon).all(|time| {
                let (a, b) = (self.at(time, a), self.at(time, b));
                a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
            })
        };
        let mut kept: Vec<usize> = Vec::new();
        let mut weights: Vec<f64> = Vec::new();
        let index = (0..self.paths())
            .map(|path| {
                let found = kept.iter().position(|other| same(*other, path));
                let index = found.unwrap_or_else(|| {
                    kept.push(path);
                    weights.push(0.0);
                    kept.len() - 1
                });
                weights[index] += self.weights[path];
                index
            })
            .collect();
        let mut values = Vec::with_capacity((self.horizon + 1) * kept.len() * self.dim);
        for time in 0..=self.horizon {
            for path in &kept {
                values.extend_from_slice(self.at(time, *path));
            }
        }
        let distinct = Self {
            horizon: self.horizon,
            dim: self.dim,
            values,
            weights,
            origin: self.origin,
        };
        (distinct, index)
    }

    /// Number E of paths.
    pub fn paths(&self) -> usize {
        self.weights.len()
    }

    /// Number T of steps.
    pub fn horizon(&self) -> usize {
        self.horizon
    }

    /// Weights of the paths, `[E]`.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// z_t of a path.
    pub fn at(&self, time: usize, path: usize) -> &[f64] {
        &self.values[(time * self.paths() + path) * self.dim..][..self.dim]
    }

    /// Length of z_t.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Whether these are all paths of the game with their probabilities.
    pub fn is_complete(&self) -> bool {
        self.origin == Origin::Exact { complete: true }
    }

    /// Weighted mean over paths of one number each, and its standard error.
    ///
    /// For n independent draws the error is sqrt(Σ_e w_e (x_e - mean)² / (n - 1)); it is 0 for weighted enumerations, which have no sampling
    /// error, and NaN for a single draw.
    pub fn mean(&self, values: &[f64]) -> (f64, f64) {
        let weighted = |f: &dyn Fn(f64) -> f64| -> f64 {
            let terms = values.iter().zip(&self.weights);
            terms.map(|(value, weight)| weight * f(*value)).sum()
        };
        let mean = weighted(&|value| value);
        let error = match self.origin {
            Origin::Exact { .. } => 0.0,
            Origin::Sampled(1) => f64::NAN,
            Origin::Sampled(draws) => {
                (weighted(&|value| (value - mean).powi(2)) / (draws - 1) as f64).sqrt()
            }
        };
        (mean, error)
    }
}

/// A key of a path's own, for everything random on that path that is not common noise.
pub(crate) fn path_key(key: u64, path: usize) -> u64 {
    StreamRng::new(key, "path", path as u64).next_u64()
}
