//! What the machine has: cores, CPU features, memory; and how threads and devices are chosen.

use std::collections::BTreeSet;

use crate::failure::Failure;

/// Memory in bytes, as far as the system tells.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// All of it.
    pub total: Option<u64>,
    /// What a new program could use without swapping.
    pub available: Option<u64>,
}

/// Logical processors that this process may use.
pub fn logical_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Physical cores: groups of logical processors that share one, but no more than this process may use.
pub fn physical_cores() -> usize {
    let groups: BTreeSet<String> = (0..4096)
        .map(|index| format!("/sys/devices/system/cpu/cpu{index}/topology/thread_siblings_list"))
        .map_while(|path| std::fs::read_to_string(path).ok())
        .collect();
    match groups.len() {
        0 => logical_cores(),
        cores => cores.min(logical_cores()),
    }
}

/// The vector extensions that the kernels may use.
pub fn cpu_features() -> Vec<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let features = [
            ("sse4.2", std::arch::is_x86_feature_detected!("sse4.2")),
            ("avx", std::arch::is_x86_feature_detected!("avx")),
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ];
        features
            .into_iter()
            .filter(|feature| feature.1)
            .map(|feature| feature.0)
            .collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        vec![std::env::consts::ARCH]
    }
}

/// Total and available memory.
pub fn memory() -> Memory {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    Memory {
        total: field("MemTotal:"),
        available: field("MemAvailable:"),
    }
}

/// Sets the number of threads, the physical cores if `threads` is left out, and gives it.
///
/// Parallelism is rayon's: every libtorch call runs on the thread that makes it, so that results do not depend on the number.
///
/// # Errors
/// [`Failure::Input`] for 0 threads.
pub fn set_threads(threads: Option<usize>) -> Result<usize, Failure> {
    let threads = threads.unwrap_or_else(physical_cores);
    if threads == 0 {
        return Err(Failure::input("--threads: got 0, expected at least 1"));
    }
    tch::set_num_threads(1);
    // A pool that exists already keeps its size, which only tests that call this twice can meet.
    let _ = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global();
    Ok(threads)
}

/// The device by its name.
///
/// # Errors
/// [`Failure::Input`] for an unknown name, and for `cuda` where there is none: nothing falls back silently.
pub fn device(name: &str) -> Result<tch::Device, Failure> {
    let index = match name {
        "cpu" => return Ok(tch::Device::Cpu),
        "cuda" => 0,
        other => other
            .strip_prefix("cuda:")
            .and_then(|index| index.parse().ok())
            .ok_or_else(|| {
                Failure::input(format!(
                    "--device: got `{name}`, expected cpu, cuda or cuda:N"
                ))
            })?,
    };
    let devices = tch::Cuda::device_count();
    if !tch::Cuda::is_available() || devices <= index {
        return Err(Failure::input(format!(
            "--device {name}: this libtorch sees {devices} CUDA devices (see `pushforward doctor`); \
             install one with CUDA by scripts/setup-libtorch --cuda, or use --device cpu"
        )));
    }
    Ok(tch::Device::Cuda(index as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted() {
        assert!(physical_cores() >= 1 && physical_cores() <= logical_cores());
    }

    #[test]
    fn devices_are_not_guessed() {
        assert_eq!(device("cpu").unwrap(), tch::Device::Cpu);
        for wrong in ["gpu", "cuda:x", "cuda:99"] {
            assert_eq!(device(wrong).unwrap_err().exit_code(), 2);
        }
    }
}
