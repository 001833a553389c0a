//! Turns serde's messages into one line for people.

use crate::failure::suggestion;

/// Describes a deserialisation message about the setting at the dotted `path` (empty for the root, ending in the key itself where that is
/// unknown); `origin` tells where a dotted path was set.
pub fn describe(path: &str, message: &str, origin: impl Fn(&str) -> Option<String>) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let word = quoted.next().unwrap_or_default();
    let path = match message.strip_prefix("unknown field") {
        Some(_) => path.rsplit_once('.').map_or("", |(section, _)| section),
        None => path,
    };
    let place = |key: &str| {
        let full = match (path.is_empty(), key.is_empty()) {
            (true, _) => key.to_owned(),
            (false, true) => path.to_owned(),
            (false, false) => format!("{path}.{key}"),
        };
        origin(&full)
            .or_else(|| origin(path))
            .map_or(String::new(), |origin| format!(" ({origin})"))
    };
    let section = if path.is_empty() {
        String::new()
    } else {
        format!("[{path}] ")
    };
    if message.starts_with("unknown field") {
        let what = if path.is_empty() {
            "unknown key or section"
        } else {
            "unknown key"
        };
        let advice = suggestion(word, quoted);
        return format!("{section}{what} `{word}`{advice}{}", place(word));
    }
    if message.starts_with("missing field") {
        return format!("{section}missing key `{word}`{}", place(""));
    }
    let (section, key) = match path.rsplit_once('.') {
        Some((section, key)) => (format!("[{section}] "), key),
        None => (String::new(), path),
    };
    let colon = if key.is_empty() { "" } else { ": " };
    if message.starts_with("unknown variant") {
        let advice = suggestion(word, quoted);
        return format!(
            "{section}{key}{colon}unknown value `{word}`{advice}{}",
            place("")
        );
    }
    let what = message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))
        .and_then(|rest| rest.split_once(", expected "))
        .map_or_else(
            || message.to_owned(),
            |(got, expected)| format!("got {got}, expected {}", plain_type(expected)),
        );
    format!("{section}{key}{colon}{what}{}", place(""))
}

/// Names of Rust types in words.
fn plain_type(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a non-negative integer",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "a map" => "a section",
        other if other.starts_with("struct ") => "a section",
        other => other,
    }
}
