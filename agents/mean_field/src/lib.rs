//! Structural policy gradients for mean-field games with common noise.
//!
//! A population of exchangeable individuals is pushed forward through the policy on several common-noise paths; an individual is too small to
//! move it. The gradient of the value with respect to the policy's probabilities is therefore known in closed form once populations and values
//! are: one forward pass of the networks for each episode, plain kernels for the simulator and the value recursion, one backward pass. The
//! policies are judged by exploitability: what one individual could gain by leaving them.

mod agent;
mod config;
mod encoder;
mod experiment;
mod judge;
mod policy;

pub use agent::{Episode, StructuralAgent};
pub use config::{EvalConfig, Kind, PathsConfig, StructuralConfig, StructuralRun};
pub use encoder::{Encoder, EncoderPass};
pub use experiment::StructuralExperiment;
pub use judge::evaluate;
pub use policy::{PolicyNetwork, PolicyPass};
