//! Measures how long a rank is idle: the time between its passes, each stretch counted for one
//! collective only.

/// The idle time of a rank so far, in nanoseconds.
#[derive(Default)]
pub(super) struct IdleClock {
    /// Time at which the rank became idle; `None` while it computes.
    since: Option<u64>,
    /// Idle time before that.
    before: u64,
    /// The idle time up to which it has been counted for a collective.
    counted: u64,
}

impl IdleClock {
    pub(super) fn pass_begins(&mut self, at: u64) {
        self.before = self.until(at);
        self.since = None;
    }

    pub(super) fn pass_ends(&mut self, at: u64) {
        self.since = Some(at);
    }

    pub(super) fn until(&self, at: u64) -> u64 {
        self.before + self.since.map_or(0, |since| at.saturating_sub(since))
    }

    /// Returns the idle time between `issued`, the idle time when a collective was issued, and
    /// `at`, without the time already counted for another collective.
    pub(super) fn waited(&mut self, issued: u64, at: u64) -> u64 {
        let now = self.until(at);
        let waited = now.saturating_sub(issued.max(self.counted));
        self.counted = now;
        waited
    }
}
