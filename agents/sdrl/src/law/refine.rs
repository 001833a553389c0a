//! Local search for the direction in which two laws differ most.

use super::{DIRECTIONS, shadow::Columns};

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
    projected: Vec<f32>,
    truth: Vec<(f32, u32)>,
    cloud: Vec<(f32, u32)>,
}

impl Coupling {
    /// W_1 of the shadows and its gradient Σ mass · sign(θ·x - θ·y) (x - y) over the monotone coupling.
    fn value_and_gradient(
        &mut self,
        truth: &Columns,
        cloud: &Columns,
        direction: &[f32],
    ) -> (f64, Vec<f64>) {
        for (columns, order) in [(truth, &mut self.truth), (cloud, &mut self.cloud)] {
            columns.project(direction, &mut self.projected);
            order.clear();
            order.extend(self.projected.iter().zip(0..).map(|(x, i)| (*x, i)));
            order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        }
        let mut value = 0.0;
        let mut gradient = vec![0.0; direction.len()];
        let (mut i, mut j) = (0, 0);
        let (mut left_i, mut left_j) = (cloud.weight(self.cloud[0].1 as usize), truth.weight(0));
        loop {
            let ((x, p), (y, q)) = (self.cloud[i], self.truth[j]);
            let mass = left_i.min(left_j);
            let gap = f64::from(x) - f64::from(y);
            value += mass * gap.abs();
            let signed = if gap < 0.0 { -mass } else { mass };
            for (k, g) in gradient.iter_mut().enumerate() {
                let x = cloud.values[k * cloud.len + p as usize];
                let y = truth.values[k * truth.len + q as usize];
                *g += signed * f64::from(x - y);
            }
            left_i -= mass;
            left_j -= mass;
            // Rounding may leave a remainder at the very end: whichever side is used up moves on.
            if left_i <= left_j {
                i += 1;
                let Some((_, p)) = self.cloud.get(i) else {
                    break;
                };
                left_i = cloud.weight(*p as usize);
            } else {
                j += 1;
                if j == self.truth.len() {
                    break;
                }
                left_j = truth.weight(0);
            }
        }
        (value, gradient)
    }
}
