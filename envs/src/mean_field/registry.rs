//! The table of games, and how a configuration becomes one.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use crate::EnvError;
use crate::registry::{explain, nearest_match};

use super::game::MeanFieldGame;
use super::games::beach_bar::BeachBarConfig;
use super::games::linear_quadratic::LinearQuadraticConfig;
use super::games::macro_economy::MacroConfig;
use super::real::Real;

/// Settings of one kind of game: a plain serde struct (`deny_unknown_fields, default`) that can build it in either precision.
pub trait GameSettings: Default + Serialize + DeserializeOwned {
    /// Builds the game registered as `name`.
    ///
    /// # Errors
    /// [`EnvError::Game`] with the setting that is out of range.
    fn build<R: Real>(&self, name: &str) -> Result<Box<dyn MeanFieldGame<R>>, EnvError>;
}

/// Every game of the suite, one line each: name, settings type, what it is.
macro_rules! games {
    ($($name:literal, $settings:ty, $summary:literal;)*) => {
        /// Name and one-line summary of every game, in the table's order.
        pub fn summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
            [$(($name, $summary)),*].into_iter()
        }

        /// Checks the settings' keys and types and fills in the defaults.
        fn resolve(name: &str, table: Table) -> Result<Table, EnvError> {
            match name {
                $($name => {
                    let settings: $settings = parse(name, table)?;
                    Table::try_from(&settings).map_err(|error| EnvError::game(name, error.to_string()))
                })*
                _ => Err(unknown(name)),
            }
        }

        fn build<R: Real>(name: &str, table: Table) -> Result<Box<dyn MeanFieldGame<R>>, EnvError> {
            match name {
                $($name => parse::<$settings>(name, table)?.build(name),)*
                _ => Err(unknown(name)),
            }
        }
    };
}

games! {
    "linear-quadratic", LinearQuadraticConfig, "a line, S = 99: stay near the mean while a hidden shock pushes everybody";
    "beach-bar", BeachBarConfig, "a line, S = 101: stay near a bar that may close half way";
    "macro", MacroConfig, "households, S = 1000: save and consume while savings set interest and wages";
}

/// Names of all games, in the table's order.
pub fn names() -> impl Iterator<Item = &'static str> {
    summaries().map(|(name, _)| name)
}

fn unknown(name: &str) -> EnvError {
    let message = match nearest_match(name, names()) {
        Some(nearest) => format!("no such game, nearest match `{nearest}`"),
        None => format!(
            "no such game, expected one of {}",
            names().collect::<Vec<_>>().join(", ")
        ),
    };
    EnvError::game(name, message)
}

fn parse<S: GameSettings>(name: &str, table: Table) -> Result<S, EnvError> {
    table
        .try_into()
        .map_err(|error: toml::de::Error| EnvError::game(name, explain(&error)))
}

/// A game's registry name with its settings, as in `{ name = "beach-bar", congestion = 0.1 }`.
///
/// Keys that the game does not have are refused with the nearest match; keys left out are filled in with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct GameConfig {
    name: String,
    settings: Table,
}

impl GameConfig {
    /// A configuration from a registry name and settings, which may be empty.
    ///
    /// # Errors
    /// [`EnvError::Game`] for an unknown name, an unknown key or a value of the wrong type.
    pub fn new(name: &str, settings: Table) -> Result<Self, EnvError> {
        Ok(Self {
            settings: resolve(name, settings)?,
            name: name.to_owned(),
        })
    }

    /// The registry name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings, defaults filled in.
    pub fn settings(&self) -> &Table {
        &self.settings
    }

    /// Builds the game, in `f32` for training or `f64` for references.
    ///
    /// # Errors
    /// [`EnvError::Game`] with the setting that is out of range.
    pub fn build<R: Real>(&self) -> Result<Box<dyn MeanFieldGame<R>>, EnvError> {
        build(&self.name, self.settings.clone())
    }
}

impl Default for GameConfig {
    fn default() -> Self {
        Self::new("linear-quadratic", Table::new()).expect("the registry has the game")
    }
}

impl Serialize for GameConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.settings.len() + 1))?;
        map.serialize_entry("name", &self.name)?;
        for (key, value) in &self.settings {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for GameConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Table::deserialize(deserializer)?;
        let name = match settings.remove("name") {
            Some(Value::String(name)) => name,
            Some(other) => {
                return Err(D::Error::custom(format!(
                    "game: name = {other}, expected a string"
                )));
            }
            None => return Err(D::Error::custom("game: `name` is missing")),
        };
        Self::new(&name, settings).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        match toml::from_str::<GameConfig>(text) {
            Err(error) => error.message().to_owned(),
            Ok(config) => match config.build::<f32>() {
                Err(error) => error.to_string(),
                Ok(game) => super::super::check_game(&*game).unwrap_err().to_string(),
            },
        }
    }

    #[test]
    fn every_default_builds_under_its_name_and_is_written_back() {
        assert_eq!(names().count(), 3);
        for name in names() {
            let config = GameConfig::new(name, Table::new()).unwrap();
            assert_eq!(config.build::<f64>().unwrap().spec().name, name);
            let text = toml::to_string(&config).unwrap();
            assert_eq!(toml::from_str::<GameConfig>(&text).unwrap(), config);
        }
    }

    #[test]
    fn bad_configurations_are_refused_in_one_line() {
        for (text, expected) in [
            (
                "name = \"beach-bat\"",
                "game beach-bat: no such game, nearest match `beach-bar`",
            ),
            (
                "name = \"pendulum\"",
                "expected one of linear-quadratic, beach-bar, macro",
            ),
            ("name = \"macro\"\nshare = 3", "nearest match `shares`"),
            ("name = 3", "game: name = 3, expected a string"),
            ("horizon = 3", "game: `name` is missing"),
            (
                "name = \"macro\"\nhorizon = 0",
                "horizon = 0, expected at least 1",
            ),
            (
                "name = \"beach-bar\"\ndiscount = 1.5",
                "discount = 1.5, expected 0 < discount <= 1",
            ),
            (
                "name = \"linear-quadratic\"\ncorrelation = 1.5",
                "correlation = 1.5, expected 0 to 1",
            ),
            (
                "name = \"linear-quadratic\"\nnoise_scale = nan",
                "noise_scale = NaN, expected 0 to 1000000",
            ),
            (
                "name = \"beach-bar\"\nnoise_probabilities = [0.5, 0.5]",
                "expected an odd number of them",
            ),
            (
                "name = \"beach-bar\"\nbar = 101",
                "bar = 101, expected 0 to 100",
            ),
            (
                "name = \"macro\"\nwealth_high = 0.0",
                "wealth_high = 0, expected 0.001 to",
            ),
        ] {
            let message = refused(text);
            assert!(
                message.contains(expected) && !message.contains('\n'),
                "{message}"
            );
        }
    }
}
