//! Checkpoints that survive a kill at any moment.
//!
//! A checkpoint is a folder `step-<updates>` with `tensors.safetensors`, `state.json`, further files of the caller's, perhaps
//! `replay.bin`, and `manifest.json` with the size and SHA-256 of each. It is written under a temporary name, synced, and renamed, so
//! a folder of the final name is complete; one that is damaged all the same is named and passed over for the one before.

mod array;
mod files;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use array::{ArrayData, NamedArray};
pub use files::sha256_hex;

use crate::trainer::Headline;
use crate::{CoreError, Replay};
use files::{read, sync_folder, write};

/// Version of the folder's layout.
const FORMAT: u32 = 1;

const MANIFEST: &str = "manifest.json";
const TENSORS: &str = "tensors.safetensors";
const STATE: &str = "state.json";
const REPLAY: &str = "replay.bin";

/// Names of folders that are being written, or that have been replaced or removed; none of them is a checkpoint.
const WRITING: &str = ".writing-";
const REPLACED: &str = ".replaced-";
const REMOVED: &str = ".removed-";

/// One file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Entry {
    name: String,
    bytes: u64,
    sha256: String,
}

/// What a checkpoint holds and which run it belongs to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    updates: u64,
    config_hash: String,
    headline: Option<SavedHeadline>,
    files: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct SavedHeadline {
    name: String,
    value: f64,
    lower_is_better: bool,
}

/// What goes into a checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct Contents<'a> {
    /// Weights, targets, optimiser moments; names must differ.
    pub arrays: &'a [NamedArray],
    /// Counters, streams, schedules.
    pub state: &'a serde_json::Value,
    /// Further files: plain names and bytes.
    pub files: &'a [(&'a str, &'a [u8])],
    /// The replay buffer, if it is to be kept.
    pub replay: Option<&'a Replay>,
    /// The figure by which the best checkpoint is kept, if there was an evaluation.
    pub headline: Option<&'a Headline>,
}

/// A checkpoint whose files have all been checked.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// Its folder.
    pub path: PathBuf,
    /// Updates done when it was saved.
    pub updates: u64,
    /// Weights, targets, optimiser moments, sorted by name.
    pub arrays: Vec<NamedArray>,
    /// Counters, streams, schedules.
    pub state: serde_json::Value,
    has_replay: bool,
}

impl Checkpoint {
    /// The arrays in the order of `expected` (name and shape), after checking that there are no others.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] naming the array, and both shapes where they differ.
    pub fn matching(
        &self,
        expected: &[(String, Vec<usize>)],
    ) -> Result<Vec<&NamedArray>, CoreError> {
        array::matching(&self.arrays, expected)
            .map_err(|message| checkpoint_error(&self.path, message))
    }

    /// One further file.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] if there is none of this name or it cannot be read.
    pub fn file(&self, name: &str) -> Result<Vec<u8>, CoreError> {
        read(&self.path.join(name))
    }

    /// Whether the replay buffer was kept.
    pub fn has_replay(&self) -> bool {
        self.has_replay
    }

    /// Fills `replay` from the file.
    ///
    /// # Errors
    /// [`CoreError`] if there is no such file or it was saved from a buffer of another shape.
    pub fn load_replay(&self, replay: &mut Replay) -> Result<(), CoreError> {
        let path = self.path.join(REPLAY);
        let file = std::fs::File::open(&path).map_err(|error| CoreError::io(&path, error))?;
        replay.load(&mut std::io::BufReader::with_capacity(1 << 20, file))
    }
}

/// The checkpoints of one run.
#[derive(Clone, Debug)]
pub struct CheckpointStore {
    folder: PathBuf,
    config_hash: String,
    keep: usize,
}

