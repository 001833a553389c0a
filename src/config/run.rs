//! From presets, files and flags to the settings of a run.

use std::path::Path;

use super::Layers;
use crate::agents::RunConfig;
use crate::cli::Settings;
use crate::failure::{Failure, nearest};
use crate::presets::{self, PRESETS};

/// The configuration of a preset or a file with everything on top of it.
///
/// # Errors
/// [`Failure::Input`] if the source is neither a preset nor a file, or a setting is wrong.
pub fn resolve(settings: &Settings) -> Result<RunConfig, Failure> {
    let mut layers = Layers::default();
    let path = Path::new(&settings.source);
    let name = match presets::find(&settings.source) {
        Some(preset) => {
            layers.text(&format!("preset {}", preset.name), preset.text)?;
            preset.name.to_owned()
        }
        None if path.is_file() => {
            layers.file(path)?;
            let stem = path.file_stem().unwrap_or_default();
            stem.to_string_lossy().into_owned()
        }
        None => {
            let names = || PRESETS.iter().map(|preset| preset.name);
            let advice = match nearest(&settings.source, names()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("presets: {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(Failure::input(format!(
                "`{}` is neither a preset nor a file; {advice}",
                settings.source
            )));
        }
    };
    for file in &settings.config {
        layers.file(file)?;
    }
    layers.set(&settings.set)?;
    if let Some(seed) = settings.seed {
        layers.set(&[format!("seed={seed}")])?;
    }
    if !layers.sets("name") {
        layers.set(&[format!("name=\"{name}\"")])?;
    }
    RunConfig::from_layers(layers)
}

/// The configuration in a file, such as the `config.toml` of a run.
///
/// # Errors
/// [`Failure::Input`] if it cannot be read or a setting is wrong.
pub fn read(path: &Path) -> Result<RunConfig, Failure> {
    let mut layers = Layers::default();
    layers.file(path)?;
    RunConfig::from_layers(layers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(source: &str) -> Settings {
        Settings {
            source: source.to_owned(),
            config: Vec::new(),
            set: Vec::new(),
            seed: None,
        }
    }

    #[test]
    fn every_preset_builds_its_experiment_and_reads_back_from_its_own_text() {
        let folder = tempfile::tempdir().unwrap();
        for preset in PRESETS {
            let text = resolve(&settings(preset.name)).unwrap().to_toml().unwrap();
            let file = folder.path().join("config.toml");
            std::fs::write(&file, &text).unwrap();
            assert_eq!(read(&file).unwrap().to_toml().unwrap(), text);
            let mut again = settings(file.to_str().unwrap());
            assert_eq!(resolve(&again).unwrap().to_toml().unwrap(), text);
            if text.contains("[replay]") {
                // The shipped replay size is the user's memory's business, not this test's.
                let cache = folder.path().join("cache");
                again.set = vec![
                    "replay.capacity=4000".into(),
                    format!("eval.cache={}", cache.display()),
                ];
            }
            let mut config = resolve(&again).unwrap();
            assert_eq!(config.header().name, preset.name);
            let built = config.build(tch::Device::Cpu, &mut |warning| panic!("{warning}"));
            assert!(built.is_ok(), "{}: {:?}", preset.name, built.err());
        }
    }

    #[test]
    fn unknown_agents_get_the_nearest_one() {
        let mut layered = settings("chain-exclusive");
        layered.set = vec!["agent.kind=sdlr".into()];
        assert_eq!(
            resolve(&layered).unwrap_err().to_string(),
            "[agent] kind: no agent `sdlr`; did you mean `sdrl`?"
        );
    }

    #[test]
    fn unknown_sources_get_the_nearest_preset() {
        let error = resolve(&settings("chain-exclusiv")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`chain-exclusiv` is neither a preset nor a file; did you mean `chain-exclusive`?"
        );
    }

    #[test]
    fn assignments_beat_presets_and_names_are_checked() {
        let mut layered = settings("chain-exclusive");
        layered.set = vec!["agent.divergence.lift.directions=7".into()];
        layered.seed = Some(5);
        let config = resolve(&layered).unwrap();
        assert_eq!(config.header().seed, 5);
        let text = config.to_toml().unwrap();
        assert!(text.contains("directions = 7"), "{text}");
        layered.set.push("agent.target.rate=0.25".into());
        let text = resolve(&layered).unwrap().to_toml().unwrap();
        assert!(text.contains("rate = 0.25"), "{text}");
        layered.set.push("name=a/b".into());
        assert!(
            resolve(&layered)
                .unwrap_err()
                .to_string()
                .starts_with("name: ")
        );
    }
}
