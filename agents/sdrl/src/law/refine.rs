//! Local search for the direction in which two laws differ most.

use super::{DIRECTIONS, shadow::Columns, sort::Order};

/// Steps of the refinement.
const REFINEMENT_STEPS: usize = 12;

/// Climbs W_1 of the shadows from a direction by tangent gradient steps, halving the step where it fails; returns the best direction met.
pub(super) fn refine(truth: &Columns, cloud: &Columns, start: &[f32]) -> Vec<f32> {
    let dim = start.len();
    let mut best = start.to_vec();
    if dim == 1 {
        return best;
    }
    // About the distance between neighbouring directions.
    let mut step = if dim == 2 {
        std::f64::consts::PI / DIRECTIONS as f64
    } else {
        0.25
    };
    let mut coupling = Coupling::default();
    let (mut value, mut gradient) = coupling.value_and_gradient(truth, cloud, &best);
    for _ in 0..REFINEMENT_STEPS {
        let along: f64 = best
            .iter()
            .zip(&gradient)
            .map(|(t, g)| f64::from(*t) * g)
            .sum();
        let tangent: Vec<f64> = best
            .iter()
            .zip(&gradient)
            .map(|(t, g)| g - along * f64::from(*t))
            .collect();
        let norm = tangent.iter().map(|t| t * t).sum::<f64>().sqrt();
        if norm <= 1e-12 {
            break;
        }
        let moved: Vec<f64> = best
            .iter()
            .zip(&tangent)
            .map(|(b, t)| f64::from(*b) + step * t / norm)
            .collect();
        let length = moved.iter().map(|t| t * t).sum::<f64>().sqrt();
        let candidate: Vec<f32> = moved.iter().map(|t| (t / length) as f32).collect();
        let (next, next_gradient) = coupling.value_and_gradient(truth, cloud, &candidate);
        if next > value {
            (best, value, gradient) = (candidate, next, next_gradient);
            step *= 1.5;
        } else {
            step *= 0.5;
        }
    }
    best
}

/// Scratch space of the optimal coupling of two shadows.
#[derive(Default)]
struct Coupling {
    truth: Side,
    cloud: Side,
}

/// One shadow of a coupling.
#[derive(Default)]
struct Side {
    projected: Vec<f32>,
    order: Order,
}

impl Side {
    fn set(&mut self, columns: &Columns, direction: &[f32]) {
        columns.project(direction, &mut self.projected);
        self.order.set(&self.projected);
    }
}

impl Coupling {
    /// W_1 of the shadows and its gradient Σ mass · sign(θ·x - θ·y) (x - y) over the monotone coupling.
    fn value_and_gradient(
        &mut self,
        truth: &Columns,
        cloud: &Columns,
        direction: &[f32],
    ) -> (f64, Vec<f64>) {
        self.truth.set(truth, direction);
        self.cloud.set(cloud, direction);
        let mut value = 0.0;
        let mut gradient = vec![0.0; direction.len()];
        let (mut i, mut j) = (0, 0);
        let (mut p, mut q) = (self.cloud.order.index(0), self.truth.order.index(0));
        let (mut left_p, mut left_q) = (cloud.weight(p), truth.weight(q));
        loop {
            let mass = left_p.min(left_q);
            let gap = f64::from(self.cloud.projected[p]) - f64::from(self.truth.projected[q]);
            value += mass * gap.abs();
            let signed = if gap < 0.0 { -mass } else { mass };
            for (k, g) in gradient.iter_mut().enumerate() {
                let x = cloud.values[k * cloud.len + p];
                let y = truth.values[k * truth.len + q];
                *g += signed * f64::from(x - y);
            }
            left_p -= mass;
            left_q -= mass;
            // Rounding may leave a remainder at the very end: whichever side is used up moves on.
            if left_p <= left_q {
                i += 1;
                if i == cloud.len {
                    break;
                }
                p = self.cloud.order.index(i);
                left_p = cloud.weight(p);
            } else {
                j += 1;
                if j == truth.len {
                    break;
                }
                q = self.truth.order.index(j);
                left_q = truth.weight(q);
            }
        }
        (value, gradient)
    }
}
