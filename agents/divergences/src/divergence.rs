//! The interface of every divergence.

use std::fmt::Debug;

use pushforward_envs::StreamRng;

use crate::DivergenceError;
use crate::directions::Directions;
use crate::kernels::Clouds;

/// A divergence between clouds of R^d.
///
/// Values are p-th powers, unreduced: one per pair of clouds. Gradients go into the predicted cloud only.
pub trait Divergence: Debug + Send + Sync {
    /// d.
    fn dimension(&self) -> usize;

    /// p, such that values are p-th powers of a distance.
    fn exponent(&self) -> f64;

    /// Directions for one call: drawn directions, the axes, random starts of a search, or none, as the lift needs.
    ///
    /// `batch` is the number of pairs of clouds; with directions per element the result is `[B, L, d]`.
    fn draw(&self, batch: usize, rng: &mut StreamRng) -> Directions;

    /// Checks cloud sizes before a run: at least one point each, and two for the U-statistic.
    fn check_sizes(&self, predicted: usize, target: usize) -> Result<(), DivergenceError>;

    /// Values `[B]` and gradients `[B, N, d]` in the predicted points (both overwritten), in parallel over the batch.
    ///
    /// Max lift: `start` is one more start of each search, see [`Divergence::shared_start`], and `found` receives the direction of each pair of
    /// clouds, `[B, d]`. Each pair of clouds is computed by one thread in a fixed order, so results do not depend on the number of threads.
    /// Errors: wrong lengths, entries that are not finite, weights that do not sum to 1.
    fn value_and_gradient(
        &self,
        clouds: &Clouds<'_>,
        directions: &Directions,
        start: Option<&[f32]>,
        values: &mut [f32],
        gradient: &mut [f32],
        found: Option<&mut [f32]>,
    ) -> Result<(), DivergenceError>;

    /// The direction of the largest mean over the batch, among at most 16 of the directions `found` `[B, d]`, evenly spaced; none for other lifts.
    fn shared_start(&self, clouds: &Clouds<'_>, found: &[f32]) -> Option<Vec<f32>>;

    /// One pair of clouds in f64, with the directions `[L, d]` given; for the max lift they are starts of the search.
    fn evaluate(
        &self,
        predicted: &Points<'_>,
        target: &Points<'_>,
        directions: &[f64],
    ) -> Result<Evaluation, DivergenceError>;

    /// The loss `[B]` of a batch of tensors, differentiable in the predicted points only.
    ///
    /// On the CPU the fused kernel, else tensor operations. `warm_start` (max lift): in, one more start of each search; out,
    /// [`Divergence::shared_start`] of what was found.
    #[cfg(feature = "tensor")]
    fn loss_from(
        &self,
        predicted: &crate::Cloud,
        target: &crate::Cloud,
        directions: &Directions,
        warm_start: &mut Option<Vec<f32>>,
        path: crate::Path,
    ) -> Result<tch::Tensor, DivergenceError>;

    /// [`Divergence::loss_from`] on the fastest path, without a start that is kept between calls.
    #[cfg(feature = "tensor")]
    fn loss(
        &self,
        predicted: &crate::Cloud,
        target: &crate::Cloud,
        directions: &Directions,
    ) -> Result<tch::Tensor, DivergenceError> {
        self.loss_from(
            predicted,
            target,
            directions,
            &mut None,
            crate::Path::Fastest,
        )
    }
}

/// A weighted cloud in f64, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Points<'a> {
    /// Points `[N, d]`.
    pub points: &'a [f64],
    /// Weights `[N]`, used relative to their sum; none: equal.
    pub weights: Option<&'a [f64]>,
}

/// What [`Divergence::evaluate`] finds.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The p-th power: mean or largest over directions, or the closed form.
    pub value: f64,
    /// `value^(1/p)`; none where a U-statistic is negative.
    pub root: Option<f64>,
    /// Standard error of the mean over the directions, taken as independent; none without an average over at least two.
    pub standard_error: Option<f64>,
    /// The direction of the largest value (max lift).
    pub direction: Option<Vec<f64>>,
    /// The value along each given direction (uniform and marginal lifts).
    pub per_direction: Vec<f64>,
    /// Gradient in the predicted points, `[N, d]`.
    pub gradient: Vec<f64>,
}

impl Evaluation {
    /// What is found where no directions play a part.
    pub(crate) fn without_directions(value: f64, exponent: f64, gradient: Vec<f64>) -> Self {
        Self {
            root: (value >= 0.0).then(|| value.powf(1.0 / exponent)),
            value,
            standard_error: None,
            direction: None,
            per_direction: Vec::new(),
            gradient,
        }
    }
}
