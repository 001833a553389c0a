//! Settings that ship with the program.

/// A named configuration file.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its TOML text.
    pub text: &'static str,
}

impl Preset {
    /// The first comment line of the file.
    pub fn summary(&self) -> String {
        let line = self.text.lines().next().unwrap_or_default();
        line.trim_start_matches('#').trim().to_owned()
    }
}

macro_rules! preset {
    ($name:literal) => {
        Preset {
            name: $name,
            text: include_str!(concat!("presets/", $name, ".toml")),
        }
    };
}

/// Every preset, one line each.
pub const PRESETS: &[Preset] = &[
    preset!("chain-exclusive"),
    preset!("chain-gaussian-d8"),
    preset!("chain-dense-discount"),
    preset!("chain-hyperbolic"),
    preset!("maze-exclusive"),
    preset!("maze-inclusive"),
    preset!("maze-four-rewards"),
    preset!("maze-exclusive-image"),
    preset!("maze-constraint-d"),
    preset!("cartpole-linear"),
    preset!("lq-spg"),
    preset!("lq-rspg"),
    preset!("beach-bar-spg"),
    preset!("beach-bar-rspg"),
    preset!("macro-spg"),
    preset!("macro-rspg"),
];

/// The preset of this name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
