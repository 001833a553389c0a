//! Environments with vector rewards and known return laws; no libtorch.
//!
//! Everything here is a pure function of its inputs and of the [`StreamRng`] that it is given.

mod api;
mod discount;
mod error;
mod policy;
mod stream;
#[cfg(test)]
mod walk;

pub use api::{
    Constraint, ConstraintOp, Env, EnvSpec, ObservationKind, ObservationMut, ObservationSpec,
    Outcome, Picture,
};
pub use discount::{Discount, DiscountConfig, operator_norm};
pub use error::EnvError;
pub use policy::{Policy, PolicyConfig};
pub use stream::StreamRng;

/// Largest length of a reward vector that the suite supports.
pub const MAX_REWARD_DIM: usize = 32;
