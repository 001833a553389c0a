//! Utilities of a joint return law: what a control agent is greedy for.
//!
//! The same rule serves acting and targets. It picks one action, never a mixture of tied ones.

use pushforward_core::ExtraLayout;
use pushforward_envs::{Constraint, ConstraintOp, Discount, EnvSpec};
use serde::{Deserialize, Serialize};

use crate::hyperbolic::{HyperbolicFit, hyperbolic_discount};

/// A utility as written in a configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum UtilityConfig {
    /// w · E Z.
    Linear {
        /// w, one per return coordinate; empty (the default) for all ones.
        #[serde(default)]
        weights: Vec<f64>,
    },
    /// -E[max_i w_i |z*_i - Z_i|].
    Chebyshev {
        /// w >= 0, one per return coordinate; empty (the default) for all ones.
        #[serde(default)]
        weights: Vec<f64>,
        /// z*, one per return coordinate.
        reference: Vec<f64>,
    },
    /// Mean of the worst fraction α of w·Z: (1/α) ∫_0^α F^{-1}(u) du.
    Cvar {
        /// w, one per return coordinate; empty (the default) for all ones.
        #[serde(default)]
        weights: Vec<f64>,
        /// Fraction α in (0, 1]; 1 is the mean.
        alpha: f64,
    },
    /// Expected return under the discount 1/(1+kt), a weighted sum of coordinates whose Γ is diagonal on a Gauss-Legendre grid.
    Hyperbolic {
        /// k > 0, per step.
        k: f64,
    },
    /// Probability that the discounted return from the start of the episode meets every constraint.
    JointConstraint {
        /// Of the joint law, or of its marginals as if they were independent.
        #[serde(default)]
        criterion: Criterion,
        /// The constraints; the environment's own where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        constraints: Option<Vec<Constraint>>,
    },
}

impl Default for UtilityConfig {
    fn default() -> Self {
        Self::Linear {
            weights: Vec::new(),
        }
    }
}

/// How a `joint-constraint` utility combines constraints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Criterion {
    /// P(all constraints hold), from the joint particles.
    #[default]
    Joint,
    /// The product of per-constraint probabilities: the baseline that ignores correlation.
    Marginal,
}

/// A utility that does not fit: one line that says what was got and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("utility: {0}")]
pub struct UtilityError(String);

#[derive(Clone, Debug)]
enum Rule {
    /// w·E[Z], also for hyperbolic.
    Linear(Vec<f64>),
    Chebyshev {
        weights: Vec<f64>,
        reference: Vec<f64>,
    },
    Cvar {
        weights: Vec<f64>,
        alpha: f64,
    },
    Constraints {
        criterion: Criterion,
        constraints: Vec<Constraint>,
    },
}

/// An action's standing, compared field by field: the utility, then the two tie breakers.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Standing(f64, f64, f64);

/// A utility, validated against the return dimension, Γ and the environment.
///
/// It owns its scratch space, so calls allocate nothing; clone it for each thread.
#[derive(Clone, Debug)]
pub struct Utility {
    rule: Rule,
    dim: usize,
    layout: ExtraLayout,
    hyperbolic_error: Option<f64>,
    sorted: Vec<f64>,
    held: Vec<u64>,
}

