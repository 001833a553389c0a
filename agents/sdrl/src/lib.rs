//! Sliced distributional reinforcement learning of vector returns.

mod actor;
mod config;
mod dense;
mod experiment;
mod hyperbolic;
mod judge;
pub mod law;
mod learner;
mod network;
mod policy;
mod run;
mod shard;
mod utility;

pub use actor::SdrlActor;
pub use config::{Backup, Kind, ObjectiveConfig, SdrlConfig, TargetConfig};
pub use experiment::{COLLECTOR_FILE, RolloutConfig, SdrlExperiment, Setup};
pub use judge::{EvalConfig, Judge};
pub use learner::{Learner, LearnerState};
pub use network::{LawNetwork, RepresentationConfig};
pub use policy::{EvaluatedPolicyConfig, SavedAgent, SavedAgentConfig, SavedCheckpoint};
pub use run::SdrlRun;

pub use hyperbolic::{HyperbolicFit, hyperbolic_discount};
pub use utility::{Criterion, Utility, UtilityConfig, UtilityError};
