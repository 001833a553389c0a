//! Sliced distributional reinforcement learning of vector returns.

mod actor;
mod config;
mod hyperbolic;
pub mod law;
mod learner;
mod network;
mod utility;

pub use actor::SdrlActor;
pub use config::{Backup, ObjectiveConfig, SdrlConfig, TargetConfig};
pub use learner::{Learner, LearnerState};
pub use network::{LawNetwork, RepresentationConfig};

pub use hyperbolic::{HyperbolicFit, hyperbolic_discount};
pub use utility::{Criterion, Utility, UtilityConfig, UtilityError};
