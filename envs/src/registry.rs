//! The table of environments, and how a configuration becomes one.

use serde::de::{DeserializeOwned, Error as _};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use toml::{Table, Value};

use crate::chain::ChainConfig;
use crate::gymnasium::CartPoleConfig;
use crate::maze::MazeConfig;
use crate::{Env, EnvError};

/// Settings of one kind of environment: a plain serde struct (`deny_unknown_fields, default`) that can build it.
pub trait EnvSettings: Default + Serialize + DeserializeOwned {
    /// Builds the environment registered as `name`.
    ///
    /// # Errors
    /// [`EnvError`] with the setting that is out of range.
    fn build(&self, name: &str) -> Result<Box<dyn Env>, EnvError>;
}

type Built = Result<Box<dyn Env>, EnvError>;

/// One line of the table: a name, what it is, and its settings type.
struct Entry {
    name: &'static str,
    summary: &'static str,
    /// Checks the settings' keys and types and fills in the defaults.
    resolve: fn(&str, Table) -> Result<Table, EnvError>,
    build: fn(&str, Table) -> Built,
}

const fn entry<S: EnvSettings>(name: &'static str, summary: &'static str) -> Entry {
    Entry {
        name,
        summary,
        resolve: |name, table| {
            let settings: S = parse(name, table)?;
            Table::try_from(&settings).map_err(|error| setting_error(name, error.to_string()))
        },
        build: |name, table| parse::<S>(name, table)?.build(name),
    }
}

/// Every environment of the suite, one line each.
const ENTRIES: &[Entry] = &[
    entry::<ChainConfig>(
        "chain",
        "states on a line with a choice of reward laws, d = 1 to 32",
    ),
    entry::<MazeConfig>("maze", "a maze read from a map file (map = \"path.json\")"),
    entry::<MazeConfig>(
        "maze/exclusive",
        "5 x 5, d = 2: two ways through, one per reward",
    ),
    entry::<MazeConfig>("maze/inclusive", "5 x 5, d = 2: rewards that come together"),
    entry::<MazeConfig>(
        "maze/four-rewards",
        "5 x 5, d = 4: four rewards on two branches",
    ),
    entry::<MazeConfig>(
        "maze/constraint-a",
        "5 x 5, d = 3: three constraints, forced moves",
    ),
    entry::<MazeConfig>(
        "maze/constraint-b",
        "7 x 7, d = 3: three constraints, long detours",
    ),
    entry::<MazeConfig>(
        "maze/constraint-c",
        "6 x 6, d = 3: three constraints, one forced move",
    ),
    entry::<MazeConfig>(
        "maze/constraint-d",
        "6 x 6, d = 3: constraints that only the joint law can tell apart",
    ),
    entry::<CartPoleConfig>(
        "gymnasium/cartpole",
        "a pole on a cart, d = 1, from the gymnasium-rs crate",
    ),
];

/// Names of all environments, in the table's order.
pub fn names() -> impl Iterator<Item = &'static str> {
    ENTRIES.iter().map(|entry| entry.name)
}

/// Name and one-line summary of every environment, in the table's order.
pub fn summaries() -> impl Iterator<Item = (&'static str, &'static str)> {
    ENTRIES.iter().map(|entry| (entry.name, entry.summary))
}

/// The candidate nearest to a mistyped word (Damerau-Levenshtein distance), unless none is near.
///
/// ```
/// use pushforward_envs::registry::nearest_match;
/// assert_eq!(nearest_match("maze/exclusiv", ["chain", "maze/exclusive"]), Some("maze/exclusive"));
/// assert_eq!(nearest_match("pendulum", ["chain"]), None);
/// ```
pub fn nearest_match<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(word, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 2 <= word.len().max(candidate.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

fn setting_error(name: &str, message: String) -> EnvError {
    EnvError::Setting {
        name: name.to_owned(),
        message,
    }
}

fn find(name: &str) -> Result<&'static Entry, EnvError> {
    ENTRIES
        .iter()
        .find(|entry| entry.name == name)
        .ok_or_else(|| {
            setting_error(
                name,
                match nearest_match(name, names()) {
                    Some(nearest) => format!("no such environment, nearest match `{nearest}`"),
                    None => format!(
                        "no such environment, expected one of {}",
                        names().collect::<Vec<_>>().join(", ")
                    ),
                },
            )
        })
}

fn parse<S: EnvSettings>(name: &str, table: Table) -> Result<S, EnvError> {
    table
        .try_into()
        .map_err(|error: toml::de::Error| setting_error(name, explain(&error)))
}

/// One line for a settings error, with the nearest match where serde lists what it expected.
pub(crate) fn explain(error: &toml::de::Error) -> String {
    let message = error.message();
    let words: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let [word, candidates @ ..] = words.as_slice()
        && message.starts_with("unknown ")
        && let Some(nearest) = nearest_match(word, candidates.iter().copied())
    {
        return format!("{message}; nearest match `{nearest}`");
    }
    // The whole text has the key on a second line.
    error.to_string().trim().replace('\n', " ")
}

/// An environment's registry name with its settings, as in
/// `{ name = "maze/exclusive", observation = "features", max_steps = 150 }`.
///
/// Keys that the environment does not have are refused with the nearest match; keys left out are filled in with its defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvConfig {
    name: String,
    settings: Table,
}

