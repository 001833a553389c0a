//! Layers of settings: a preset, files and `--set`, merged as TOML tables, each leaf with the place it came from.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::message;
use crate::failure::Failure;

/// Settings merged from several sources, later ones on top.
///
/// Tables merge key by key. Where a layer changes the `kind` of a section, or the `name` of the section `env`, the settings below it stay if
/// the new kind knows them too, and are dropped if not.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    table: Table,
    origins: BTreeMap<String, String>,
    /// Settings that were made for another kind of their section.
    stale: BTreeSet<String>,
}

impl Layers {
    /// Adds TOML text; `source` names it in errors, such as `run.toml` or `preset chain-exclusive`.
    ///
    /// # Errors
    /// [`Failure::Input`] with the line and column if the text is not TOML.
    pub fn text(&mut self, source: &str, text: &str) -> Result<(), Failure> {
        let table: Table = text
            .parse()
            .map_err(|error: toml::de::Error| broken(source, text, &error))?;
        let spans = DeTable::parse(text).map_err(|error| broken(source, text, &error))?;
        let mut origins = BTreeMap::new();
        collect_lines(spans.get_ref(), "", text, source, &mut origins);
        self.merge(table, origins);
        Ok(())
    }

    /// Adds a TOML file.
    ///
    /// # Errors
    /// [`Failure::Input`] if it cannot be read or is not TOML.
    pub fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::input(format!("cannot read {shown}: {error}")))?;
        self.text(&shown, &text)
    }

    /// Adds assignments `a.b.c=value`; a value that is not TOML is taken as a string.
    ///
    /// # Errors
    /// [`Failure::Input`] if an assignment has no `=`, an empty key, or a key that goes through a value.
    pub fn set(&mut self, assignments: &[String]) -> Result<(), Failure> {
        let mut table = Table::new();
        let mut origins = BTreeMap::new();
        for assignment in assignments {
            let wrong = |why: &str| {
                Failure::input(format!(
                    "--set {assignment}: {why}, expected section.key=value"
                ))
            };
            let (path, value) = assignment.split_once('=').ok_or(wrong("no `=`"))?;
            let path = path.trim();
            let keys: Vec<&str> = path.split('.').map(str::trim).collect();
            if keys.iter().any(|key| key.is_empty()) {
                return Err(wrong("empty key"));
            }
            let value = parse_value(value.trim());
            origins.insert(path.to_owned(), format!("--set {assignment}"));
            let mut section = &mut table;
            for key in &keys[..keys.len() - 1] {
                section = section
                    .entry(*key)
                    .or_insert_with(|| Value::Table(Table::new()))
                    .as_table_mut()
                    .ok_or(wrong("the key goes through a value"))?;
            }
            section.insert(keys[keys.len() - 1].to_owned(), value);
        }
        self.merge(table, origins);
        Ok(())
    }

    /// Gives every section that is set without its `kind` the kind that it has in `defaults`.
    ///
    /// # Errors
    /// [`Failure::Input`] if `defaults` has no TOML form.
    pub fn fill_kinds<T: Serialize>(&mut self, defaults: &T) -> Result<(), Failure> {
        let defaults = Table::try_from(defaults)
            .map_err(|error| Failure::input(format!("configuration: {error}")))?;
        fill_kinds(&mut self.table, &defaults);
        Ok(())
    }

    /// The text that the dotted `path` is set to.
    pub fn text_at(&self, path: &str) -> Option<&str> {
        lookup(&self.table, path)?.as_str()
    }

    /// Whether some layer sets the dotted `path`.
    pub fn sets(&self, path: &str) -> bool {
        self.origins.contains_key(path)
    }

    /// Reads the merged settings as a `T`.
    ///
    /// # Errors
    /// [`Failure::Input`] naming the section, the key, what was expected, the nearest match and where the setting came from.
    pub fn resolve<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let mut table = self.table.clone();
        loop {
            let error = match serde_path_to_error::deserialize(Value::Table(table.clone())) {
                Ok(settings) => return Ok(settings),
                Err(error) => error,
            };
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            let text = error.inner().message();
            let culprit = culprit::<T>(&table, path, text);
            let within =
                |stale: &&String| culprit == **stale || culprit.starts_with(&format!("{stale}."));
            match self.stale.iter().find(within) {
                Some(stale) if lookup(&table, stale).is_some() => remove(&mut table, stale),
                _ => {
                    let line = message::describe(&culprit, text, |path| self.origin(path));
                    return Err(Failure::input(line));
                }
            }
        }
    }

    fn origin(&self, path: &str) -> Option<String> {
        let below = format!("{path}.");
        self.origins.get(path).cloned().or_else(|| {
            self.origins
                .iter()
                .find(|(key, _)| key.starts_with(&below))
                .map(|(_, origin)| origin.clone())
        })
    }

    fn merge(&mut self, table: Table, origins: BTreeMap<String, String>) {
        merge_tables(&mut self.table, table, "", &mut self.stale);
        let within = |stale: &str, key: &str| key == stale || key.starts_with(&format!("{stale}."));
        self.stale
            .retain(|stale| !origins.keys().any(|key| within(stale, key)));
        self.origins.extend(origins);
    }
}

