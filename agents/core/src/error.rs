//! What can go wrong in the core.

use pushforward_envs::EnvError;

/// An error of this crate: one line that says what, what was got and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// An environment, a discount or a policy is not usable.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// The replay buffer was set up or used wrongly, or its saved state does not fit.
    #[error("replay: {0}")]
    Replay(String),
    /// Not enough memory is free for what the settings ask for.
    #[error(
        "{what} needs {needed:.2} GiB of memory, but {available:.2} GiB is available: lower `{setting}`"
    )]
    Memory {
        /// What asks for the memory.
        what: String,
        /// Memory needed, in GiB.
        needed: f64,
        /// Memory available, in GiB.
        available: f64,
        /// The setting to lower.
        setting: String,
    },
    /// A reward is not finite.
    #[error(
        "{name}: environment {environment}, step {step}: reward[{coordinate}] is {value}, expected a finite number"
    )]
    Reward {
        /// Registry name of the environment.
        name: String,
        /// Index of the environment in the vector.
        environment: usize,
        /// Step of the environment, counted from 0 over the whole run.
        step: u64,
        /// Coordinate of the reward vector.
        coordinate: usize,
        /// What was got.
        value: f32,
    },
    /// The collector was set up or used wrongly, or its saved state does not fit.
    #[error("rollout: {0}")]
    Rollout(String),
    /// A checkpoint cannot be written, or is not one of this run.
    #[error("checkpoint {path}: {message}")]
    Checkpoint {
        /// File or folder of the checkpoint.
        path: String,
        /// What was got and what was expected.
        message: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A setting is out of range or does not fit the others: bad input, found before anything runs.
    #[error("{0}")]
    Setting(String),
    /// Tensors do not fit each other.
    #[error("tensor: {0}")]
    Tensor(String),
    /// A loss, gradient or prediction became infinite or not a number.
    #[error("{what} is not finite at step {step}")]
    NonFinite {
        /// Which number, by the name of its tensor.
        what: String,
        /// The update at which it was found.
        step: u64,
    },
    /// libtorch refused an operation; its first line.
    #[error("libtorch: {}", .0.to_string().lines().next().unwrap_or_default())]
    Torch(#[from] tch::TchError),
}

impl CoreError {
    /// An [`CoreError::Io`] about `path`.
    pub fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io {
            path: path.display().to_string(),
            source,
        }
    }
}
