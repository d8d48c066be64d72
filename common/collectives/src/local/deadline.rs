//! How long a rank waits for others.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// How often, at least, one who waits looks at the clock, whatever the patience.
const LOOK: Duration = Duration::from_secs(1);

/// The same with a patience of `timeout`: often enough that a stop, which looks like one such stretch of waiting, uses up little of it.
fn look(timeout: Duration) -> Duration {
    (timeout / 10).clamp(SHORTEST, LOOK)
}

/// The shortest wait between two looks.
const SHORTEST: Duration = Duration::from_millis(5);

/// How long a member waits for others. The clock stands still while the run is paused, and while a simulated link
/// delivers.
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Duration,
    /// Time for which the run was held so far.
    pub(crate) held: &'a dyn Fn() -> Duration,
    /// Time since a simulated link last delivered, zero while it does; without a link, since ever.
    pub(crate) delivered: &'a dyn Fn() -> Duration,
}

/// A deadline that does not run while the run is held, a simulated link delivers or the whole process is stopped, as by a
/// shell.
pub(crate) struct Deadline {
    since: Instant,
    held: Duration,
    /// Run time from the start to the latest look.
    looked: Cell<Duration>,
    /// Time in which nobody looked though somebody should have: the process stood still.
    stopped: Cell<Duration>,
    pub(crate) spun: bool,
}

impl Deadline {
    pub(crate) fn start(patience: &Patience<'_>) -> Self {
        let (looked, stopped) = (Cell::default(), Cell::default());
        Deadline { since: Instant::now(), held: (patience.held)(), looked, stopped, spun: false }
    }

    /// How long to wait before the next look; zero once the patience is over. While the run is held it does not shrink, so
    /// at least a few milliseconds.
    pub(crate) fn left(&self, patience: &Patience<'_>) -> Duration {
        let held = (patience.held)().saturating_sub(self.held);
        self.left_at(self.since.elapsed().saturating_sub(held), patience)
    }

    /// The same after `run` of the run's time.
    fn left_at(&self, run: Duration, patience: &Patience<'_>) -> Duration {
        let look = look(patience.timeout);
        let unseen = run.saturating_sub(self.looked.replace(run)).saturating_sub(look);
        self.stopped.set(self.stopped.get() + unseen);
        let waited = run.saturating_sub(self.stopped.get()).min((patience.delivered)());
        let left = patience.timeout.saturating_sub(waited);
        if left.is_zero() { left } else { left.clamp(SHORTEST, look) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn time_under_hold_does_not_count() {
        let held = Cell::new(Duration::ZERO);
        let now = || held.get();
        let patience =
            Patience { timeout: Duration::from_nanos(1), held: &now, delivered: &|| Duration::MAX };
        let deadline = Deadline::start(&patience);
        while deadline.since.elapsed() < Duration::from_micros(1) {}
        assert_eq!(deadline.left(&patience), Duration::ZERO);
        held.set(Duration::from_secs(60));
        assert!(!deadline.left(&patience).is_zero());
    }

    /// Ten seconds of patience, of which three pass before a stop of a minute.
    #[test]
    fn time_in_which_the_process_stands_still_does_not_count() {
        let seconds = Duration::from_secs;
        let patience =
            Patience { timeout: seconds(10), held: &|| Duration::ZERO, delivered: &|| Duration::MAX };
        let deadline = Deadline::start(&patience);
        let left = |run: u64| deadline.left_at(seconds(run), &patience);
        assert!((1..=3).all(|run| left(run) == LOOK), "it looks again and again");
        assert!((63..69).all(|run| left(run) == LOOK), "{:?}", deadline.stopped);
        assert_eq!(left(70), Duration::ZERO, "{:?}", deadline.stopped);
    }

    /// A second of patience, of which three tenths pass before a stop of a minute.
    #[test]
    fn a_stop_uses_up_little_of_a_short_patience() {
        let tenths = |count: u64| Duration::from_millis(100 * count);
        let patience =
            Patience { timeout: tenths(10), held: &|| Duration::ZERO, delivered: &|| Duration::MAX };
        let deadline = Deadline::start(&patience);
        let left = |run: u64| deadline.left_at(tenths(run), &patience);
        assert!((1..=3).all(|run| left(run) == tenths(1)), "it looks again and again");
        assert!((603..609).all(|run| left(run) == tenths(1)), "{:?}", deadline.stopped);
        assert_eq!(left(610), Duration::ZERO, "{:?}", deadline.stopped);
    }

    #[test]
    fn patience_is_whole_while_a_link_delivers() {
        let since = Cell::new(Duration::ZERO);
        let delivered = || since.get();
        let patience =
            Patience { timeout: Duration::from_nanos(1), held: &|| Duration::ZERO, delivered: &delivered };
        let deadline = Deadline::start(&patience);
        while deadline.since.elapsed() < Duration::from_micros(1) {}
        assert!(!deadline.left(&patience).is_zero());
        since.set(Duration::from_nanos(1));
        assert_eq!(deadline.left(&patience), Duration::ZERO);
    }
}