/// A TOML value, or the text itself as a string.
fn parse_value(text: &str) -> Value {
    format!("value = {text}")
        .parse::<Table>()
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The path of the setting that `message` is about.
///
/// Serde buffers tagged and flattened sections and so loses the path inside them; the culprit is the one entry without
/// which the message changes.
fn culprit<T: DeserializeOwned>(table: &Table, path: String, message: &str) -> String {
    if message.starts_with("unknown field") {
        let key = message.split('`').nth(1).unwrap_or_default();
        if path == key || path.ends_with(&format!(".{key}")) {
            return path;
        }
        let here = join(&path, key);
        // Inside a tagged section the path ends at the section; the key may lie deeper.
        return match lookup(table, &here) {
            Some(_) => here,
            None => descendant(table, &path, key).unwrap_or(here),
        };
    }
    if message.starts_with("missing field") {
        return path;
    }
    let Some(section) = lookup(table, &path).and_then(Value::as_table) else {
        return path;
    };
    for key in section
        .keys()
        .filter(|key| *key != "kind" && *key != "name")
    {
        let suspect = join(&path, key);
        let mut trial = table.clone();
        remove(&mut trial, &suspect);
        let same = matches!(
            T::deserialize(Value::Table(trial)),
            Err(error) if error.message() == message
        );
        if !same {
            return culprit::<T>(table, suspect, message);
        }
    }
    path
}

fn merge_tables(base: &mut Table, top: Table, path: &str, stale: &mut BTreeSet<String>) {
    let tag = if path == "env" { "name" } else { "kind" };
    if let (Some(old), Some(new)) = (base.get(tag), top.get(tag))
        && old != new
        && !path.is_empty()
    {
        let siblings = base.keys().filter(|key| *key != tag);
        stale.extend(siblings.map(|key| join(path, key)));
    }
    for (key, value) in top {
        match (base.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => {
                merge_tables(old, new, &join(path, &key), stale);
            }
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn fill_kinds(table: &mut Table, defaults: &Table) {
    for (key, default) in defaults {
        let (Some(Value::Table(own)), Value::Table(default)) = (table.get_mut(key), default) else {
            continue;
        };
        if let Some(kind) = default.get("kind") {
            let own_kind = own.entry("kind").or_insert_with(|| kind.clone());
            if own_kind != kind {
                continue;
            }
        }
        fill_kinds(own, default);
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

fn lookup<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    let mut keys = path.split('.');
    let mut value = table.get(keys.next()?)?;
    for key in keys {
        value = value.as_table()?.get(key)?;
    }
    Some(value)
}

/// The path of the first entry named `key` in the sections below `path`.
fn descendant(table: &Table, path: &str, key: &str) -> Option<String> {
    let section = match path {
        "" => table,
        path => lookup(table, path)?.as_table()?,
    };
    section
        .iter()
        .filter_map(|(name, value)| Some((join(path, name), value.as_table()?)))
        .find_map(|(below, inner)| match inner.contains_key(key) {
            true => Some(join(&below, key)),
            false => descendant(table, &below, key),
        })
}

fn remove(table: &mut Table, path: &str) {
    match path.split_once('.') {
        None => {
            table.remove(path);
        }
        Some((key, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(key) {
                remove(inner, rest);
            }
        }
    }
}

fn broken(source: &str, text: &str, error: &toml::de::Error) -> Failure {
    let place = match error.span() {
        Some(span) => {
            let before = &text[..span.start.min(text.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            format!(" line {line} column {column}")
        }
        None => String::new(),
    };
    Failure::input(format!(
        "{source}{place}: not valid TOML: {}",
        error.message()
    ))
}

fn collect_lines(
    table: &DeTable<'_>,
    path: &str,
    text: &str,
    source: &str,
    origins: &mut BTreeMap<String, String>,
) {
    for (key, value) in table {
        let here = join(path, key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect_lines(inner, &here, text, source, origins),
            _ => {
                let line = text[..key.span().start].matches('\n').count() + 1;
                origins.insert(here, format!("{source} line {line}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Run {
        seed: u64,
        agent: Agent,
    }

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, deny_unknown_fields)]
    struct Agent {
        particles: usize,
        lift: Option<Lift>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
    enum Lift {
        Uniform {
            directions: usize,
        },
        Max {
            starts: usize,
            steps: usize,
            #[serde(default)]
            search: Option<Search>,
        },
        Random {
            starts: usize,
        },
    }

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
    enum Search {
        Grid { angles: usize },
    }

    fn layers(text: &str) -> Layers {
        let mut layers = Layers::default();
        layers.text("run.toml", text).unwrap();
        layers
    }

    fn complaint(layers: &Layers) -> String {
        layers.resolve::<Run>().unwrap_err().to_string()
    }

    #[test]
    fn later_layers_win_and_the_rest_stays() {
        let mut layers = layers(
            "seed = 3\n[agent]\nparticles = 8\n[agent.lift]\nkind = \"uniform\"\ndirections = 5\n",
        );
        layers
            .set(&[
                "agent.lift.directions=7".into(),
                "agent.particles = 9".into(),
            ])
            .unwrap();
        let run: Run = layers.resolve().unwrap();
        assert_eq!((run.seed, run.agent.particles), (3, 9));
        assert_eq!(run.agent.lift, Some(Lift::Uniform { directions: 7 }));
    }

    #[test]
    fn another_kind_keeps_what_it_knows_and_drops_the_rest() {
        let mut layers = layers(
            "agent.lift = { kind = \"max\", starts = 5, steps = 6, search = { kind = \"grid\", angles = 3 } }\n",
        );
        layers.set(&["agent.lift.kind=random".into()]).unwrap();
        let run: Run = layers.resolve().unwrap();
        assert_eq!(run.agent.lift, Some(Lift::Random { starts: 5 }));
        // Said again on top, a setting that the kind does not know is a mistake.
        layers.set(&["agent.lift.steps=6".into()]).unwrap();
        assert_eq!(
            complaint(&layers),
            "[agent.lift] unknown key `steps`, expected one of: starts (--set agent.lift.steps=6)"
        );
    }

    #[test]
    fn keys_of_tagged_sections_within_tagged_sections_are_found() {
        let text = "[agent.lift]\nkind = \"max\"\nstarts = 1\nsteps = 2\n[agent.lift.search]\nkind = \"grid\"\nangels = 3\n";
        assert_eq!(
            complaint(&layers(text)),
            "[agent.lift.search] unknown key `angels`, did you mean `angles`? (run.toml line 7)"
        );
    }

    #[test]
    fn another_kind_replaces_its_section_whatever_the_order_of_the_assignments() {
        let mut layers = layers("agent.lift = { kind = \"uniform\", directions = 5 }\n");
        layers
            .set(&[
                "agent.lift.starts=2".into(),
                "agent.lift.kind=max".into(),
                "agent.lift.steps=4".into(),
            ])
            .unwrap();
        let run: Run = layers.resolve().unwrap();
        assert_eq!(
            run.agent.lift,
            Some(Lift::Max {
                starts: 2,
                steps: 4,
                search: None
            })
        );
    }

    #[test]
    fn unknown_keys_name_section_key_match_and_line() {
        assert_eq!(
            complaint(&layers("seed = 3\n[agent]\nparticels = 8\n")),
            "[agent] unknown key `particels`, did you mean `particles`? (run.toml line 3)"
        );
        assert_eq!(
            complaint(&layers("[agnet]\nparticles = 8\n")),
            "unknown key or section `agnet`, did you mean `agent`? (run.toml line 2)"
        );
        assert_eq!(
            complaint(&layers("[agent.lift]\nkind = \"uniform\"\ndirectons = 8\n")),
            "[agent.lift] unknown key `directons`, did you mean `directions`? (run.toml line 3)"
        );
    }

    #[test]
    fn wrong_types_and_values_name_the_key_even_inside_tagged_sections() {
        assert_eq!(
            complaint(&layers("[agent]\nparticles = \"many\"\n")),
            "[agent] particles: got string \"many\", expected a non-negative integer (run.toml line 2)"
        );
        assert_eq!(
            complaint(&layers(
                "[agent.lift]\nkind = \"max\"\nstarts = 3\nsteps = \"x\"\n"
            )),
            "[agent.lift] steps: got string \"x\", expected a non-negative integer (run.toml line 4)"
        );
        assert_eq!(
            complaint(&layers("[agent.lift]\nkind = \"unifrom\"\n")),
            "[agent.lift] kind: unknown value `unifrom`, did you mean `uniform`? (run.toml line 2)"
        );
        let mut below = layers("");
        below.set(&["agent.particles=-1".into()]).unwrap();
        assert_eq!(
            complaint(&below),
            "[agent] particles: got integer `-1`, expected a non-negative integer (--set agent.particles=-1)"
        );
    }

    #[test]
    fn a_section_without_its_kind_has_the_default_one() {
        let defaults: Table =
            "seed = 1\n[agent.lift]\nkind = \"max\"\n[agent.lift.search]\nkind = \"grid\""
                .parse()
                .unwrap();
        let kinds = |text: &str| {
            let mut layers = Layers::default();
            layers.text("run.toml", text).unwrap();
            layers.fill_kinds(&defaults).unwrap();
            let kind = |path| lookup(&layers.table, path).and_then(Value::as_str);
            (
                kind("agent.lift.kind").map(str::to_owned),
                kind("agent.lift.search.kind").map(str::to_owned),
            )
        };
        let owned = |kind: &str| Some(kind.to_owned());
        assert_eq!(kinds("seed = 2"), (None, None));
        assert_eq!(kinds("agent.lift.steps = 2"), (owned("max"), None));
        let deeper = "agent.lift.search.angles = 2";
        assert_eq!(kinds(deeper), (owned("max"), owned("grid")));
        let other = "agent.lift = { kind = \"random\", search = { angles = 2 } }";
        assert_eq!(kinds(other), (owned("random"), None));
    }

    #[test]
    fn missing_keys_and_broken_text_are_told() {
        assert_eq!(
            complaint(&layers("[agent.lift]\nkind = \"max\"\nstarts = 3\n")),
            "[agent.lift] missing key `steps` (run.toml line 2)"
        );
        let error = Layers::default()
            .text("run.toml", "seed = 3\n[agent\n")
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("run.toml line 2 column 7: not valid TOML: "),
            "{error}"
        );
    }

    #[test]
    fn assignments_must_be_assignments() {
        for wrong in ["agent.particles", "=3", "agent..x=3"] {
            let error = Layers::default().set(&[wrong.into()]).unwrap_err();
            assert!(error.to_string().starts_with(&format!("--set {wrong}: ")));
            assert_eq!(error.exit_code(), 2);
        }
    }
}
