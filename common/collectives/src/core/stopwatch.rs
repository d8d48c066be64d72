//! How long a wait lasts.

use std::time::{Duration, Instant};

/// The length of a wait, without the time in which the run is paused or the process is stopped, as
/// by a shell.
pub(crate) struct Stopwatch {
    since: Instant,
    /// How long the run had been paused by then.
    paused: Duration,
    /// Run time from the start to the latest poll.
    pub(crate) last_poll: Duration,
    /// Time from a poll to the next beyond `max_interval`: the process was stopped.
    stopped: Duration,
    /// The most time from a poll to the next that counts.
    max_interval: Duration,
}

impl Stopwatch {
    /// Starts when the run has been paused for `paused`. The waiting thread polls more often than
    /// every `max_interval`: if more time has passed, the process was stopped, and the rest does
    /// not count.
    pub(crate) fn start(paused: Duration, max_interval: Duration) -> Self {
        let [last_poll, stopped] = [Duration::ZERO; 2];
        Stopwatch { since: Instant::now(), paused, last_poll, stopped, max_interval }
    }

    /// Reads the clock. Returns the time waited so far; `paused` is the run's pause so far.
    pub(crate) fn poll(&mut self, paused: Duration) -> Duration {
        self.poll_at(self.run_time(paused))
    }

    /// Returns the run time since the start; `paused` is the run's pause so far.
    pub(crate) fn run_time(&self, paused: Duration) -> Duration {
        self.since.elapsed().saturating_sub(paused.saturating_sub(self.paused))
    }

    /// Polls at `now`, in run time since the start.
    pub(crate) fn poll_at(&mut self, now: Duration) -> Duration {
        let passed = now.saturating_sub(std::mem::replace(&mut self.last_poll, now));
        self.stopped += passed.saturating_sub(self.max_interval);
        self.waited()
    }

    /// Returns the time waited until the latest poll.
    pub(crate) fn waited(&self) -> Duration {
        self.last_poll.saturating_sub(self.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_waits_for_nothing() {
        let interval = Duration::from_millis(20);
        let mut stopwatch = Stopwatch::start(Duration::ZERO, 2 * interval);
        let waited = [1, 2, 3, 1000, 1001].map(|number| stopwatch.poll_at(number * interval));
        assert_eq!(waited, [1, 2, 3, 5, 6].map(|number| number * interval));
    }
}
