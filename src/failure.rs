//! How a command fails.

use pushforward_core::CoreError;

/// Why a command could not do what it was asked, as one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The request itself is wrong, or the environment that it names gives rewards that are no numbers: exit code 2. Unless it is a reward, which
    /// only shows on the way, nothing has been written.
    #[error("{0}")]
    Input(String),
    /// Something went wrong on the way: exit code 1.
    #[error("{0}")]
    Run(String),
}

impl Failure {
    /// A failure that the user can mend by asking differently.
    pub fn input(message: impl std::fmt::Display) -> Self {
        Self::Input(one_line(&message.to_string()))
    }

    /// A failure on the way.
    pub fn run(message: impl std::fmt::Display) -> Self {
        Self::Run(one_line(&message.to_string()))
    }

    /// What stopped a run on the way: bad input if it is a reward that is not finite, or a setting that only then showed to be wrong.
    pub fn on_the_way(error: &CoreError) -> Self {
        match error {
            CoreError::Reward { .. } | CoreError::Setting(_) => Self::input(error),
            _ => Self::run(error),
        }
    }

    /// The process exit code, 1 or 2.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Run(_) => 1,
            Self::Input(_) => 2,
        }
    }
}

/// Joins the non-empty lines of `text` with `; `.
pub fn one_line(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("; ")
}

/// The candidate that `word` most likely meant: the closest by Damerau-Levenshtein distance, if that is at most a third of the
/// word's length (and at least 2).
///
/// ```
/// use pushforward::failure::nearest;
/// assert_eq!(nearest("directons", ["kind", "directions"]), Some("directions"));
/// assert_eq!(nearest("velocity", ["kind", "directions"]), None);
/// ```
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).max(2);
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `, did you mean X?` for the nearest candidate, else the list of all of them.
pub fn suggestion<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    match nearest(word, candidates.iter().copied()) {
        Some(candidate) => format!(", did you mean `{candidate}`?"),
        None => format!(", expected one of: {}", candidates.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_fall_back_to_the_list() {
        assert_eq!(
            suggestion("chian", ["chain", "maze"]),
            ", did you mean `chain`?"
        );
        assert_eq!(
            suggestion("pong-deluxe", ["chain", "maze"]),
            ", expected one of: chain, maze"
        );
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("a\n\n  b \n"), "a; b");
    }
}
