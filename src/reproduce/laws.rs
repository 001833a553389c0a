//! Weighted clouds of the plane and what they are compared along.

use pushforward_divergences::{Divergence, Evaluation, Points};
use pushforward_envs::StreamRng;
use rand_distr::{Distribution, StandardNormal};

use crate::failure::Failure;

/// A law on finitely many points.
#[derive(Clone, Debug)]
pub struct Law {
    /// Points `[N, d]`.
    pub points: Vec<f64>,
    /// Weights `[N]`, which sum to 1.
    pub weights: Vec<f64>,
}

impl Law {
    /// Equal weights on points of R^d.
    pub fn equal(points: Vec<f64>, dim: usize) -> Self {
        let count = points.len() / dim;
        Self {
            points,
            weights: vec![1.0 / count as f64; count],
        }
    }

    fn as_points(&self) -> Points<'_> {
        Points {
            points: &self.points,
            weights: Some(&self.weights),
        }
    }

    /// The divergence of this law from another, with its gradient in these points.
    pub fn compare(
        &self,
        other: &Self,
        divergence: &dyn Divergence,
        directions: &[f64],
    ) -> Result<Evaluation, Failure> {
        divergence
            .evaluate(&self.as_points(), &other.as_points(), directions)
            .map_err(Failure::run)
    }
}

/// Independent standard normal numbers.
pub fn gaussian(count: usize, rng: &mut StreamRng) -> Vec<f64> {
    (0..count).map(|_| StandardNormal.sample(rng)).collect()
}

/// Equally spaced directions of the half circle, `[count, 2]`.
pub fn half_circle(count: usize) -> Vec<f64> {
    (0..count)
        .flat_map(|k| {
            let angle = k as f64 * std::f64::consts::PI / count as f64;
            [angle.cos(), angle.sin()]
        })
        .collect()
}