impl Utility {
    /// Builds the utility for returns of length `dim` discounted by `discount` in an environment described by `env`.
    ///
    /// # Errors
    /// [`UtilityError`] if a length differs from `dim`, a number is out of range, Γ is not the grid of `hyperbolic`, or there are no constraints.
    pub fn new(
        config: &UtilityConfig,
        dim: usize,
        discount: &Discount,
        env: &EnvSpec,
    ) -> Result<Self, UtilityError> {
        if discount.dim() != dim {
            return Err(UtilityError(format!(
                "the discount is {0} x {0}, expected d = {dim}",
                discount.dim()
            )));
        }
        let mut hyperbolic_error = None;
        let rule = match config {
            UtilityConfig::Linear { weights } => Rule::Linear(vector("weights", weights, dim)?),
            UtilityConfig::Chebyshev { weights, reference } => {
                let weights = vector("weights", weights, dim)?;
                if let Some(weight) = weights.iter().find(|w| **w < 0.0) {
                    return Err(UtilityError(format!(
                        "chebyshev weight {weight}, expected at least 0"
                    )));
                }
                if reference.len() != dim {
                    return Err(wrong_length("reference", reference.len(), dim));
                }
                let reference = vector("reference", reference, dim)?;
                Rule::Chebyshev { weights, reference }
            }
            UtilityConfig::Cvar { weights, alpha } => {
                if !(*alpha > 0.0 && *alpha <= 1.0) {
                    return Err(UtilityError(format!(
                        "alpha = {alpha}, expected 0 < alpha <= 1"
                    )));
                }
                Rule::Cvar {
                    weights: vector("weights", weights, dim)?,
                    alpha: *alpha,
                }
            }
            UtilityConfig::Hyperbolic { k } => {
                if !(*k > 0.0 && k.is_finite()) {
                    return Err(UtilityError(format!(
                        "k = {k}, expected a positive rate per step"
                    )));
                }
                let grid = Discount::new(&hyperbolic_discount(dim), dim)
                    .map_err(|error| UtilityError(error.to_string()))?;
                let close = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-6;
                if !discount.matrix().iter().zip(grid.matrix()).all(close) {
                    return Err(UtilityError(format!(
                        "hyperbolic needs the diagonal discount of {dim} Gauss-Legendre nodes on (0,1), {:.6?}",
                        HyperbolicFit::new(dim, *k).discounts
                    )));
                }
                let fit = HyperbolicFit::new(dim, *k);
                hyperbolic_error = Some(fit.error);
                Rule::Linear(fit.weights)
            }
            UtilityConfig::JointConstraint {
                criterion,
                constraints,
            } => {
                let constraints = constraints
                    .clone()
                    .unwrap_or_else(|| env.constraints.clone());
                if constraints.is_empty() {
                    return Err(UtilityError(format!(
                        "joint-constraint needs constraints: {} has none and the configuration gives none",
                        env.name
                    )));
                }
                if let Some(constraint) = constraints.iter().find(|c| c.dim >= dim) {
                    return Err(UtilityError(format!(
                        "a constraint is on dim {}, expected 0..{dim}",
                        constraint.dim
                    )));
                }
                if let Some(constraint) = constraints.iter().find(|c| !c.value.is_finite()) {
                    return Err(UtilityError(format!(
                        "a constraint has value {}, expected a finite number",
                        constraint.value
                    )));
                }
                Rule::Constraints {
                    criterion: *criterion,
                    constraints,
                }
            }
        };
        let held = match &rule {
            Rule::Constraints { constraints, .. } => vec![0; constraints.len()],
            _ => Vec::new(),
        };
        Ok(Self {
            rule,
            dim,
            layout: ExtraLayout::new(discount),
            hyperbolic_error,
            sorted: Vec::new(),
            held,
        })
    }

    /// Whether the rule depends on the past through C_t and Γ^t.
    pub fn needs_extra(&self) -> bool {
        matches!(self.rule, Rule::Constraints { .. })
    }

    /// Length k of the extra inputs [C_t, Γ^t], 0 where the rule needs none.
    pub fn extra_length(&self) -> usize {
        if self.needs_extra() {
            self.layout.length()
        } else {
            0
        }
    }

    /// The extra inputs at the start of an episode, `[k]`.
    pub fn start_extra(&self) -> Vec<f32> {
        if self.needs_extra() {
            self.layout.start()
        } else {
            Vec::new()
        }
    }

    /// Largest error of the hyperbolic fit over t = 0..=100, where the utility is hyperbolic.
    pub fn hyperbolic_error(&self) -> Option<f64> {
        self.hyperbolic_error
    }

