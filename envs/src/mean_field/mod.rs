//! Mean-field games: a population law pushed forward through a policy, on common-noise paths.
//!
//! A game says how one individual moves and what it collects ([`MeanFieldGame`]); a simulator pushes the whole population
//! exactly ([`PushForward`]), or individuals one by one ([`Sampled`]).

mod backward;
mod game;
pub mod games;
mod kernels;
mod noise_paths;
mod policies;
mod push_forward;
mod real;
pub mod registry;
mod rollout;
mod sampled;
pub mod solve;
pub mod tabular;
mod transitions;

pub use backward::{Baseline, action_values, structural_gradient};
pub use game::{ActionKind, GameSpec, MeanFieldGame, Moment, NoiseLaw, StateFeatures};
pub use noise_paths::NoisePaths;
pub use policies::Policies;
pub use push_forward::{PushForward, check_game};
pub use real::Real;
pub use registry::{GameConfig, GameSettings};
pub use rollout::Rollout;
pub use sampled::{Crowd, Sampled};
pub use transitions::{Moves, Noise, Room, Transitions};
