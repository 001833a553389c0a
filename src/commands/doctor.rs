//! `doctor`: what this machine offers.

use std::path::{Path, PathBuf};

use super::print;
use crate::failure::Failure;
use crate::machine;

/// The libtorch version that the program is built for.
const LIBTORCH_NEEDED: &str = "2.13.0";

/// Prints libtorch, threads, CPU features, devices and memory.
///
/// # Errors
/// [`Failure::Run`] if the loaded libtorch is not the version that is needed.
pub fn doctor() -> Result<(), Failure> {
    let library = loaded_libtorch();
    let found = library.as_deref().and_then(version_beside);
    let version = found.as_deref().unwrap_or("unknown");
    let path = library
        .as_deref()
        .map_or("not found among the loaded libraries".into(), |path| {
            path.display().to_string()
        });
    let devices = match tch::Cuda::is_available() {
        true => format!("cpu, cuda ({} devices)", tch::Cuda::device_count()),
        false => "cpu (no CUDA in this libtorch, or no GPU)".to_owned(),
    };
    let memory = machine::memory();
    let gib = |bytes: Option<u64>| match bytes {
        Some(bytes) => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        None => "unknown".to_owned(),
    };
    print(&format!(
        "pushforward  {}\n\
         libtorch     needed {LIBTORCH_NEEDED}, found {version}\n\
         \x20            {path}\n\
         threads      {} physical cores, {} logical\n\
         CPU          {}\n\
         devices      {devices}\n\
         memory       {} available of {}\n",
        env!("CARGO_PKG_VERSION"),
        machine::physical_cores(),
        machine::logical_cores(),
        machine::cpu_features().join(" "),
        gib(memory.available),
        gib(memory.total),
    ))?;
    match found {
        Some(version) if !version.starts_with(LIBTORCH_NEEDED) => Err(Failure::run(format!(
            "libtorch {version} at {path}, needed {LIBTORCH_NEEDED}"
        ))),
        _ => Ok(()),
    }
}

/// The file that libtorch was loaded from.
fn loaded_libtorch() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .find(|path| path.contains("libtorch_cpu"))?;
    Some(PathBuf::from(path))
}

/// The version that a libtorch tells about itself: `build-version` in an archive, `version.py` in a Python package.
fn version_beside(library: &Path) -> Option<String> {
    let root = library.parent()?.parent()?;
    if let Ok(text) = std::fs::read_to_string(root.join("build-version")) {
        return Some(text.trim().to_owned());
    }
    let text = std::fs::read_to_string(root.join("version.py")).ok()?;
    let line = text.lines().find(|line| line.starts_with("__version__"))?;
    line.split(['\'', '"']).nth(1).map(str::to_owned)
}