impl EnvConfig {
    /// A configuration from a registry name and settings, which may be empty.
    ///
    /// # Errors
    /// [`EnvError::Setting`] for an unknown name, an unknown key or a value of the wrong type.
    pub fn new(name: &str, settings: Table) -> Result<Self, EnvError> {
        let settings = (find(name)?.resolve)(name, settings)?;
        Ok(Self {
            name: name.to_owned(),
            settings,
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

    /// The settings as the type that the registry's line has for this name.
    ///
    /// # Errors
    /// [`EnvError::Setting`] if `S` is another environment's type.
    pub fn parse<S: EnvSettings>(&self) -> Result<S, EnvError> {
        parse(&self.name, self.settings.clone())
    }

    /// Builds the environment.
    ///
    /// # Errors
    /// [`EnvError`] with the setting that is out of range or the map's fault.
    pub fn build(&self) -> Result<Box<dyn Env>, EnvError> {
        (find(&self.name)?.build)(&self.name, self.settings.clone())
    }
}

impl Default for EnvConfig {
    fn default() -> Self {
        Self::new("chain", Table::new()).expect("the registry has the chain")
    }
}

impl Serialize for EnvConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.settings.len() + 1))?;
        map.serialize_entry("name", &self.name)?;
        for (key, value) in &self.settings {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for EnvConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut settings = Table::deserialize(deserializer)?;
        let name = match settings.remove("name") {
            Some(Value::String(name)) => name,
            Some(other) => {
                return Err(D::Error::custom(format!(
                    "environment: name = {other}, expected a string"
                )));
            }
            None => return Err(D::Error::custom("environment: `name` is missing")),
        };
        Self::new(&name, settings).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        toml::from_str::<EnvConfig>(text)
            .unwrap_err()
            .message()
            .to_owned()
    }

    #[test]
    fn names_are_unique_and_every_entry_has_a_summary() {
        let mut sorted: Vec<_> = names().collect();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), 10);
        assert!(summaries().all(|(_, summary)| !summary.is_empty()));
    }

    #[test]
    fn a_configuration_is_filled_in_and_written_back() {
        let config: EnvConfig =
            toml::from_str("name = \"chain\"\nlength = 3\nslip = 0\nreward = { kind = \"gaussian\", cov = [[1, 0], [0, 2]] }").unwrap();
        let settings: ChainConfig = config.parse().unwrap();
        assert_eq!((settings.length, settings.slip, settings.dim), (3, 0.0, 2));
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<EnvConfig>(&text).unwrap(), config);
        assert_eq!(config.build().unwrap().spec().observation.shape, [3]);
    }

    #[test]
    fn every_default_builds_under_its_name() {
        for name in names().filter(|name| *name != "maze") {
            let env = EnvConfig::new(name, Table::new()).unwrap().build().unwrap();
            assert_eq!(env.spec().name, name);
        }
    }

    #[test]
    fn bad_configurations_are_refused_in_one_line() {
        for (text, expected) in [
            (
                "name = \"maze/exclusiv\"",
                "environment maze/exclusiv: no such environment, nearest match `maze/exclusive`",
            ),
            (
                "name = \"pendulum\"",
                "environment pendulum: no such environment, expected one of chain, maze, ",
            ),
            ("name = \"chain\"\nlenght = 3", "nearest match `length`"),
            (
                "name = \"maze/inclusive\"\nobservation = \"imag\"",
                "nearest match `image`",
            ),
            (
                "name = \"chain\"\nreward = { kind = \"exclusiv\" }",
                "nearest match `exclusive`",
            ),
            (
                "name = \"chain\"\nreward = { kind = \"exclusive\", mean = [1] }",
                "unknown field `mean`",
            ),
            (
                "name = \"chain\"\nlength = \"3\"",
                "invalid type: string \"3\", expected usize in `length`",
            ),
            (
                "name = \"chain\"\nlength = -3",
                "invalid value: integer `-3`, expected usize in `length`",
            ),
            ("name = 3", "environment: name = 3, expected a string"),
            ("length = 3", "environment: `name` is missing"),
        ] {
            let message = refused(text);
            assert!(
                message.contains(expected) && !message.contains('\n'),
                "{message}"
            );
        }
    }
}
