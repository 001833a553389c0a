//! What can go wrong with a divergence.

/// An error of this crate: one line that says what, what was got and what was expected.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum DivergenceError {
    /// A setting is out of range or does not fit the others.
    #[error("divergence: {0}")]
    Setting(String),
    /// A buffer or tensor has another shape than the rest of the call implies.
    #[error("divergence: {what}: got {got}, expected {expected}")]
    Shape {
        /// The buffer.
        what: &'static str,
        /// Its length or shape.
        got: String,
        /// The length or shape that was needed.
        expected: String,
    },
    /// A point, a weight or a direction is NaN or infinite.
    #[error("divergence: {what}[{index}] is {value}, expected a finite number")]
    NotFinite {
        /// The buffer.
        what: &'static str,
        /// Flat index of the first such entry.
        index: usize,
        /// What it holds.
        value: f64,
    },
    /// Weights of one cloud are negative or do not sum to 1.
    #[error("divergence: {what} of cloud {cloud}: {message}")]
    Weights {
        /// Which weights.
        what: &'static str,
        /// Index of the cloud in the batch.
        cloud: usize,
        /// What was got and what was expected.
        message: String,
    },
    /// libtorch refused an operation.
    #[error("divergence: tensor operation failed: {0}")]
    Tensor(String),
}
