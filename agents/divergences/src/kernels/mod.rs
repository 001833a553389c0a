//! The divergences in pure Rust: samples on a line, samples in R^d, and the fused sliced value and gradient; no libtorch.

pub(crate) mod cramer;
pub(crate) mod fused;
pub(crate) mod line;
pub(crate) mod linear;
pub(crate) mod magnitude;
pub(crate) mod median;
pub(crate) mod mmd;
pub(crate) mod network;
pub(crate) mod pairs;
pub(crate) mod radial;
pub(crate) mod search;
pub(crate) mod simd;
pub(crate) mod sinkhorn;
pub(crate) mod transport;
pub(crate) mod wasserstein;

use std::fmt::Debug;

pub(crate) use line::{Line, LineScratch};

use crate::config::Statistic;

/// Sizes of a batch of pairs of clouds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// B, pairs of clouds.
    pub batch: usize,
    /// N, points of each predicted cloud.
    pub predicted: usize,
    /// M, points of each target cloud.
    pub target: usize,
    /// d, coordinates of a point.
    pub dimension: usize,
}

/// A batch of pairs of clouds in plain buffers, row-major.
#[derive(Clone, Copy, Debug)]
pub struct Clouds<'a> {
    /// The sizes of all buffers.
    pub shape: Shape,
    /// Points `[B, N, d]` into which the gradient goes.
    pub predicted: &'a [f32],
    /// Points `[B, M, d]`.
    pub target: &'a [f32],
    /// Weights `[B, N]`, each row summing to 1; none: 1/N each.
    pub predicted_weights: Option<&'a [f32]>,
    /// Weights `[B, M]`, each row summing to 1; none: 1/M each.
    pub target_weights: Option<&'a [f32]>,
}

/// One pair of clouds of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    pub dimension: usize,
    pub predicted: &'a [f32],
    pub target: &'a [f32],
    pub predicted_weights: Option<&'a [f32]>,
    pub target_weights: Option<&'a [f32]>,
}

impl Element<'_> {
    /// N and M.
    pub fn sizes(&self) -> (usize, usize) {
        (
            self.predicted.len() / self.dimension,
            self.target.len() / self.dimension,
        )
    }
}

impl<'a> Clouds<'a> {
    /// Pair number `index` of the batch.
    pub(crate) fn element(&self, index: usize) -> Element<'a> {
        let Shape {
            predicted: n,
            target: m,
            dimension: d,
            ..
        } = self.shape;
        let row = |weights: Option<&'a [f32]>, size: usize| {
            weights.map(|w| &w[index * size..(index + 1) * size])
        };
        Element {
            dimension: d,
            predicted: &self.predicted[index * n * d..(index + 1) * n * d],
            target: &self.target[index * m * d..(index + 1) * m * d],
            predicted_weights: row(self.predicted_weights, n),
            target_weights: row(self.target_weights, m),
        }
    }
}

/// A base divergence: what a lift carries from the line to R^d.
pub(crate) trait Base: Debug + Send + Sync {
    /// p, such that values are p-th powers of a distance.
    fn exponent(&self) -> f64;

    /// Biased or unbiased self terms.
    fn statistic(&self) -> Statistic {
        Statistic::V
    }

    /// Value on the line and its gradients in x and, where asked, in y (both overwritten), in f64.
    fn line(
        &self,
        line: &Line<'_>,
        scratch: &mut LineScratch,
        gradient: &mut [f64],
        gradient_y: Option<&mut [f64]>,
    ) -> f64;

    /// Values `[B, L]` of samples on lines by tensor operations, differentiable in x.
    #[cfg(feature = "tensor")]
    fn tensor_line(
        &self,
        x: &crate::tensor::Samples,
        y: &crate::tensor::Samples,
    ) -> Result<tch::Tensor, tch::TchError>;

    /// Mean over `directions` (`[L, d]`) and its gradient (overwritten) by a fused f32 kernel, or none where it has no such kernel for these sizes.
    fn fused(
        &self,
        _element: &Element<'_>,
        _directions: &[f32],
        _scratch: &mut Scratch,
        _gradient: &mut [f32],
    ) -> Option<f64> {
        None
    }
}

/// Working memory of one thread, kept between calls.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub line: LineScratch,
    pub fused: fused::FusedScratch,
    pub pairs: pairs::PairsScratch,
    pub points: SampleBuffers,
    pub projected: SampleBuffers,
    pub search: search::SearchScratch,
    pub starts: Vec<f64>,
    pub best: Vec<f64>,
    pub gradient_line: Vec<f64>,
    pub gradient: Vec<f64>,
}

/// Points or projections of one pair of clouds and their masses, in f64.
#[derive(Debug, Default)]
pub(crate) struct SampleBuffers {
    pub x: Vec<f64>,
    pub y: Vec<f64>,
    pub mass_x: Vec<f64>,
    pub mass_y: Vec<f64>,
    pub total: f64,
}