    /// The greedy action for `particles` `[actions, n, d]`, each of weight 1/n, given `extra` `[k]` (see [`Utility::extra_length`]).
    ///
    /// Ties go to the larger mean of per-constraint probabilities, then to the larger summed signed slack (mean over particles), where
    /// there are constraints, and then to the lowest index. An action whose particles are not numbers is never preferred.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn greedy(&mut self, particles: &[f32], actions: usize, n: usize, extra: &[f32]) -> usize {
        let row = n * self.dim;
        let mut best = (0, self.standing(&particles[..row], n, extra));
        for action in 1..actions {
            let standing = self.standing(&particles[action * row..(action + 1) * row], n, extra);
            if standing > best.1 || (best.1.0.is_nan() && !standing.0.is_nan()) {
                best = (action, standing);
            }
        }
        best.0
    }

    /// Writes the utility of each action into `values` `[actions]`: in units of return, or a probability for `joint-constraint`.
    ///
    /// # Panics
    /// If a slice is too short.
    pub fn values(&mut self, particles: &[f32], n: usize, extra: &[f32], values: &mut [f64]) {
        let row = n * self.dim;
        // Constraint standings are counts, so that ties are exact: the product of c counts is n^c times a probability.
        let scale = match &self.rule {
            Rule::Constraints {
                criterion: Criterion::Joint,
                ..
            } => n as f64,
            Rule::Constraints { constraints, .. } => (n as f64).powi(constraints.len() as i32),
            _ => 1.0,
        };
        for (value, cloud) in values.iter_mut().zip(particles.chunks_exact(row)) {
            *value = self.standing(cloud, n, extra).0 / scale;
        }
    }

    fn standing(&mut self, cloud: &[f32], n: usize, extra: &[f32]) -> Standing {
        let points = cloud.chunks_exact(self.dim);
        let count = n as f64;
        match &self.rule {
            Rule::Linear(weights) => {
                let total: f64 = points.map(|point| weighted_sum(weights, point)).sum();
                Standing(total / count, 0.0, 0.0)
            }
            Rule::Chebyshev { weights, reference } => {
                let total: f64 = points
                    .map(|point| {
                        (0..point.len())
                            .map(|i| weights[i] * (reference[i] - f64::from(point[i])).abs())
                            .fold(0.0, f64::max)
                    })
                    .sum();
                Standing(-total / count, 0.0, 0.0)
            }
            Rule::Cvar { weights, alpha } => {
                self.sorted.clear();
                self.sorted
                    .extend(points.map(|point| weighted_sum(weights, point)));
                self.sorted.sort_unstable_by(f64::total_cmp);
                // The worst α n particles, the last of them in part.
                let tail = alpha * count;
                let whole = (tail.floor() as usize).min(n);
                let mut total: f64 = self.sorted[..whole].iter().sum();
                if whole < n {
                    total += (tail - whole as f64) * self.sorted[whole];
                }
                Standing(total / tail, 0.0, 0.0)
            }
            Rule::Constraints {
                criterion,
                constraints,
            } => {
                self.held.fill(0);
                let (mut all, mut slack) = (0_u64, 0.0);
                for point in points {
                    let mut holds = true;
                    for (constraint, held) in constraints.iter().zip(&mut self.held) {
                        let total = self.layout.total(extra, point, constraint.dim);
                        let margin = match constraint.op {
                            ConstraintOp::Less => constraint.value - total,
                            ConstraintOp::Greater => total - constraint.value,
                        };
                        slack += margin;
                        holds &= margin > 0.0;
                        *held += u64::from(margin > 0.0);
                    }
                    all += u64::from(holds);
                }
                let primary = match criterion {
                    Criterion::Joint => all as f64,
                    Criterion::Marginal => self.held.iter().map(|held| *held as f64).product(),
                };
                let mean = self.held.iter().sum::<u64>() as f64;
                Standing(primary, mean, slack / count)
            }
        }
    }
}

fn weighted_sum(weights: &[f64], point: &[f32]) -> f64 {
    weights
        .iter()
        .zip(point)
        .map(|(w, z)| w * f64::from(*z))
        .sum()
}

fn wrong_length(name: &str, got: usize, dim: usize) -> UtilityError {
    UtilityError(format!(
        "{got} {name}, expected {dim} (one per return coordinate)"
    ))
}

/// A configured vector of length `dim`, all ones if it is empty.
fn vector(name: &str, values: &[f64], dim: usize) -> Result<Vec<f64>, UtilityError> {
    if values.is_empty() {
        return Ok(vec![1.0; dim]);
    }
    if values.len() != dim {
        return Err(wrong_length(name, values.len(), dim));
    }
    if let Some(value) = values.iter().find(|value| !value.is_finite()) {
        return Err(UtilityError(format!(
            "{name} hold {value}, expected finite numbers"
        )));
    }
    Ok(values.to_vec())
}

#[cfg(test)]
#[path = "utility_tests.rs"]
mod tests;
