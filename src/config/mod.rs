//! The configuration of a run and how it is put together.

mod layers;
mod message;

pub use layers::Layers;