impl SampleBuffers {
    /// Fills the masses from optional weights.
    ///
    /// Without weights a point of x has mass M and a point of y mass N out of N·M: whole numbers, so that cumulative sums are exact.
    pub fn set_masses<W: Copy + Into<f64>>(
        &mut self,
        n: usize,
        m: usize,
        weights_x: Option<&[W]>,
        weights_y: Option<&[W]>,
    ) {
        fn fill<W: Copy + Into<f64>>(out: &mut Vec<f64>, count: usize, weights: Option<&[W]>) {
            out.clear();
            match weights {
                None => out.resize(count, 1.0 / count as f64),
                Some(weights) => {
                    let sum: f64 = weights.iter().map(|&w| w.into()).sum();
                    out.extend(weights.iter().map(|&w| w.into() / sum));
                }
            }
        }
        if weights_x.is_none() && weights_y.is_none() {
            self.mass_x.clear();
            self.mass_x.resize(n, m as f64);
            self.mass_y.clear();
            self.mass_y.resize(m, n as f64);
            self.total = (n * m) as f64;
        } else {
            fill(&mut self.mass_x, n, weights_x);
            fill(&mut self.mass_y, m, weights_y);
            self.total = 1.0;
        }
    }

    /// These buffers as samples on the line.
    pub fn line(&self) -> Line<'_> {
        Line {
            x: &self.x,
            y: &self.y,
            mass_x: &self.mass_x,
            mass_y: &self.mass_y,
            total: self.total,
        }
    }
}

/// Mean over `directions` (`[L, d]`) of the base divergence of the projections, and its gradient (overwritten), in f32 buffers.
pub(crate) fn sliced(
    base: &dyn Base,
    element: &Element<'_>,
    directions: &[f32],
    scratch: &mut Scratch,
    gradient: &mut [f32],
) -> f64 {
    if let Some(value) = base.fused(element, directions, scratch, gradient) {
        return value;
    }
    scratch.load(element);
    let count = directions.len() / element.dimension;
    let mut sum = 0.0;
    scratch.gradient.clear();
    scratch.gradient.resize(gradient.len(), 0.0);
    for direction in directions.chunks_exact(element.dimension) {
        let Scratch {
            line,
            points,
            projected,
            gradient_line,
            gradient,
            ..
        } = scratch;
        sum += one_direction(
            base,
            points,
            direction,
            projected,
            line,
            gradient_line,
            Some(gradient),
        );
    }
    for (out, g) in gradient.iter_mut().zip(&scratch.gradient) {
        *out = (g / count as f64) as f32;
    }
    sum / count as f64
}

impl Scratch {
    /// Copies a pair of clouds to f64.
    pub fn load(&mut self, element: &Element<'_>) {
        let (n, m) = element.sizes();
        let points = &mut self.points;
        points.x.clear();
        points
            .x
            .extend(element.predicted.iter().map(|&v| f64::from(v)));
        points.y.clear();
        points
            .y
            .extend(element.target.iter().map(|&v| f64::from(v)));
        points.set_masses(n, m, element.predicted_weights, element.target_weights);
    }
}

/// Overwrites `out` with the inner products of the rows of `points` and one direction.
pub(crate) fn project<D: Copy + Into<f64>>(out: &mut Vec<f64>, points: &[f64], direction: &[D]) {
    out.clear();
    out.extend(points.chunks_exact(direction.len()).map(|point| {
        point
            .iter()
            .zip(direction)
            .map(|(p, &t)| p * t.into())
            .sum::<f64>()
    }));
}

/// The base divergence along one direction; adds its gradient to `gradient` `[N, d]` where given.
pub(crate) fn one_direction<D: Copy + Into<f64>>(
    base: &dyn Base,
    points: &SampleBuffers,
    direction: &[D],
    projected: &mut SampleBuffers,
    line: &mut LineScratch,
    gradient_line: &mut Vec<f64>,
    gradient: Option<&mut [f64]>,
) -> f64 {
    let d = direction.len();
    project(&mut projected.x, &points.x, direction);
    project(&mut projected.y, &points.y, direction);
    gradient_line.clear();
    gradient_line.resize(projected.x.len(), 0.0);
    let samples = Line {
        x: &projected.x,
        y: &projected.y,
        mass_x: &points.mass_x,
        mass_y: &points.mass_y,
        total: points.total,
    };
    let value = base.line(&samples, line, gradient_line, None);
    if let Some(gradient) = gradient {
        for (row, g) in gradient.chunks_exact_mut(d).zip(gradient_line.iter()) {
            for (out, &t) in row.iter_mut().zip(direction) {
                *out += g * t.into();
            }
        }
    }
    value
}
