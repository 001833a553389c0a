//! Files written through a hash and synced.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

use super::checkpoint_error;
use crate::CoreError;

/// SHA-256 of some bytes, as 64 hexadecimal digits; of a resolved configuration it tells runs apart.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Passes bytes on and hashes them on the way.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    bytes: u64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hash.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a new file, syncs it, and gives its size and hash.
pub(super) fn write(
    path: &Path,
    fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
) -> Result<(u64, String), CoreError> {
    let written = || {
        let hashing = Hashing {
            inner: File::create(path)?,
            hash: Sha256::new(),
            bytes: 0,
        };
        let mut out = BufWriter::with_capacity(1 << 20, hashing);
        fill(&mut out)?;
        let hashing = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        hashing.inner.sync_all()?;
        Ok((hashing.bytes, hex(&hashing.hash.finalize())))
    };
    let mut written = written;
    written().map_err(|error| CoreError::io(path, error))
}

/// Makes a folder's entries durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), CoreError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| CoreError::io(path, error))
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CoreError> {
    std::fs::read(path).map_err(|error| CoreError::io(path, error))
}

/// Checks size and hash of a file of the checkpoint in `folder`.
pub(super) fn check(folder: &Path, name: &str, bytes: u64, sha256: &str) -> Result<(), CoreError> {
    let path = folder.join(name);
    let io = |error| CoreError::io(&path, error);
    let mut file = File::open(&path).map_err(io)?;
    let found = file.metadata().map_err(io)?.len();
    if found != bytes {
        return Err(checkpoint_error(
            folder,
            format!("{name} has {found} bytes, expected {bytes}"),
        ));
    }
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).map_err(io)?;
        if count == 0 {
            break;
        }
        hash.update(&buffer[..count]);
    }
    if hex(&hash.finalize()) != sha256 {
        return Err(checkpoint_error(
            folder,
            format!("{name} does not have the hash that the manifest says"),
        ));
    }
    Ok(())
}
