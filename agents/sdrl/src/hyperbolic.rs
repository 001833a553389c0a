//! Hyperbolic discounting as a non-negative mixture of geometric discounts.
//!
//! 1/(1+kt) = ∫_0^1 γ^t dμ(γ) for a law μ, so a return under diagonal Γ on a quadrature grid of (0,1), weighted, is nearly a
//! hyperbolic return. The greedy policy is re-evaluated at each step: the naive agent.

use pushforward_envs::DiscountConfig;

/// Last step t of the fit: the mixture matches 1/(1+kt) on t = 0..=100.
const HORIZON: usize = 100;

/// A mixture Σ_i w_i γ_i^t ≈ 1/(1+kt) on t = 0..=100.
#[derive(Clone, Debug, PartialEq)]
pub struct HyperbolicFit {
    /// Discounts γ_i: the Gauss-Legendre nodes of (0,1), ascending.
    pub discounts: Vec<f64>,
    /// Weights w_i >= 0 of least squares.
    pub weights: Vec<f64>,
    /// Largest |Σ_i w_i γ_i^t - 1/(1+kt)| over t = 0..=100.
    pub error: f64,
}

impl HyperbolicFit {
    /// Fits `nodes` geometric discounts to 1/(1+kt), k = `rate` per step.
    pub fn new(nodes: usize, rate: f64) -> Self {
        let discounts = gauss_legendre_nodes(nodes);
        let columns: Vec<Vec<f64>> = discounts
            .iter()
            .map(|gamma| (0..=HORIZON).map(|t| gamma.powi(t as i32)).collect())
            .collect();
        let target: Vec<f64> = (0..=HORIZON)
            .map(|t| 1.0 / (1.0 + rate * t as f64))
            .collect();
        let weights = non_negative_least_squares(&columns, &target);
        let error = residual(&columns, &target, &weights)
            .iter()
            .fold(0.0, |worst: f64, r| worst.max(r.abs()));
        Self {
            discounts,
            weights,
            error,
        }
    }
}

/// The diagonal Γ that a `hyperbolic` utility of `nodes` coordinates needs.
pub fn hyperbolic_discount(nodes: usize) -> DiscountConfig {
    DiscountConfig::Diagonal(gauss_legendre_nodes(nodes))
}

/// The nodes of the `n`-point Gauss-Legendre rule on (0,1), ascending: Newton's method on the Legendre polynomial P_n.
fn gauss_legendre_nodes(n: usize) -> Vec<f64> {
    let mut nodes: Vec<f64> = (0..n)
        .map(|i| {
            // Tricomi's estimate of the i-th root, largest first.
            let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (n as f64 + 0.5)).cos();
            for _ in 0..100 {
                let (mut previous, mut current) = (1.0, x);
                for k in 2..=n {
                    let k = k as f64;
                    let next = ((2.0 * k - 1.0) * x * current - (k - 1.0) * previous) / k;
                    (previous, current) = (current, next);
                }
                // P_n'(x) = n (x P_n - P_{n-1}) / (x² - 1).
                let step = current * (x * x - 1.0) / (n as f64 * (x * current - previous));
                x -= step;
                if step.abs() < 1e-15 {
                    break;
                }
            }
            0.5 * (1.0 + x)
        })
        .collect();
    nodes.reverse();
    nodes
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn residual(columns: &[Vec<f64>], target: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut residual = target.to_vec();
    for (column, weight) in columns.iter().zip(weights) {
        residual
            .iter_mut()
            .zip(column)
            .for_each(|(r, c)| *r -= weight * c);
    }
    residual
}

/// min ‖Σ_i w_i c_i - target‖² over w >= 0, by the active-set method of Lawson and Hanson (1974, chapter 23).
fn non_negative_least_squares(columns: &[Vec<f64>], target: &[f64]) -> Vec<f64> {
    let n = columns.len();
    let mut weights = vec![0.0; n];
    let mut passive = vec![false; n];
    for _ in 0..10 * n {
        let gradient = residual(columns, target, &weights);
        let candidate = (0..n)
            .filter(|i| !passive[*i])
            .map(|i| (i, dot(&columns[i], &gradient)))
            .filter(|(_, slope)| *slope > 1e-12)
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((enter, _)) = candidate else { break };
        passive[enter] = true;
        let mut newest = Some(enter);
        loop {
            let free: Vec<usize> = (0..n).filter(|i| passive[*i]).collect();
            let solution = least_squares(columns, target, &free);
            // An entering weight that comes out negative is rounding at the optimum: leave it out and stop.
            if let Some(enter) = newest.take()
                && free
                    .iter()
                    .zip(&solution)
                    .any(|(i, w)| *i == enter && *w <= 0.0)
            {
                return weights;
            }
            let step = free
                .iter()
                .zip(&solution)
                .filter(|(_, w)| **w <= 0.0)
                .map(|(i, w)| weights[*i] / (weights[*i] - w))
                .fold(1.0, f64::min);
            let feasible = solution.iter().all(|w| *w > 0.0);
            for (i, w) in free.iter().zip(&solution) {
                weights[*i] += if feasible {
                    w - weights[*i]
                } else {
                    step * (w - weights[*i])
                };
                if !feasible && *w <= 0.0 && weights[*i] <= 1e-14 {
                    (weights[*i], passive[*i]) = (0.0, false);
                }
            }
            if feasible {
                break;
            }
        }
    }
    weights
}

