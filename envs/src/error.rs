//! What can go wrong with an environment.

/// An error of this crate: one line that says what, what was got and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// A discount matrix is not usable.
    #[error("discount: {0}")]
    Discount(String),
    /// A setting of an environment is out of range.
    #[error("environment {name}: {message}")]
    Setting {
        /// Registry name of the environment.
        name: String,
        /// What was got and what was expected.
        message: String,
    },
    /// A mean-field game, or something given for one, is out of range.
    #[error("game {name}: {message}")]
    Game {
        /// Registry name of the game.
        name: String,
        /// What was got and what was expected.
        message: String,
    },
    /// A map file is not a maze.
    #[error("map {path}: {message}")]
    Map {
        /// Path or name of the map.
        path: String,
        /// The cell and the reason.
        message: String,
    },
    /// A saved state does not fit the environment.
    #[error("environment state: {0}")]
    State(String),
    /// A policy does not fit the environment.
    #[error("policy: {0}")]
    Policy(String),
    /// An exact enumeration is not possible.
    #[error("enumeration: {0}")]
    Enumeration(String),
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
}

impl EnvError {
    /// A [`EnvError::Game`].
    pub(crate) fn game(name: &str, message: String) -> Self {
        Self::Game {
            name: name.to_owned(),
            message,
        }
    }
}
