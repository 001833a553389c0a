//! Replay, rollout, networks, optimiser, checkpoints and the trainer loop shared by every agent.

mod actor;
mod error;
pub mod metrics;

pub use actor::{Actor, ObservationBuffer};
pub use error::CoreError;
