//! Exact optimal transport on R^d, for evaluation.

use super::SampleBuffers;
use crate::DivergenceError;
use crate::ambient::{Ambient, Room};

/// W_p^p(x, y) = min_P Σ_ij P_ij ‖x_i - y_j‖^p over the couplings P of both clouds, exactly.
///
/// Gradient: that of the cost under the plan found, Σ_j P_ij p ‖x_i - y_j‖^{p-2} (x_i - y_j), 0 where points coincide. At most 256 points in
/// each cloud, and no loss for training: O(N³). Source: Peyré and Cuturi, Computational Optimal Transport (2019), ch. 3.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    pub p: f64,
}

/// Largest number of points in a cloud.
const LARGEST: usize = 256;

impl Ambient for Transport {
    fn exponent(&self) -> f64 {
        self.p
    }

    fn evaluation_only(&self) -> bool {
        true
    }

    fn check_sizes(&self, predicted: usize, target: usize) -> Result<(), DivergenceError> {
        for (what, count) in [("predicted points", predicted), ("target points", target)] {
            if count > LARGEST {
                return Err(DivergenceError::Shape {
                    what,
                    got: format!("{count} per cloud"),
                    expected: format!("at most {LARGEST} for exact transport"),
                });
            }
        }
        Ok(())
    }

    fn value_and_gradient(
        &self,
        points: &SampleBuffers,
        dimension: usize,
        _room: &mut Room,
        gradient: &mut [f64],
    ) -> f64 {
        let (n, m) = (points.mass_x.len(), points.mass_y.len());
        let distance = |i: usize, j: usize| {
            let x = &points.x[i * dimension..][..dimension];
            let y = &points.y[j * dimension..][..dimension];
            let squares = x.iter().zip(y).map(|(p, q)| (p - q) * (p - q));
            squares.sum::<f64>().sqrt()
        };
        let cost: Vec<f64> = (0..n * m)
            .map(|k| distance(k / m, k % m).powf(self.p))
            .collect();
        let plan = cheapest(&cost, &points.mass_x, &points.mass_y);
        gradient.fill(0.0);
        let mut value = 0.0;
        for (k, mass) in plan.iter().enumerate().filter(|(_, mass)| **mass > 0.0) {
            let (i, j, mass) = (k / m, k % m, mass / points.total);
            value += mass * cost[k];
            let apart = distance(i, j);
            if apart == 0.0 {
                continue;
            }
            let factor = mass * self.p * apart.powf(self.p - 2.0);
            for c in 0..dimension {
                gradient[i * dimension + c] +=
                    factor * (points.x[i * dimension + c] - points.y[j * dimension + c]);
            }
        }
        value
    }
}

/// The cheapest plan `[n, m]` that moves the masses `supply` to `demand`, of equal sums.
///
/// Successive shortest paths with potentials: each search (Dijkstra over the dense graph) starts from all points with mass left and ends at the
/// nearest with demand left, and moves as much as the path carries.
fn cheapest(cost: &[f64], supply: &[f64], demand: &[f64]) -> Vec<f64> {
    let (n, m) = (supply.len(), demand.len());
    let (mut left, mut missing) = (supply.to_vec(), demand.to_vec());
    let mut plan = vec![0.0; n * m];
    // Nodes 0..n are points of x, n..n + m points of y.
    let mut potential = vec![0.0; n + m];
    let dust = 1e-14 * supply.iter().sum::<f64>();
    while left.iter().any(|mass| *mass > dust) && missing.iter().any(|mass| *mass > dust) {
        let mut length: Vec<f64> = left
            .iter()
            .map(|mass| if *mass > dust { 0.0 } else { f64::INFINITY })
            .chain(std::iter::repeat_n(f64::INFINITY, m))
            .collect();
        let mut done = vec![false; n + m];
        let mut before = vec![usize::MAX; n + m];
        let end = loop {
            let open = (0..n + m).filter(|&node| !done[node]);
            let nearest = open.min_by(|&a, &b| length[a].total_cmp(&length[b]));
            let Some(node) = nearest.filter(|&node| length[node].is_finite()) else {
                return plan;
            };
            done[node] = true;
            if node >= n && missing[node - n] > dust {
                break node;
            }
            // Rounding may leave a reduced cost a little below 0.
            let mut relax = |other: usize, reduced: f64| {
                let through = length[node] + reduced.max(0.0);
                if !done[other] && through < length[other] {
                    length[other] = through;
                    before[other] = node;
                }
            };
            if node < n {
                for j in 0..m {
                    let reduced = cost[node * m + j] + potential[node] - potential[n + j];
                    relax(n + j, reduced);
                }
            } else {
                let j = node - n;
                for i in (0..n).filter(|i| plan[i * m + j] > 0.0) {
                    relax(i, potential[node] - potential[i] - cost[i * m + j]);
                }
            }
        };
        for node in 0..n + m {
            potential[node] += length[node].min(length[end]);
        }
        // The edges of the path, from its end: forward ones carry any amount, backward ones what they have.
        let mut amount = missing[end - n];
        let mut node = end;
        while before[node] != usize::MAX {
            let from = before[node];
            if node < n {
                amount = amount.min(plan[node * m + from - n]);
            }
            node = from;
        }
        amount = amount.min(left[node]);
        left[node] -= amount;
        missing[end - n] -= amount;
        let mut node = end;
        while before[node] != usize::MAX {
            let from = before[node];
            if node < n {
                plan[node * m + from - n] -= amount;
            } else {
                plan[from * m + node - n] += amount;
            }
            node = from;
        }
    }
    plan
}
