//! Processor time: what other programs on the machine do not lengthen.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// What the calling thread has taken so far.
pub fn of_thread() -> Duration {
    taken(ClockId::ThreadCPUTime)
}

/// What all threads of this process have taken so far, ended ones too.
pub fn of_process() -> Duration {
    taken(ClockId::ProcessCPUTime)
}

fn taken(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
