//! Structural policy gradients for mean-field games with common noise.

pub mod encoder;
pub mod policy;
