//! A distance between point sets through the magnitude of metric spaces.

use super::SampleBuffers;
use super::linear::solve;
use crate::ambient::{Ambient, Room};

/// d(X, Y; t) = 2 Mag_{X∪Y}(t) - Mag_X(t) - Mag_Y(t) of the sets of distinct points, Mag(t) = 1ᵀ K⁻¹ 1 with K_ij = exp(-t ‖x_i - x_j‖).
///
/// t > 0 is in inverse units of the points: small t sees the global shape, large t single points; t → 0 gives 0, t → ∞ the number of points that
/// only one of the sets has. Symmetric and, in Euclidean space, not negative; not a metric for d > 1. Rows that are equal are one point, so
/// multiplicity does not count and weights are refused. The gradient of a point is shared equally by its copies in both clouds, which makes it 0
/// at equal sets. It is not linear in y: as a loss its gradients from single transitions are biased, as those of max slicing are.
/// Source: "Magnitude Distance: A Geometric Measure of Dataset Similarity" (ICML 2026).
///
/// Two points at distance r: Mag = 2 / (1 + e^{-tr}), so single points at distance r are at 2 · 2 / (1 + e^{-tr}) - 2 = 2 tanh(tr/2).
#[derive(Debug, Clone)]
pub(crate) struct Magnitude {
    pub t: f64,
}

/// Working memory.
#[derive(Debug, Default)]
pub(crate) struct MagnitudeRoom {
    /// Points of x, then of y.
    all: Vec<f64>,
    union: SetRoom,
    own: SetRoom,
}

/// Distinct points of a cloud, their weights in the magnitude, and its gradient.
#[derive(Debug, Default)]
struct SetRoom {
    points: Vec<f64>,
    /// The distinct point of each row, and the number of rows of each distinct point.
    index: Vec<usize>,
    copies: Vec<usize>,
    matrix: Vec<f64>,
    weights: Vec<f64>,
    gradient: Vec<f64>,
}

impl Ambient for Magnitude {
    fn exponent(&self) -> f64 {
        1.0
    }

    fn refuses_weights(&self) -> Option<&'static str> {
        Some("magnitude compares sets of points, got weights; leave them out")
    }

    fn value_and_gradient(
        &self,
        points: &SampleBuffers,
        dimension: usize,
        room: &mut Room,
        gradient: &mut [f64],
    ) -> f64 {
        let MagnitudeRoom { all, union, own } = &mut room.magnitude;
        all.clear();
        all.extend_from_slice(&points.x);
        all.extend_from_slice(&points.y);
        union.load(all, dimension);
        let mut value = 2.0 * union.excess(self.t, dimension);
        union.differentiate(self.t, dimension);
        own.load(&points.y, dimension);
        value -= own.excess(self.t, dimension);
        own.load(&points.x, dimension);
        value -= own.excess(self.t, dimension);
        own.differentiate(self.t, dimension);
        for (row, out) in gradient.chunks_exact_mut(dimension).enumerate() {
            for (coordinate, out) in out.iter_mut().enumerate() {
                *out = 2.0 * union.share(row, coordinate, dimension)
                    - own.share(row, coordinate, dimension);
            }
        }
        value
    }
}

impl SetRoom {
    /// Keeps the first of equal rows; 0 equals -0.
    fn load(&mut self, rows: &[f64], dimension: usize) {
        self.points.clear();
        self.index.clear();
        self.copies.clear();
        for row in rows.chunks_exact(dimension) {
            let mut known = self.points.chunks_exact(dimension);
            let index = known.position(|point| point == row).unwrap_or_else(|| {
                self.points.extend_from_slice(row);
                self.copies.push(0);
                self.copies.len() - 1
            });
            self.index.push(index);
            self.copies[index] += 1;
        }
    }

    fn distance(&self, i: usize, j: usize, dimension: usize) -> f64 {
        let [a, b] = [i, j].map(|k| &self.points[k * dimension..][..dimension]);
        let squares = a.iter().zip(b).map(|(p, q)| (p - q) * (p - q));
        squares.sum::<f64>().sqrt()
    }

    /// Mag(t) - 1, which keeps its relative accuracy at tiny t; leaves the weights K⁻¹ 1.
    ///
    /// With K = 11ᵀ - M, M_ij = -expm1(-t ‖x_i - x_j‖) and c = 1ᵀ M⁻¹ 1: K⁻¹ 1 = M⁻¹ 1 / (c - 1) and Mag - 1 = 1 / (c - 1). M is indefinite.
    fn excess(&mut self, t: f64, dimension: usize) -> f64 {
        let n = self.copies.len();
        self.weights.clear();
        self.weights.resize(n, 1.0);
        let solved = n > 1 && {
            self.fill(dimension, |distance| -(-t * distance).exp_m1());
            solve(&mut self.matrix, &mut self.weights)
        };
        // A single point, or points so close that t times their distance is 0.
        if !solved {
            self.weights.fill(1.0 / n as f64);
            return 0.0;
        }
        let excess = 1.0 / (self.weights.iter().sum::<f64>() - 1.0);
        if excess < 0.5 {
            self.weights.iter_mut().for_each(|w| *w *= excess);
            return excess;
        }
        // Far from 1 the difference c - 1 is the one that cancels, and K itself is well conditioned.
        self.fill(dimension, |distance| (-t * distance).exp());
        self.weights.fill(1.0);
        if !solve(&mut self.matrix, &mut self.weights) {
            self.weights.fill(1.0 / n as f64);
            return 0.0;
        }
        self.weights.iter().sum::<f64>() - 1.0
    }

    /// Fills the matrix with a function of the distances.
    fn fill(&mut self, dimension: usize, entry: impl Fn(f64) -> f64) {
        let n = self.copies.len();
        self.matrix.clear();
        for i in 0..n {
            for j in 0..n {
                let value = if j < i {
                    self.matrix[j * n + i]
                } else {
                    entry(self.distance(i, j, dimension))
                };
                self.matrix.push(value);
            }
        }
    }

    /// ∂Mag/∂x_i = 2 t Σ_{j≠i} w_i w_j K_ij (x_i - x_j) / ‖x_i - x_j‖.
    fn differentiate(&mut self, t: f64, dimension: usize) {
        self.gradient.clear();
        self.gradient.resize(self.points.len(), 0.0);
        for i in 0..self.copies.len() {
            for j in (0..self.copies.len()).filter(|&j| j != i) {
                let distance = self.distance(i, j, dimension);
                let kernel = (-t * distance).exp();
                let factor = 2.0 * t * self.weights[i] * self.weights[j] * kernel / distance;
                if factor == 0.0 || !factor.is_finite() {
                    continue;
                }
                for c in 0..dimension {
                    let step = self.points[i * dimension + c] - self.points[j * dimension + c];
                    self.gradient[i * dimension + c] += factor * step;
                }
            }
        }
    }

    /// What one row has of its point's gradient.
    fn share(&self, row: usize, coordinate: usize, dimension: usize) -> f64 {
        let index = self.index[row];
        self.gradient[index * dimension + coordinate] / self.copies[index] as f64
    }
}
