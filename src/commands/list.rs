//! `list` and `show-config`: what there is, and what would run.

use pushforward_divergences::{DIVERGENCES, LIFTS};
use pushforward_envs::mean_field::registry as games;
use pushforward_envs::registry;

use super::print;
use crate::agents;
use crate::cli::{Listing, Settings};
use crate::config::resolve;
use crate::failure::Failure;
use crate::presets::PRESETS;
use crate::reproduce::CLAIMS;

/// Lists environments, games, agents, divergences, presets, claims, or all of them.
///
/// # Errors
/// [`Failure::Run`] if standard output cannot be written.
pub fn list(what: Option<Listing>) -> Result<(), Failure> {
    let all = [
        Listing::Environments,
        Listing::Games,
        Listing::Agents,
        Listing::Divergences,
        Listing::Presets,
        Listing::Claims,
    ];
    let chosen = match &what {
        Some(one) => std::slice::from_ref(one),
        None => &all,
    };
    let mut text = String::new();
    for listing in chosen {
        let mut section = |title: &str, rows: Vec<(&str, String)>| {
            if what.is_none() || *listing == Listing::Divergences {
                text.push_str(&format!("{title}:\n"));
            }
            let width = rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
            for (name, summary) in rows {
                text.push_str(&format!("  {name:width$}  {summary}\n"));
            }
        };
        let owned = |(name, summary): (&'static str, &'static str)| (name, summary.to_owned());
        match listing {
            Listing::Environments => {
                section("environments", registry::summaries().map(owned).collect());
            }
            Listing::Games => section("games", games::summaries().map(owned).collect()),
            Listing::Agents => section("agents", agents::summaries().map(owned).collect()),
            Listing::Divergences => {
                let rows = |entries: &'static [pushforward_divergences::Entry]| {
                    let pairs = entries.iter().map(|entry| (entry.kind, entry.summary));
                    pairs.map(owned).collect()
                };
                section("divergences", rows(DIVERGENCES));
                section("lifts", rows(LIFTS));
            }
            Listing::Presets => {
                let rows = PRESETS.iter().map(|preset| (preset.name, preset.summary()));
                section("presets", rows.collect());
            }
            Listing::Claims => {
                let rows = CLAIMS.iter().map(|claim| {
                    (
                        claim.name,
                        format!("{} ({} on 2 cores)", claim.summary, claim.time),
                    )
                });
                section("claims", rows.collect());
            }
        }
    }
    print(&text)
}

/// Prints the resolved configuration as TOML.
///
/// # Errors
/// [`Failure::Input`] if the settings do not fit together.
pub fn show_config(settings: &Settings) -> Result<(), Failure> {
    let config = resolve(settings)?;
    print(&config.to_toml()?)
}
