//! The processor time of a thread, for many readings.

use events::cpu;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time after a reading of the thread's clock for which the wall clock continues it. Reading
/// the thread's clock is a system call, which takes as long as a small kernel. A thread that is
/// taken off the processor mostly returns later than this; if it returns sooner, at most this time
/// is counted that it did not compute.
const CONTINUED: Duration = Duration::from_micros(20);

thread_local! {
    /// The last reading of the system's clock of this thread, and when it was made.
    static READING: Cell<Option<(Instant, Duration)>> = const { Cell::new(None) };
}

/// Returns the processor time of this thread so far.
pub(super) fn processor_time() -> Duration {
    if let Some((at, time)) = READING.get() {
        let since = at.elapsed();
        if since < CONTINUED {
            return time + since;
        }
    }
    let time = cpu::of_thread();
    READING.set(Some((Instant::now(), time)));
    time
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_the_processor_does_not_count() {
        let (start, sleep) = (processor_time(), Duration::from_millis(50));
        std::thread::sleep(sleep);
        assert!(processor_time() - start < sleep / 2);
    }

    #[test]
    fn readings_follow_the_systems_clock() {
        let (start, exact) = (processor_time(), cpu::of_thread());
        let mut last = start;
        while last - start < Duration::from_millis(5) {
            let now = processor_time();
            assert!(now + CONTINUED >= last, "{now:?} after {last:?}");
            last = last.max(now);
        }
        let (spent, exact) = (last - start, cpu::of_thread() - exact);
        assert!(spent.abs_diff(exact) < Duration::from_millis(1), "{spent:?} instead of {exact:?}");
    }
}
