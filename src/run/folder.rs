//! The folder of a run and what lies in it.

use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// What earlier runs leave in a run folder, and all that `--force` removes.
const CONTENTS: [&str; 7] = [
    "config.toml",
    "metrics.jsonl",
    "timing.jsonl",
    "events.out.tfevents.pushforward",
    "checkpoints",
    "eval",
    "plots",
];

/// Bytes that a folder must be able to take before a run starts.
const PROBE_BYTES: usize = 1 << 20;

/// A run folder: `config.toml`, `metrics.jsonl`, `timing.jsonl`, an event file, `checkpoints/`, `eval/` and `plots/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// Makes a new run folder with its `config.toml`.
    ///
    /// # Errors
    /// [`Failure::Input`] if the folder is not empty (unless `force` says to replace the run in it), or cannot be written, or is full;
    /// a folder that was made for nothing is removed again.
    pub fn create(path: &Path, config: &str, force: bool) -> Result<Self, Failure> {
        let shown = path.display();
        let refuse =
            |error: std::io::Error| Failure::input(format!("cannot write to {shown}: {error}"));
        let is_new = !path.exists();
        if !is_new {
            let mut entries = std::fs::read_dir(path).map_err(refuse)?;
            if entries.next().is_some() {
                if !force {
                    return Err(Failure::input(format!(
                        "{shown} is not empty: choose another --out, replace the run by --force, or go on with it by `pushforward resume {shown}`"
                    )));
                }
                if !path.join("config.toml").exists() {
                    return Err(Failure::input(format!(
                        "{shown} is not empty and holds no run: --force replaces runs only"
                    )));
                }
            }
        }
        let folder = Self {
            path: path.to_owned(),
        };
        let made = folder.probe();
        if made.is_err() && is_new {
            // Best effort: the error of interest is the first one.
            let _ = std::fs::remove_dir_all(path);
        }
        made.map_err(refuse)?;
        if force {
            folder.clear().map_err(refuse)?;
        }
        std::fs::write(path.join("config.toml"), config).map_err(refuse)?;
        Ok(folder)
    }

    /// Opens the folder of an earlier run.
    ///
    /// # Errors
    /// [`Failure::Input`] if there is no `config.toml` in it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if !path.join("config.toml").is_file() {
            return Err(Failure::input(format!(
                "{}: no run here (no config.toml)",
                path.display()
            )));
        }
        Ok(Self {
            path: path.to_owned(),
        })
    }

    /// Makes the subfolders and writes and removes a file of some size.
    fn probe(&self) -> std::io::Result<()> {
        for name in ["checkpoints", "eval", "plots"] {
            std::fs::create_dir_all(self.path.join(name))?;
        }
        let probe = self.path.join(".probe");
        let written = std::fs::write(&probe, vec![0; PROBE_BYTES]);
        let removed = std::fs::remove_file(&probe);
        written.and(removed)
    }

    fn clear(&self) -> std::io::Result<()> {
        for name in CONTENTS {
            let path = self.path.join(name);
            if path.is_dir() {
                std::fs::remove_dir_all(&path)?;
                std::fs::create_dir(&path)?;
            } else if path.exists() {
                std::fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// Where checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// Where pictures are.
    pub fn plots(&self) -> PathBuf {
        self.path.join("plots")
    }

    /// The evaluation file of a step.
    pub fn evaluation(&self, updates: u64) -> PathBuf {
        self.path
            .join("eval")
            .join(format!("step-{updates:012}.json"))
    }
}

/// The first folder `parent/stem-NUMBER` that does not exist, counting from 1.
pub fn next_free(parent: &Path, stem: &str) -> PathBuf {
    (1_u64..)
        .map(|number| parent.join(format!("{stem}-{number:03}")))
        .find(|path| !path.exists())
        .unwrap_or_else(|| parent.join(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_not_overwritten_unless_told() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let folder = RunFolder::create(&path, "seed = 1\n", false).unwrap();
        std::fs::write(folder.evaluation(5), "{}").unwrap();
        let refused = RunFolder::create(&path, "seed = 2\n", false).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(folder.evaluation(5).exists());
        let folder = RunFolder::create(&path, "seed = 2\n", true).unwrap();
        assert!(!folder.evaluation(5).exists());
        assert_eq!(
            std::fs::read_to_string(folder.config()).unwrap(),
            "seed = 2\n"
        );
    }

    #[test]
    fn force_does_not_touch_other_folders() {
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("thesis.tex"), "x").unwrap();
        let refused = RunFolder::create(other.path(), "", true).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_bad_input() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("file"), "x").unwrap();
        let refused = RunFolder::create(&parent.path().join("file/run"), "", false).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        assert!(RunFolder::open(parent.path()).is_err());
    }

    #[test]
    fn free_names_count_up() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::create_dir(parent.path().join("chain-seed-0-001")).unwrap();
        let free = next_free(parent.path(), "chain-seed-0");
        assert_eq!(free, parent.path().join("chain-seed-0-002"));
    }
}
