//! The debiased entropic transport divergence on R^d.

use super::SampleBuffers;
use super::linear::solve;
use crate::ambient::{Ambient, Room};

/// S_ε(x, y) = OT_ε(x, y) - ½ OT_ε(x, x) - ½ OT_ε(y, y), where OT_ε = min_P ⟨P, C⟩ + ε KL(P | a bᵀ) and C_ij = ‖x_i - y_j‖².
///
/// ε is in squared units of the points: ε → 0 gives W_2², ε → ∞ gives ‖mean x - mean y‖². The gradient holds the plans fixed (envelope theorem):
/// 2 Σ_j P^xy_ij (x_i - y_j) - 2 Σ_k P^xx_ik (x_i - x_k). It is not linear in y, so its gradients from single transitions are biased.
/// Source: Genevay, Peyré and Cuturi (AISTATS 2018), eq. 3; Feydy et al. (AISTATS 2019), eq. 3; for agents Sinkhorn DRL (NeurIPS 2024).
#[derive(Debug, Clone)]
pub(crate) struct Sinkhorn {
    pub epsilon: f64,
}

/// Working memory.
#[derive(Debug, Default)]
pub(crate) struct SinkhornRoom {
    a: Vec<f64>,
    b: Vec<f64>,
    cost: Vec<f64>,
    /// The plan `[n, m]` of the potentials tried last.
    plan: Vec<f64>,
    /// Potential of the first cloud; that of the second always is its best answer.
    f: Vec<f64>,
    trial: Vec<f64>,
    /// Largest exponent and sum of each column.
    top: Vec<f64>,
    sum: Vec<f64>,
    /// Σ_j P_ij.
    rows: Vec<f64>,
    trial_rows: Vec<f64>,
    step: Vec<f64>,
    hessian: Vec<f64>,
}

/// Σ_i |a_i - Σ_j P_ij| at which the potentials count as found; the value's error is of second order in it.
const TOLERANCE: f64 = 1e-12;
/// The same while ε still falls.
const COARSE_TOLERANCE: f64 = 1e-4;
/// Steps at one ε. At the last, the dual value reached, a lower bound, is taken: only for ε below about 1e-4 of the largest cost.
const STEPS: usize = 200;
const COARSE_STEPS: usize = 40;
/// Alternating updates before the first Newton step.
const SWEEPS: usize = 3;

impl Ambient for Sinkhorn {
    fn exponent(&self) -> f64 {
        2.0
    }

    fn value_and_gradient(
        &self,
        points: &SampleBuffers,
        dimension: usize,
        room: &mut Room,
        gradient: &mut [f64],
    ) -> f64 {
        gradient.fill(0.0);
        let room = &mut room.sinkhorn;
        let x = (&points.x[..], &points.mass_x[..]);
        let y = (&points.y[..], &points.mass_y[..]);
        let mut value = 0.0;
        for (first, second, factor, moves) in
            [(x, y, 1.0, 1.0), (x, x, -0.5, -1.0), (y, y, -0.5, 0.0)]
        {
            room.load(first, second, dimension);
            value += factor * room.transport(self.epsilon);
            if moves == 0.0 {
                continue;
            }
            // Both sides of the plan of x with itself move with x, which cancels its factor of ½.
            let plan = room.plan.chunks_exact(room.b.len());
            let rows = first.0.chunks_exact(dimension).zip(plan);
            for (out, (point, plan)) in gradient.chunks_exact_mut(dimension).zip(rows) {
                for (other, mass) in second.0.chunks_exact(dimension).zip(plan) {
                    for ((out, p), q) in out.iter_mut().zip(point).zip(other) {
                        *out += moves * 2.0 * mass * (p - q);
                    }
                }
            }
        }
        value
    }
}

impl SinkhornRoom {
    /// Fills costs and weights.
    fn load(
        &mut self,
        (x, mass_x): (&[f64], &[f64]),
        (y, mass_y): (&[f64], &[f64]),
        dimension: usize,
    ) {
        let normalise = |out: &mut Vec<f64>, mass: &[f64]| {
            let sum: f64 = mass.iter().sum();
            out.clear();
            out.extend(mass.iter().map(|m| m / sum));
        };
        normalise(&mut self.a, mass_x);
        normalise(&mut self.b, mass_y);
        self.cost.clear();
        for point in x.chunks_exact(dimension) {
            let row = y.chunks_exact(dimension).map(|other| {
                let squares = point.iter().zip(other).map(|(p, q)| (p - q) * (p - q));
                squares.sum::<f64>()
            });
            self.cost.extend(row);
        }
    }

    /// OT_ε; leaves the plan.
    ///
    /// Newton's method on the concave dual in f, with g eliminated; ε first falls from the largest cost, where the problem is easy.
    fn transport(&mut self, epsilon: f64) -> f64 {
        let n = self.a.len();
        self.f.clear();
        self.f.resize(n, 0.0);
        self.trial.resize(n, 0.0);
        self.rows.resize(n, 0.0);
        self.trial_rows.resize(n, 0.0);
        let largest = self.cost.iter().fold(0.0_f64, |a, c| a.max(*c));
        let mut coarse = largest / 4.0;
        while coarse > epsilon {
            self.ascend(coarse, COARSE_TOLERANCE, COARSE_STEPS);
            coarse /= 4.0;
        }
        self.ascend(epsilon, TOLERANCE, STEPS)
    }

