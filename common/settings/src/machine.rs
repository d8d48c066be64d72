//! This machine's memory and cores.

/// Returns the bytes of main memory and swap space, if the system tells (Linux: proc(5),
/// `/proc/meminfo`).
pub fn memory() -> Option<u64> {
    total(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn total(meminfo: &str) -> Option<u64> {
    let kibibytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some((kibibytes("MemTotal:")? + kibibytes("SwapTotal:").unwrap_or(0)) << 10)
}

/// Returns the number of cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_counts_if_it_is_known() {
        let said = "MemTotal:       24684096 kB\nMemFree:        22540352 kB\nSwapTotal:          1024 kB\n";
        assert_eq!(total(said), Some((24_684_096 + 1024) << 10));
        assert_eq!(total("MemTotal: 8 kB\n"), Some(8 << 10));
        assert_eq!(total("MemFree: 8 kB\n"), None);
    }
}
