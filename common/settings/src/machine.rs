//! This machine's memory and cores.

mod control_group;

use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of threads that compute in one process. Each has a stack, another one for
/// signals, and their guard pages: several memory maps, of which Linux gives a process 65,530 by
/// default (`vm.max_map_count`). Beyond them, a new thread aborts the process.
pub const THREADS: usize = 4096;

/// The main memory that the processes of this machine may use together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MainMemory {
    /// Its size in bytes, including the swap space that counts.
    pub bytes: u64,
    /// The file of the control group that sets this limit; `None` if it is the machine's own size.
    pub limit: Option<PathBuf>,
}

/// Whether swap space counts as main memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapSpace {
    /// It counts.
    Included,
    /// It does not count: page-locked memory is never swapped out.
    Excluded,
}

/// Returns the machine's memory, or the limit that the control group of this process sets; `None`
/// if the system does not report it (Linux: proc(5), cgroups(7)).
pub fn memory(swap_space: SwapSpace) -> Option<MainMemory> {
    memory_under(Path::new("/"), swap_space)
}

/// Returns the memory, as [`memory`] does, of the system whose files are under `root`.
fn memory_under(root: &Path, swap_space: SwapSpace) -> Option<MainMemory> {
    let (memory, swap) = total(&std::fs::read_to_string(root.join("proc/meminfo")).ok()?)?;
    let swap = if swap_space == SwapSpace::Included { swap } else { 0 };
    let all = MainMemory { bytes: memory + swap, limit: None };
    let limits = control_group::limits(root, swap).into_iter();
    limits.chain([all]).min_by_key(|memory| memory.bytes)
}

/// Returns the bytes of main memory and of swap space.
fn total(meminfo: &str) -> Option<(u64, u64)> {
    let kibibytes = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some((kibibytes("MemTotal:")? << 10, kibibytes("SwapTotal:").unwrap_or(0) << 10))
}

/// Returns the number of cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Returns the message about `thread`, which the system did not start because of `error`.
pub fn not_started(thread: &str, error: &io::Error) -> String {
    format!("cannot start {thread}: {error}{}", remedy_for_threads(error))
}

/// Returns a line with the remedy for `error`, of a thread that the system did not start. The line
/// is empty if no limit is reached.
pub fn remedy_for_threads(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => {
            "\nThe system allows no more threads: use fewer ranks (--gpus) or threads per rank (--threads), or raise \
             the limit of processes (`ulimit -u`, the container's limit of pids)."
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests;
