//! The discount matrix Γ.

use serde::{Deserialize, Serialize, de};

use crate::EnvError;

/// A discount Γ as written in a configuration: a number (γI), a list (diagonal) or a list of rows (dense).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DiscountConfig {
    /// γ for every coordinate.
    Scalar(f64),
    /// One γ per coordinate.
    Diagonal(Vec<f64>),
    /// Any matrix with operator norm below 1, by rows.
    Dense(Vec<Vec<f64>>),
}

impl<'de> Deserialize<'de> for DiscountConfig {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = DiscountConfig;

            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("a discount: a number, a list of numbers or a list of rows")
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
                Ok(DiscountConfig::Scalar(value))
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
                Ok(DiscountConfig::Scalar(value as f64))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
                Ok(DiscountConfig::Scalar(value as f64))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(
                self,
                mut sequence: A,
            ) -> Result<Self::Value, A::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Item {
                    Number(f64),
                    Row(Vec<f64>),
                }
                let mut numbers = Vec::new();
                let mut rows = Vec::new();
                while let Some(item) = sequence.next_element()? {
                    match item {
                        Item::Number(number) => numbers.push(number),
                        Item::Row(row) => rows.push(row),
                    }
                }
                match (numbers.is_empty(), rows.is_empty()) {
                    (false, true) => Ok(DiscountConfig::Diagonal(numbers)),
                    (true, false) => Ok(DiscountConfig::Dense(rows)),
                    _ => Err(de::Error::custom(
                        "a discount list holds either numbers (diagonal) or rows (dense), and is not empty",
                    )),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// A validated d x d discount matrix Γ with operator norm below 1, kept as f64, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Discount {
    dim: usize,
    matrix: Vec<f64>,
    scalar: Option<f64>,
    diagonal: bool,
}

impl Discount {
    /// Builds Γ for returns of length `dim`.
    ///
    /// # Errors
    /// [`EnvError::Discount`] if a size differs from `dim`, an entry is not finite, a scalar or diagonal entry is negative, or ‖Γ‖ >= 1.
    pub fn new(config: &DiscountConfig, dim: usize) -> Result<Self, EnvError> {
        let wrong = |message: String| Err(EnvError::Discount(message));
        let mut matrix = vec![0.0; dim * dim];
        let (scalar, diagonal) = match config {
            DiscountConfig::Scalar(gamma) => {
                (0..dim).for_each(|i| matrix[i * dim + i] = *gamma);
                (Some(*gamma), true)
            }
            DiscountConfig::Diagonal(gammas) => {
                if gammas.len() != dim {
                    return wrong(format!(
                        "{} diagonal entries, expected d = {dim}",
                        gammas.len()
                    ));
                }
                (0..dim).for_each(|i| matrix[i * dim + i] = gammas[i]);
                (None, true)
            }
            DiscountConfig::Dense(rows) => {
                if rows.len() != dim || rows.iter().any(|row| row.len() != dim) {
                    let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
                    return wrong(format!(
                        "{} rows of lengths {lengths:?}, expected {dim} x {dim}",
                        rows.len()
                    ));
                }
                matrix = rows.concat();
                (None, false)
            }
        };
        if let Some(entry) = matrix.iter().find(|entry| !entry.is_finite()) {
            return wrong(format!("entry {entry} is not finite"));
        }
        if diagonal && let Some(entry) = matrix.iter().find(|entry| **entry < 0.0) {
            return wrong(format!("entry {entry} is negative, expected 0 <= γ < 1"));
        }
        let discount = Self {
            dim,
            matrix,
            scalar,
            diagonal,
        };
        let norm = discount.operator_norm();
        if norm >= 1.0 {
            return wrong(format!("operator norm {norm:.6}, expected less than 1"));
        }
        Ok(discount)
    }

    /// Length d of the returns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// γ if Γ = γI.
    pub fn scalar(&self) -> Option<f64> {
        self.scalar
    }

    /// Whether Γ has no off-diagonal entries by construction.
    pub fn is_diagonal(&self) -> bool {
        self.diagonal
    }

    /// The entries, row-major.
    pub fn matrix(&self) -> &[f64] {
        &self.matrix
    }

