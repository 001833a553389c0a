//! Runs: their folders, what is recorded, and how several seeds are put together.

mod aggregate;
mod folder;
mod observer;
pub mod pictures;
mod session;

pub use aggregate::{aggregate, parse_seeds};
pub use folder::{RunFolder, next_free};
pub use observer::{Recorder, write_evaluation};
pub use session::{Ending, Session};
