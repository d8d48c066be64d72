//! How long a rank waits for others.

use std::time::{Duration, Instant};

/// How long a member waits for others. The clock stands still while the run is paused, and while a simulated link
/// delivers.
pub(crate) struct Patience<'a> {
    pub(crate) timeout: Duration,
    /// Time for which the run was held so far.
    pub(crate) held: &'a dyn Fn() -> Duration,
    /// Time since a simulated link last delivered, zero while it does; without a link, since ever.
    pub(crate) delivered: &'a dyn Fn() -> Duration,
}

/// A deadline that does not run while the run is held or a simulated link delivers.
pub(crate) struct Deadline {
    since: Instant,
    held: Duration,
    pub(crate) spun: bool,
}

impl Deadline {
    pub(crate) fn start(patience: &Patience<'_>) -> Self {
        Deadline { since: Instant::now(), held: (patience.held)(), spun: false }
    }

    /// What is left of the patience. While the run is held it does not shrink, so at least a few milliseconds.
    pub(crate) fn left(&self, patience: &Patience<'_>) -> Duration {
        let held = (patience.held)().saturating_sub(self.held);
        let waited = self.since.elapsed().saturating_sub(held).min((patience.delivered)());
        let left = patience.timeout.saturating_sub(waited);
        if left.is_zero() { left } else { left.max(Duration::from_millis(5)) }
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
