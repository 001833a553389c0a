//! One module per command.

mod divergence;
mod doctor;
mod export;
mod list;
mod reproduce;
mod train;

pub use divergence::divergence;
pub use doctor::doctor;
pub use export::export;
pub use list::{list, show_config};
pub use reproduce::reproduce;
pub use train::{eval, resume, train};

use std::io::Write;

use crate::failure::Failure;

/// Writes to standard output; a reader that has gone away is no error.
///
/// # Errors
/// [`Failure::Run`] if standard output cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|e| Failure::run(format!("cannot write to standard output: {e}"))),
    }
}
