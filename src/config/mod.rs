//! The configuration of a run and how it is put together.

mod layers;
mod message;
mod run;

pub use layers::Layers;
pub use run::{read, resolve};