/// Least squares over the chosen columns: Gram-Schmidt with every column orthogonalised twice, then back substitution.
/// The columns are nearly dependent, so the normal equations would lose all digits.
fn least_squares(columns: &[Vec<f64>], target: &[f64], chosen: &[usize]) -> Vec<f64> {
    let p = chosen.len();
    let mut basis: Vec<Vec<f64>> = Vec::with_capacity(p);
    let mut upper = vec![0.0; p * p];
    for (j, index) in chosen.iter().enumerate() {
        let mut column = columns[*index].clone();
        for _ in 0..2 {
            for (i, direction) in basis.iter().enumerate() {
                let along = dot(direction, &column);
                upper[i * p + j] += along;
                column
                    .iter_mut()
                    .zip(direction)
                    .for_each(|(c, q)| *c -= along * q);
            }
        }
        let norm = dot(&column, &column).sqrt();
        upper[j * p + j] = norm;
        column.iter_mut().for_each(|c| *c /= norm);
        basis.push(column);
    }
    let mut solution: Vec<f64> = basis
        .iter()
        .map(|direction| dot(direction, target))
        .collect();
    for j in (0..p).rev() {
        solution[j] /= upper[j * p + j];
        for i in 0..j {
            solution[i] -= upper[i * p + j] * solution[j];
        }
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_those_of_the_tables() {
        // On (-1,1): 0 for n = 1; ±1/√3 for n = 2; 0, ±√(3/5) for n = 3; halved and moved to (0,1).
        let expected = [0.5 - 0.5 * 0.6_f64.sqrt(), 0.5, 0.5 + 0.5 * 0.6_f64.sqrt()];
        for (node, value) in gauss_legendre_nodes(3).iter().zip(expected) {
            assert!((node - value).abs() < 1e-15);
        }
        assert!((gauss_legendre_nodes(2)[1] - (0.5 + 0.5 / 3.0_f64.sqrt())).abs() < 1e-15);
        assert!((gauss_legendre_nodes(1)[0] - 0.5).abs() < 1e-15);
        let many = gauss_legendre_nodes(32);
        assert!(many.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(many[0] > 0.0 && many[31] < 1.0);
        // The roots are symmetric about ½, and the largest of 32 on (-1,1) is 0.997263861849.
        assert!((many[31] - 0.5 * (1.0 + 0.997_263_861_849)).abs() < 1e-12);
    }

    #[test]
    fn least_squares_stops_at_zero_where_the_free_solution_is_negative() {
        // Columns (1,0) and (1,1), target (2,-1): the free solution is w = (3,-1); with w_2 = 0 the best w_1 is 2.
        let columns = [vec![1.0, 0.0], vec![1.0, 1.0]];
        let weights = non_negative_least_squares(&columns, &[2.0, -1.0]);
        assert!((weights[0] - 2.0).abs() < 1e-12 && weights[1] == 0.0);
        // Target (2,1): w = (1,1) is free and positive.
        let weights = non_negative_least_squares(&columns, &[2.0, 1.0]);
        assert!((weights[0] - 1.0).abs() < 1e-12 && (weights[1] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_fit_improves_with_nodes() {
        // k = .1: errors about .15 and .04 for 4 and 8 nodes, below .002 from 16 on.
        for (nodes, error) in [(4, 0.15), (8, 0.04)] {
            let fit = HyperbolicFit::new(nodes, 0.1);
            assert!(fit.weights.iter().all(|w| *w >= 0.0));
            assert!(
                (fit.error / error - 1.0).abs() < 0.3,
                "{nodes}: {}",
                fit.error
            );
        }
        for nodes in [16, 32] {
            let fit = HyperbolicFit::new(nodes, 0.1);
            assert!(fit.weights.iter().all(|w| *w >= 0.0) && fit.error < 0.002);
        }
    }

    #[test]
    fn a_fit_satisfies_the_optimality_conditions() {
        let fit = HyperbolicFit::new(8, 0.25);
        let columns: Vec<Vec<f64>> = fit
            .discounts
            .iter()
            .map(|gamma| (0..=HORIZON).map(|t| gamma.powi(t as i32)).collect())
            .collect();
        let target: Vec<f64> = (0..=HORIZON)
            .map(|t| 1.0 / (1.0 + 0.25 * t as f64))
            .collect();
        let left = residual(&columns, &target, &fit.weights);
        for (column, weight) in columns.iter().zip(&fit.weights) {
            let slope = dot(column, &left);
            assert!(
                slope < 1e-9 && (*weight == 0.0 || slope > -1e-9),
                "{slope} {weight}"
            );
        }
    }
}
