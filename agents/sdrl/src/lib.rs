//! Sliced distributional reinforcement learning of vector returns.

mod hyperbolic;
mod utility;

pub use hyperbolic::{HyperbolicFit, hyperbolic_discount};
pub use utility::{Criterion, Utility, UtilityConfig, UtilityError};
