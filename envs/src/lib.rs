//! Environments with vector rewards and known return laws; no libtorch.
//!
//! Everything here is a pure function of its inputs and of the [`StreamRng`] that it is given.

mod api;
mod cache;
pub mod chain;
pub mod checker;
mod discount;
mod error;
pub mod ground_truth;
pub mod gymnasium;
pub mod maze;
pub mod mean_field;
pub mod optimal;
mod policy;
pub mod probe;
pub mod registry;
mod replicate;
mod stream;
mod vector;
#[cfg(test)]
mod walk;

pub use api::{
    Constraint, ConstraintOp, Env, EnvSpec, ObservationKind, ObservationMut, ObservationSpec,
    Outcome, Picture,
};
pub use cache::{CacheKey, DiskCache};
pub use discount::{Discount, DiscountConfig, operator_norm};
pub use error::EnvError;
pub use policy::{Policy, PolicyConfig};
pub use registry::EnvConfig;
pub use replicate::ReplicatedReward;
pub use stream::StreamRng;
pub use vector::{ObservationBuffer, VectorEnv};

/// Largest length of a reward vector that the suite supports.
pub const MAX_REWARD_DIM: usize = 32;
