//! How much memory is free.

use crate::CoreError;

const GIB: f64 = (1_u64 << 30) as f64;

/// Memory that new work can take without swapping, in bytes: `MemAvailable` of `/proc/meminfo`, or `None` where there is no such file.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    parse(&text)
}

fn parse(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Refuses a replay buffer that would not fit; where the free memory is not known, nothing is refused.
pub(super) fn check(needed: u64, available: Option<u64>) -> Result<(), CoreError> {
    match available {
        Some(available) if needed > available => Err(CoreError::Memory {
            what: "the replay buffer".into(),
            needed: needed as f64 / GIB,
            available: available as f64 / GIB,
            setting: "replay.capacity".into(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_figures_are_named() {
        let available = parse("MemTotal: 8 kB\nMemAvailable:    2097152 kB\nBuffers: 1 kB\n");
        assert_eq!(available, Some(2 << 30));
        assert!(check(2 << 30, available).is_ok());
        assert!(check(u64::MAX, None).is_ok());
        assert_eq!(
            check(3 << 30, available).unwrap_err().to_string(),
            "the replay buffer needs 3.00 GiB of memory, but 2.00 GiB is available: lower `replay.capacity`"
        );
    }
}
