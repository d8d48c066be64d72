//! Processor time. Unlike wall-clock time, it does not count while other programs run.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the processor time of the calling thread so far.
pub fn of_thread() -> Duration {
    taken(ClockId::ThreadCPUTime)
}

/// Returns the processor time of this process so far: all its threads, finished ones included.
pub fn of_process() -> Duration {
    taken(ClockId::ProcessCPUTime)
}

fn taken(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