impl CheckpointStore {
    /// The store in `folder`, for reading; `config_hash` (see [`sha256_hex`]) says which configuration belongs to it.
    pub fn open(folder: &Path, config_hash: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            config_hash: config_hash.to_owned(),
            keep: usize::MAX,
        }
    }

    /// The store in `folder`, for writing: makes the folder, clears what a kill left, and keeps the last `keep` checkpoints and the best.
    ///
    /// # Errors
    /// [`CoreError::Io`] if the folder cannot be made or cleared.
    pub fn create(folder: &Path, config_hash: &str, keep: usize) -> Result<Self, CoreError> {
        let io = |error| CoreError::io(folder, error);
        std::fs::create_dir_all(folder).map_err(io)?;
        for entry in std::fs::read_dir(folder).map_err(io)? {
            let path = entry.map_err(io)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            if let Some(original) = name.strip_prefix(REPLACED) {
                let original = folder.join(original);
                // Killed between the two renames of a replacement: the old one is still the checkpoint.
                if !original.exists() {
                    std::fs::rename(&path, &original).map_err(io)?;
                    continue;
                }
            } else if !name.starts_with(WRITING) && !name.starts_with(REMOVED) {
                continue;
            }
            std::fs::remove_dir_all(&path).map_err(|error| CoreError::io(&path, error))?;
        }
        Ok(Self {
            folder: folder.to_owned(),
            config_hash: config_hash.to_owned(),
            keep: keep.max(1),
        })
    }

    /// Saves a checkpoint and drops those that are neither among the last K nor the best; one of the same step is replaced.
    ///
    /// # Errors
    /// [`CoreError`] if anything cannot be written, for example on a full disk; the checkpoints that were there stay.
    pub fn save(&self, updates: u64, contents: &Contents<'_>) -> Result<PathBuf, CoreError> {
        let name = folder_name(updates);
        let target = self.folder.join(&name);
        let temporary = self.folder.join(format!("{WRITING}{name}"));
        let written = self.write_all(&temporary, updates, contents);
        if written.is_err() {
            // A full disk is freed again; the first error is the one to report.
            let _ = std::fs::remove_dir_all(&temporary);
        }
        written?;
        let io = |error| CoreError::io(&target, error);
        if target.exists() {
            let replaced = self.folder.join(format!("{REPLACED}{name}"));
            std::fs::rename(&target, &replaced).map_err(io)?;
            std::fs::rename(&temporary, &target).map_err(io)?;
            sync_folder(&self.folder)?;
            std::fs::remove_dir_all(&replaced).map_err(io)?;
        } else {
            std::fs::rename(&temporary, &target).map_err(io)?;
            sync_folder(&self.folder)?;
        }
        self.prune()?;
        Ok(target)
    }

    /// The newest checkpoint that is whole, and one warning for each newer one that is not.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] if there is none, or if it was saved from another configuration.
    pub fn load_latest(&self) -> Result<(Checkpoint, Vec<String>), CoreError> {
        let mut steps = self.steps()?;
        steps.sort_unstable_by_key(|&updates| std::cmp::Reverse(updates));
        self.first_whole(&steps)
    }

    /// The whole checkpoint with the best headline; the newest one if none has a headline. Warnings as for [`CheckpointStore::load_latest`].
    ///
    /// # Errors
    /// As [`CheckpointStore::load_latest`].
    pub fn load_best(&self) -> Result<(Checkpoint, Vec<String>), CoreError> {
        let mut steps = self.steps()?;
        steps.sort_unstable_by_key(|&updates| std::cmp::Reverse(updates));
        if let Some(best) = self.best(&steps) {
            steps.retain(|&updates| updates != best);
            steps.insert(0, best);
        }
        self.first_whole(&steps)
    }

    /// The checkpoint saved after so many updates.
    ///
    /// # Errors
    /// [`CoreError::Checkpoint`] if there is none, it is not whole, or it was saved from another configuration.
    pub fn load_at(&self, updates: u64) -> Result<Checkpoint, CoreError> {
        let steps = self.steps()?;
        if !steps.contains(&updates) {
            return Err(checkpoint_error(
                &self.folder,
                format!("none of update {updates}, found {steps:?}"),
            ));
        }
        Ok(self.first_whole(&[updates])?.0)
    }

    /// Updates of all checkpoints in the folder, whole or not, ascending.
    ///
    /// # Errors
    /// [`CoreError::Io`] if the folder cannot be read.
    pub fn steps(&self) -> Result<Vec<u64>, CoreError> {
        let io = |error| CoreError::io(&self.folder, error);
        let mut steps = Vec::new();
        for entry in std::fs::read_dir(&self.folder).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            if let Some(updates) = name
                .to_str()
                .and_then(|name| name.strip_prefix("step-"))
                .and_then(|digits| digits.parse().ok())
                && *name == *folder_name(updates)
            {
                steps.push(updates);
            }
        }
        steps.sort_unstable();
        Ok(steps)
    }

    fn first_whole(&self, steps: &[u64]) -> Result<(Checkpoint, Vec<String>), CoreError> {
        let mut warnings = Vec::new();
        for &updates in steps {
            let path = self.folder.join(folder_name(updates));
            match self.check(&path) {
                Ok(manifest) if manifest.config_hash != self.config_hash => {
                    return Err(checkpoint_error(
                        &path,
                        format!(
                            "from another configuration (hash {:.12}, expected {:.12})",
                            manifest.config_hash, self.config_hash
                        ),
                    ));
                }
                Ok(manifest) => match self.read_checked(&path, &manifest) {
                    Ok(checkpoint) => return Ok((checkpoint, warnings)),
                    Err(error) => warnings.push(format!("{error}; skipped")),
                },
                Err(error) => warnings.push(format!("{error}; skipped")),
            }
        }
        let message = if warnings.is_empty() {
            "no checkpoint here, expected folders named step-…".to_owned()
        } else {
            format!("none is whole: {}", warnings.join("; "))
        };
        Err(checkpoint_error(&self.folder, message))
    }

    /// Checks the manifest, and size and hash of every file.
    fn check(&self, path: &Path) -> Result<Manifest, CoreError> {
        let manifest = manifest(path)?;
        if manifest.format != FORMAT {
            return Err(checkpoint_error(
                path,
                format!("format {}, expected {FORMAT}", manifest.format),
            ));
        }
        // A checkpoint of another configuration is reported as such without reading gigabytes of replay first.
        if manifest.config_hash == self.config_hash {
            for entry in &manifest.files {
                files::check(path, &entry.name, entry.bytes, &entry.sha256)?;
            }
        }
        Ok(manifest)
    }

    fn read_checked(&self, path: &Path, manifest: &Manifest) -> Result<Checkpoint, CoreError> {
        let arrays = array::deserialize(&read(&path.join(TENSORS))?)
            .map_err(|message| checkpoint_error(path, format!("{TENSORS}: {message}")))?;
        let state = serde_json::from_slice(&read(&path.join(STATE))?)
            .map_err(|error| checkpoint_error(path, format!("{STATE}: {error}")))?;
        Ok(Checkpoint {
            path: path.to_owned(),
            updates: manifest.updates,
            arrays,
            state,
            has_replay: manifest.files.iter().any(|entry| entry.name == REPLAY),
        })
    }

    fn write_all(
        &self,
        temporary: &Path,
        updates: u64,
        contents: &Contents<'_>,
    ) -> Result<(), CoreError> {
        if temporary.exists() {
            std::fs::remove_dir_all(temporary).map_err(|error| CoreError::io(temporary, error))?;
        }
        std::fs::create_dir(temporary).map_err(|error| CoreError::io(temporary, error))?;
        let mut files = Vec::new();
        let mut put =
            |name: &str, fill: &mut dyn FnMut(&mut dyn std::io::Write) -> std::io::Result<()>| {
                let (bytes, sha256) = write(&temporary.join(name), fill)?;
                files.push(Entry {
                    name: name.to_owned(),
                    bytes,
                    sha256,
                });
                Ok::<_, CoreError>(())
            };
        let tensors = array::serialize(contents.arrays)
            .map_err(|message| checkpoint_error(temporary, message))?;
        put(TENSORS, &mut |out| out.write_all(&tensors))?;
        let state = serde_json::to_vec_pretty(contents.state)
            .map_err(|error| checkpoint_error(temporary, format!("{STATE}: {error}")))?;
        put(STATE, &mut |out| out.write_all(&state))?;
        for (name, bytes) in contents.files {
            if [MANIFEST, TENSORS, STATE, REPLAY].contains(name) || name.contains('/') {
                return Err(checkpoint_error(
                    temporary,
                    format!("file name `{name}` is reserved or not plain"),
                ));
            }
            put(name, &mut |out| out.write_all(bytes))?;
        }
        if let Some(replay) = contents.replay {
            put(REPLAY, &mut |out| replay.save(out))?;
        }
        let manifest = Manifest {
            format: FORMAT,
            updates,
            config_hash: self.config_hash.clone(),
            headline: contents
                .headline
                .filter(|headline| headline.value.is_finite())
                .map(|headline| SavedHeadline {
                    name: headline.name.clone(),
                    value: headline.value,
                    lower_is_better: headline.lower_is_better,
                }),
            files,
        };
        let manifest = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| checkpoint_error(temporary, format!("{MANIFEST}: {error}")))?;
        write(&temporary.join(MANIFEST), &mut |out| {
            out.write_all(&manifest)
        })?;
        sync_folder(temporary)
    }

    /// The step with the best headline, the newest of equals.
    fn best(&self, steps: &[u64]) -> Option<u64> {
        let mut best: Option<(f64, u64)> = None;
        for &updates in steps {
            let Ok(Manifest {
                headline: Some(headline),
                ..
            }) = manifest(&self.folder.join(folder_name(updates)))
            else {
                continue;
            };
            let score = if headline.lower_is_better {
                -headline.value
            } else {
                headline.value
            };
            if best.is_none_or(|(top, newest)| score > top || (score == top && updates > newest)) {
                best = Some((score, updates));
            }
        }
        best.map(|(_, updates)| updates)
    }

    fn prune(&self) -> Result<(), CoreError> {
        let steps = self.steps()?;
        let best = self.best(&steps);
        for &updates in &steps[..steps.len().saturating_sub(self.keep)] {
            if Some(updates) == best {
                continue;
            }
            let name = folder_name(updates);
            let removed = self.folder.join(format!("{REMOVED}{name}"));
            // Renamed first, so that a kill never leaves half a checkpoint under a checkpoint's name.
            std::fs::rename(self.folder.join(name), &removed)
                .and_then(|()| std::fs::remove_dir_all(&removed))
                .map_err(|error| CoreError::io(&removed, error))?;
        }
        Ok(())
    }
}

/// Name of a checkpoint's folder; padded, so that the names sort by step.
fn folder_name(updates: u64) -> String {
    format!("step-{updates:012}")
}

fn manifest(path: &Path) -> Result<Manifest, CoreError> {
    let bytes = read(&path.join(MANIFEST))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| checkpoint_error(path, format!("{MANIFEST}: {error}")))
}

fn checkpoint_error(path: &Path, message: impl Into<String>) -> CoreError {
    CoreError::Checkpoint {
        path: path.display().to_string(),
        message: message.into(),
    }
}
