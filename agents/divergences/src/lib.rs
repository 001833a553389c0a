//! Divergences between point clouds through their one-dimensional shadows.
//!
//! A [`DivergenceConfig`] names a base divergence on the line (Wasserstein, Cramér, MMD) and a lift that carries it to R^d: the mean over
//! directions, the largest over directions, the closed-form mean over the sphere, the coordinate axes, or, for MMD, the kernel on R^d itself.
//! Energy distance, Sinkhorn divergence, magnitude distance and exact transport compare clouds of R^d without a lift.
//! [`DivergenceConfig::build`] gives a [`Divergence`], whose fused kernel returns value and gradient together. All values are p-th powers
//! (W_p^p, ℓ2², MMD²), whose gradients are finite at distance zero.
//!
//! Uniform slicing contracts under a scalar discount only: with a discount matrix diag(.95, .05) the sliced Wasserstein distance of two laws with
//! equal low moments can grow threefold in one Bellman step, where max slicing shrinks by the operator norm.
//!
//! The kernels need no libtorch; the default feature `tensor` adds the layer for tch tensors.

mod ambient;
mod checks;
mod config;
mod directions;
mod divergence;
mod error;
mod kernels;
mod lifted;
#[cfg(feature = "tensor")]
mod tensor;

pub use config::{
    DIVERGENCES, DivergenceConfig, Entry, KernelConfig, LIFTS, LiftConfig, MedianOf, SearchConfig,
    Statistic,
};
pub use directions::{Directions, Draw};
pub use divergence::{Divergence, Evaluation, Points};
pub use error::DivergenceError;
pub use kernels::radial::mean_coordinate_power;
pub use kernels::{Clouds, Shape};
#[cfg(feature = "tensor")]
pub use tensor::{Cloud, Path};
