//! A cache of computed results on disk, addressed by a hash of everything that they depend on.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

use crate::EnvError;

/// First bytes of every file; the number is the version of the layout.
const MAGIC: &[u8; 8] = b"PFCACHE1";

/// A hash of the inputs of a computation.
///
/// Every input goes in with its length, so no two lists of inputs collide by concatenation.
#[derive(Clone, Debug)]
pub struct CacheKey(Sha256);

impl CacheKey {
    /// A key for one kind of computation; the label names the kind and the version of its algorithm.
    pub fn new(label: &str) -> Self {
        Self(Sha256::new()).bytes(label.as_bytes())
    }

    /// Adds an input.
    pub fn bytes(mut self, input: &[u8]) -> Self {
        self.0.update((input.len() as u64).to_le_bytes());
        self.0.update(input);
        self
    }

    /// Adds a whole number.
    pub fn number(self, input: u64) -> Self {
        self.bytes(&input.to_le_bytes())
    }

    /// Adds numbers by their bits.
    pub fn floats(self, input: &[f64]) -> Self {
        let bytes: Vec<u8> = input
            .iter()
            .flat_map(|value| value.to_bits().to_le_bytes())
            .collect();
        self.bytes(&bytes)
    }

    /// The hash as 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0
            .clone()
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

/// A directory of results. A file is its magic, the payload's length, the payload and the payload's SHA-256.
#[derive(Clone, Debug)]
pub struct DiskCache {
    directory: PathBuf,
}

impl DiskCache {
    /// The cache in this directory, which is made at the first write.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
        }
    }

    /// The result stored under `key`, or `None` if there is none or its file is broken.
    pub fn load(&self, key: &CacheKey) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.path(key)).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (length, rest) = rest.split_at_checked(8)?;
        let length = u64::from_le_bytes(length.try_into().ok()?);
        let (payload, hash) = rest.split_at_checked(usize::try_from(length).ok()?)?;
        (Sha256::digest(payload).as_slice() == hash).then(|| payload.to_vec())
    }

    /// Stores a result: written under a temporary name, synchronised and renamed, so that a reader finds all of it or nothing.
    ///
    /// # Errors
    /// [`EnvError::Io`] with the file.
    pub fn store(&self, key: &CacheKey, payload: &[u8]) -> Result<(), EnvError> {
        static WRITES: AtomicU64 = AtomicU64::new(0);
        let io = |path: &Path| {
            let path = path.display().to_string();
            move |source| EnvError::Io { path, source }
        };
        std::fs::create_dir_all(&self.directory).map_err(io(&self.directory))?;
        let write = WRITES.fetch_add(1, Ordering::Relaxed);
        let temporary = self
            .directory
            .join(format!(".{}-{write}.tmp", std::process::id()));
        let path = self.path(key);
        let written = std::fs::File::create(&temporary).and_then(|mut file| {
            file.write_all(MAGIC)?;
            file.write_all(&(payload.len() as u64).to_le_bytes())?;
            file.write_all(payload)?;
            file.write_all(&Sha256::digest(payload))?;
            file.sync_all()?;
            std::fs::rename(&temporary, &path)
        });
        if written.is_err() {
            // The first error is the one to report.
            let _ = std::fs::remove_file(&temporary);
        }
        written.map_err(io(&path))
    }

    /// The `f32` values stored under `key`, or else computed and stored; a stored result of another length counts as broken.
    ///
    /// # Errors
    /// What `compute` says, or [`EnvError::Io`] if the result cannot be stored.
    pub fn floats(
        &self,
        key: &CacheKey,
        length: usize,
        compute: impl FnOnce() -> Result<Vec<f32>, EnvError>,
    ) -> Result<Vec<f32>, EnvError> {
        if let Some(bytes) = self.load(key)
            && bytes.len() == 4 * length
        {
            let (words, _) = bytes.as_chunks::<4>();
            return Ok(words.iter().map(|word| f32::from_le_bytes(*word)).collect());
        }
        let values = compute()?;
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.store(key, &bytes)?;
        Ok(values)
    }

    fn path(&self, key: &CacheKey) -> PathBuf {
        self.directory.join(key.hex())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_computed_once_and_again_when_its_file_is_broken() {
        let directory = tempfile::tempdir().unwrap();
        let cache = DiskCache::new(directory.path().join("deep/er"));
        let key = CacheKey::new("test").number(3);
        let values = vec![1.5, -2.0, f32::MIN_POSITIVE];
        let get = |length| {
            let mut computed = false;
            let got = cache.floats(&key, length, || {
                computed = true;
                Ok(values.clone())
            });
            assert_eq!(got.unwrap(), values);
            computed
        };
        assert!(get(3));
        assert!(!get(3));
        assert!(get(4));
        let path = cache.path(&key);
        let whole = std::fs::read(&path).unwrap();
        let mut flipped = whole.clone();
        flipped[17] ^= 1;
        for broken in [
            &whole[..whole.len() - 1],
            &[],
            &flipped,
            b"not a cache file",
        ] {
            std::fs::write(&path, broken).unwrap();
            assert!(get(3));
            assert!(!get(3));
        }
        // Nothing but the result is left behind.
        assert_eq!(
            std::fs::read_dir(path.parent().unwrap()).unwrap().count(),
            1
        );
    }

    #[test]
    fn keys_tell_inputs_apart() {
        let key = |a: &[u8], b: &[u8]| CacheKey::new("test").bytes(a).bytes(b).hex();
        assert_eq!(key(b"ab", b"c"), key(b"ab", b"c"));
        assert_ne!(key(b"ab", b"c"), key(b"a", b"bc"));
        assert_ne!(
            CacheKey::new("a").floats(&[0.0]).hex(),
            CacheKey::new("a").floats(&[-0.0]).hex()
        );
        assert_eq!(key(b"", b"").len(), 64);
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let cache = DiskCache::new(file.path().join("below"));
        let message = cache
            .store(&CacheKey::new("test"), b"x")
            .unwrap_err()
            .to_string();
        assert!(message.contains("below"), "{message}");
    }
}
