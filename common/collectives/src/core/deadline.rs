//! When a rank's wait for other ranks times out, and which rank it may blame then.
//!
//! If rank A waits for B and B is blocked on C, in this group or another, the error must name C. A
//! rank that has been blocked for a while publishes which rank it waits for; deadlines on it pause
//! until it continues. So the rank that waits for C times out first, and its report names C.

use super::context::CallContext;
use super::stopwatch::Stopwatch;
use std::time::Duration;

/// The longest pause between two polls, whatever the timeout.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The shortest pause between two polls.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Returns the interval between two polls of a wait. While the process is stopped it cannot poll,
/// and one such interval counts as waiting; so it is a small part of `timeout`.
pub(crate) fn poll_interval(timeout: Duration) -> Duration {
    (timeout / 10).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

/// A deadline for other ranks. It pauses while the run is paused, while a simulated link delivers,
/// while every awaited rank is itself blocked, and while the whole process is stopped, as by a
/// shell.
pub(crate) struct Deadline<'a> {
    pub(crate) context: CallContext<'a>,
    stopwatch: Stopwatch,
    /// Time in which every awaited rank was blocked; at most the timeout, since a publication may
    /// be outdated.
    blocked: Duration,
    /// The rank that this rank has published to wait for.
    published: Option<u32>,
    /// True once this wait has spun or chosen not to: from then on it parks.
    pub(crate) spun: bool,
}

impl<'a> Deadline<'a> {
    pub(crate) fn start(context: &CallContext<'a>) -> Self {
        let stopwatch = Stopwatch::start(context.paused(), poll_interval(context.waiter.timeout()));
        Deadline { context: *context, stopwatch, blocked: Duration::ZERO, published: None, spun: false }
    }

    /// Updates the clock, publishes a long wait for `ranks`, at least one, and returns how long to
    /// wait before the next poll. The result is at least [`MIN_POLL_INTERVAL`]: while the run is
    /// paused the remaining time stands still, and a shorter wait would spin.
    ///
    /// # Errors
    /// The rank to blame, once the timeout is over: the first of `ranks` that is not blocked.
    pub(crate) fn poll(&mut self, ranks: &[u32]) -> Result<Duration, u32> {
        self.poll_at(self.stopwatch.run_time(self.context.paused()), ranks)
    }

    /// Polls at `now`, in run time since the start.
    fn poll_at(&mut self, now: Duration, ranks: &[u32]) -> Result<Duration, u32> {
        let waiter = self.context.waiter;
        let timeout = waiter.timeout();
        let interval = poll_interval(timeout);
        let before = self.stopwatch.waited();
        let waited = self.stopwatch.poll_at(now);
        let passed = waited.saturating_sub(before);
        let waited = waited.min(waiter.since_delivery(self.context.paused()));
        let mut culprit = ranks[0];
        if waited >= interval {
            match ranks.iter().find(|&&rank| !waiter.is_blocked(rank)) {
                Some(&rank) => culprit = rank,
                None => self.blocked = timeout.min(self.blocked + passed),
            }
            if self.published.replace(culprit) != Some(culprit) {
                waiter.publish(Some(culprit));
            }
        }
        let left = timeout.saturating_sub(waited.saturating_sub(self.blocked));
        if left.is_zero() {
            // Other ranks must learn of the failure before they learn that this rank no longer
            // waits: leave the publication as it is.
            self.published = None;
            return Err(culprit);
        }
        Ok(left.clamp(MIN_POLL_INTERVAL, interval))
    }
}

impl Drop for Deadline<'_> {
    fn drop(&mut self) {
        if self.published.is_some() {
            self.context.waiter.publish(None);
        }
    }
}

#[cfg(test)]
mod tests;
