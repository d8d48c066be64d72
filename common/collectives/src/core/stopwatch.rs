//! How long a wait lasts.

use std::time::{Duration, Instant};

/// The length of a wait, without the time in which the run is paused or the process is stopped, as
/// by a shell.
pub(crate) struct Stopwatch {
    since: Instant,
    /// How long the run had been paused by then.
    paused: Duration,
    /// Run time from the start to the latest look.
    pub(crate) looked: Duration,
    /// Time from a look to the next beyond `most`: the process was stopped.
    stopped: Duration,
    /// The most time from a look to the next that counts.
    most: Duration,
}

impl Stopwatch {
    /// Starts when the run has been paused for `paused`. The waiting thread looks more often than
    /// every `most`: if more time has passed, the process was stopped, and the rest does not count.
    pub(crate) fn start(paused: Duration, most: Duration) -> Self {
        let [looked, stopped] = [Duration::ZERO; 2];
        Stopwatch { since: Instant::now(), paused, looked, stopped, most }
    }

    /// Looks at the clock. Returns the time waited so far; `paused` is the run's pause so far.
    pub(crate) fn look(&mut self, paused: Duration) -> Duration {
        self.look_at(self.run(paused))
    }

    /// Returns the run's time since the start; `paused` is the run's pause so far.
    pub(crate) fn run(&self, paused: Duration) -> Duration {
        self.since.elapsed().saturating_sub(paused.saturating_sub(self.paused))
    }

    /// Does what [`Stopwatch::look`] does, after `run` of the run's time.
    pub(crate) fn look_at(&mut self, run: Duration) -> Duration {
        let passed = run.saturating_sub(std::mem::replace(&mut self.looked, run));
        self.stopped += passed.saturating_sub(self.most);
        self.waited()
    }

    /// Returns the time waited until the latest look.
    pub(crate) fn waited(&self) -> Duration {
        self.looked.saturating_sub(self.stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_waits_for_nothing() {
        let look = Duration::from_millis(20);
        let mut stopwatch = Stopwatch::start(Duration::ZERO, 2 * look);
        let looks = [1, 2, 3, 1000, 1001].map(|number| stopwatch.look_at(number * look));
        assert_eq!(looks, [1, 2, 3, 5, 6].map(|number| number * look));
    }
}
