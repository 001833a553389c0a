//! Replay, rollout, networks, optimiser, checkpoints and the trainer loop shared by every agent.

mod actor;
pub mod checkpoint;
pub mod dense;
mod error;
pub mod metrics;
pub mod network;
pub mod optimiser;
pub mod parameters;
pub mod replay;
pub mod rollout;
pub mod run;
pub mod schedule;
pub mod tensor;
pub mod trainer;

pub use actor::Actor;
pub use checkpoint::{Checkpoint, CheckpointStore, NamedArray};
pub use error::CoreError;
pub use pushforward_envs::ObservationBuffer;
pub use replay::{Batch, Replay, ReplayConfig, ReplayShape, VectorStep, available_memory};
pub use rollout::{Behaviour, Collector, CollectorConfig, Episode, EpisodeStatistics, ExtraLayout};