    fn ascend(&mut self, epsilon: f64, tolerance: f64, steps: usize) -> f64 {
        self.trial.copy_from_slice(&self.f);
        let mut value = self.try_out(epsilon);
        self.rows.copy_from_slice(&self.trial_rows);
        for step in 0..steps {
            let miss: f64 = self
                .rows
                .iter()
                .zip(&self.a)
                .map(|(r, a)| (r - a).abs())
                .sum();
            if miss <= tolerance {
                break;
            }
            value = match (step >= SWEEPS)
                .then(|| self.newton(epsilon, value, miss))
                .flatten()
            {
                Some(value) => value,
                None => self.sweep(epsilon),
            };
            self.f.copy_from_slice(&self.trial);
            self.rows.copy_from_slice(&self.trial_rows);
        }
        value
    }

    /// Dual value, plan and row sums at the potential `trial`. The plan's column sums are b: g is the best for this f.
    fn try_out(&mut self, epsilon: f64) -> f64 {
        let m = self.b.len();
        self.top.clear();
        self.top.resize(m, f64::NEG_INFINITY);
        self.plan.clear();
        for (i, row) in self.cost.chunks_exact(m).enumerate() {
            let (f, absent) = (self.trial[i], self.a[i] == 0.0);
            for (top, cost) in self.top.iter_mut().zip(row) {
                let exponent = if absent {
                    f64::NEG_INFINITY
                } else {
                    (f - cost) / epsilon
                };
                *top = top.max(exponent);
                self.plan.push(exponent);
            }
        }
        self.sum.clear();
        self.sum.resize(m, 0.0);
        for (row, a) in self.plan.chunks_exact_mut(m).zip(&self.a) {
            for ((entry, top), sum) in row.iter_mut().zip(&self.top).zip(&mut self.sum) {
                *entry = a * (*entry - top).exp();
                *sum += *entry;
            }
        }
        let mut value: f64 = self.a.iter().zip(&self.trial).map(|(a, f)| a * f).sum();
        for ((sum, top), b) in self.sum.iter_mut().zip(&self.top).zip(&self.b) {
            value -= b * epsilon * (top + sum.ln());
            *sum = b / *sum;
        }
        for (row, total) in self.plan.chunks_exact_mut(m).zip(&mut self.trial_rows) {
            row.iter_mut()
                .zip(&self.sum)
                .for_each(|(entry, scale)| *entry *= scale);
            *total = row.iter().sum();
        }
        value
    }

    /// One alternating update: f_i + ε log(a_i / Σ_j P_ij), which never lowers the dual value.
    fn sweep(&mut self, epsilon: f64) -> f64 {
        for i in 0..self.a.len() {
            let ratio = self.a[i] / self.rows[i];
            let step = if ratio > 0.0 && ratio.is_finite() {
                ratio.ln()
            } else {
                0.0
            };
            self.trial[i] = self.f[i] + epsilon * step;
        }
        self.try_out(epsilon)
    }

    /// One Newton step, shortened until the dual value rises enough; none if it does not.
    ///
    /// (diag(r) - P diag(1/b) Pᵀ) δ = ε (a - r); constants are its null space, which a rank-one term fills.
    fn newton(&mut self, epsilon: f64, value: f64, miss: f64) -> Option<f64> {
        let (n, m) = (self.a.len(), self.b.len());
        // A failed trial has left another plan.
        self.trial.copy_from_slice(&self.f);
        self.try_out(epsilon);
        self.hessian.clear();
        self.hessian.resize(n * n, 1.0 / (n * n) as f64);
        let inverse = &mut self.sum;
        inverse.clear();
        inverse.extend(self.b.iter().map(|b| if *b > 0.0 { 1.0 / b } else { 0.0 }));
        for i in 0..n {
            for k in 0..=i {
                let (first, second) = (&self.plan[i * m..][..m], &self.plan[k * m..][..m]);
                let products = first.iter().zip(second).zip(&*inverse);
                let overlap: f64 = products.map(|((p, q), inverse)| p * q * inverse).sum();
                self.hessian[i * n + k] -= overlap;
                if k < i {
                    self.hessian[k * n + i] -= overlap;
                }
            }
            // A point without weight has no row.
            self.hessian[i * n + i] += if self.a[i] == 0.0 { 1.0 } else { self.rows[i] };
        }
        self.step.clear();
        let misses = self.a.iter().zip(&self.rows);
        self.step.extend(misses.map(|(a, r)| epsilon * (a - r)));
        if !solve(&mut self.hessian, &mut self.step) {
            return None;
        }
        let misses = self.a.iter().zip(&self.rows);
        let slope: f64 = misses
            .zip(&self.step)
            .map(|((a, r), step)| (a - r) * step)
            .sum();
        let mut length = 1.0;
        for _ in 0..10 {
            for ((trial, f), step) in self.trial.iter_mut().zip(&self.f).zip(&self.step) {
                *trial = f + length * step;
            }
            let reached = self.try_out(epsilon);
            let left: f64 = self
                .trial_rows
                .iter()
                .zip(&self.a)
                .map(|(r, a)| (r - a).abs())
                .sum();
            // Near the top the rise drowns in rounding; there the miss must fall.
            if reached >= value + 1e-4 * length * slope && reached.is_finite() && slope > 0.0
                || left < 0.5 * miss
            {
                return Some(reached);
            }
            length *= 0.3;
        }
        None
    }
}
