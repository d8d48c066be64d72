//! How long a wait for NCCL lasts.

use std::time::{Duration, Instant};

/// The longest time between two looks at a stopwatch.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The length of a wait, without the time in which the run is paused or the process is stopped.
pub(crate) struct Stopwatch {
    since: Instant,
    /// How long the run had been paused by then.
    held: Duration,
    /// Run time from the start to the latest look.
    looked: Duration,
    waited: Duration,
}

impl Stopwatch {
    /// Starts at a time by which the run has been paused for `held`.
    pub(crate) fn start(held: Duration) -> Self {
        Stopwatch { since: Instant::now(), held, looked: Duration::ZERO, waited: Duration::ZERO }
    }

    /// Returns the time waited. Whoever waits looks every [`LOOK`]: if more than twice that has passed,
    /// the process was stopped, and the rest does not count. `held` is the run's pause so far.
    pub(crate) fn look(&mut self, held: Duration) -> Duration {
        self.look_at(self.since.elapsed().saturating_sub(held.saturating_sub(self.held)))
    }

    fn look_at(&mut self, run: Duration) -> Duration {
        let passed = run.saturating_sub(std::mem::replace(&mut self.looked, run));
        self.waited += passed.min(2 * LOOK);
        self.waited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_waits_for_nothing() {
        let mut stopwatch = Stopwatch::start(Duration::ZERO);
        let looks = [1, 2, 3, 1000, 1001].map(|number| stopwatch.look_at(number * LOOK));
        assert_eq!(looks, [1, 2, 3, 5, 6].map(|number| number * LOOK));
    }
}