    /// The identity Γ^0, row-major.
    pub fn identity(&self) -> Vec<f64> {
        let mut identity = vec![0.0; self.dim * self.dim];
        (0..self.dim).for_each(|i| identity[i * self.dim + i] = 1.0);
        identity
    }

    /// Replaces `power` = Γ^t by Γ^(t+1) = Γ^t Γ, without allocation beyond a row of stack-sized length.
    pub fn advance(&self, power: &mut [f64]) {
        let dim = self.dim;
        if self.diagonal {
            for i in 0..dim {
                power[i * dim + i] *= self.matrix[i * dim + i];
            }
            return;
        }
        let mut row = [0.0; crate::MAX_REWARD_DIM];
        for i in 0..dim {
            row[..dim].copy_from_slice(&power[i * dim..(i + 1) * dim]);
            for j in 0..dim {
                power[i * dim + j] = (0..dim).map(|k| row[k] * self.matrix[k * dim + j]).sum();
            }
        }
    }

    /// Operator norm (largest singular value) of Γ, by power iteration on ΓᵀΓ; exact for diagonal matrices.
    pub fn operator_norm(&self) -> f64 {
        operator_norm(&self.matrix, self.dim, self.diagonal)
    }
}

/// Operator norm of a row-major `dim` x `dim` matrix.
pub fn operator_norm(matrix: &[f64], dim: usize, diagonal: bool) -> f64 {
    if diagonal {
        return (0..dim)
            .map(|i| matrix[i * dim + i].abs())
            .fold(0.0, f64::max);
    }
    // ΓᵀΓ is symmetric positive semi-definite: squaring it repeatedly and normalising isolates its largest eigenvalue
    // without a starting vector that could miss it.
    let mut gram = vec![0.0; dim * dim];
    for i in 0..dim {
        for j in 0..dim {
            gram[i * dim + j] = (0..dim)
                .map(|k| matrix[k * dim + i] * matrix[k * dim + j])
                .sum();
        }
    }
    let mut log_norm = 0.0;
    let mut weight = 1.0;
    for _ in 0..60 {
        let trace: f64 = (0..dim).map(|i| gram[i * dim + i]).sum();
        if trace <= 0.0 {
            return 0.0;
        }
        log_norm += weight * trace.ln();
        weight *= 0.5;
        gram.iter_mut().for_each(|entry| *entry /= trace);
        let mut square = vec![0.0; dim * dim];
        for i in 0..dim {
            for j in 0..dim {
                square[i * dim + j] = (0..dim)
                    .map(|k| gram[i * dim + k] * gram[k * dim + j])
                    .sum();
            }
        }
        gram = square;
    }
    (0.5 * log_norm).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dense_discount_has_the_norm_of_its_rotation() {
        // [[.85,.1],[-.1,.85]] is sqrt(.85² + .1²) = sqrt(.7325) times a rotation.
        let config = DiscountConfig::Dense(vec![vec![0.85, 0.1], vec![-0.1, 0.85]]);
        let discount = Discount::new(&config, 2).unwrap();
        assert!((discount.operator_norm() - 0.7325_f64.sqrt()).abs() < 1e-12);
        let mut power = discount.identity();
        discount.advance(&mut power);
        discount.advance(&mut power);
        // Γ² = [[.85² - .1², 2·.85·.1], [-2·.85·.1, .85² - .1²]] = [[.7125, .17], [-.17, .7125]].
        for (got, expected) in power.iter().zip([0.7125, 0.17, -0.17, 0.7125]) {
            assert!((got - expected).abs() < 1e-15);
        }
    }

    #[test]
    fn a_shear_is_measured_by_its_singular_value() {
        // [[.5,1],[0,.5]]: ΓᵀΓ = [[.25,.5],[.5,1.25]], largest eigenvalue .75 + sqrt(.25 + .25) = 1.457107.
        let config = DiscountConfig::Dense(vec![vec![0.5, 1.0], vec![0.0, 0.5]]);
        let message = Discount::new(&config, 2).unwrap_err().to_string();
        assert!(message.contains("1.207107"), "{message}");
    }
}
