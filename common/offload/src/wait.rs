//! How long a rank waits for a transfer, and what ends the wait early.

use crate::{Error, Result};
use collectives::GroupWatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The longest time between two checks of the run's clock, which stands still while the run is
/// paused, and of the rank's group.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The longest wait that the rank does not publish.
const PUBLISH_AFTER: Duration = Duration::from_secs(1);

/// Conditions that end a rank's wait for a transfer early.
#[derive(Default)]
pub struct WaitLimits {
    /// The rank's group, whose failure ends the wait with an error.
    pub group: Option<GroupWatch>,
    /// A request to stop the run: simulated links then deliver at once.
    pub stop: Option<Arc<AtomicBool>>,
    /// The longest silence of a disk, or remaining time of a simulated link, before the wait fails.
    pub timeout: Option<Duration>,
}

impl WaitLimits {
    /// True once a stop of the run is requested: the rank then waits for no simulated link.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Acquire))
    }

    /// Begins a wait at `now` on the run's clock.
    pub(crate) fn begin(&self, now: Duration) -> Wait<'_> {
        Wait { limits: self, polled: now, waited: Duration::ZERO, idle: Duration::ZERO, published: false }
    }
}

/// A wait in progress.
pub(crate) struct Wait<'a> {
    limits: &'a WaitLimits,
    polled: Duration,
    waited: Duration,
    /// Time since the disk last answered anything.
    idle: Duration,
    published: bool,
}

impl Wait<'_> {
    /// Checks the group at `now`, [`POLL_INTERVAL`] after the last check. If more than twice that
    /// has passed, the process was suspended, and the excess does not count as waiting. A long wait
    /// is published, so that the deadlines of ranks that wait for this one pause.
    ///
    /// # Errors
    /// The group's failure.
    pub(crate) fn poll(&mut self, now: Duration) -> Result<()> {
        let passed = now.saturating_sub(std::mem::replace(&mut self.polled, now)).min(2 * POLL_INTERVAL);
        self.waited += passed;
        self.idle += passed;
        let WaitLimits { group: Some(group), timeout, .. } = self.limits else { return Ok(()) };
        if let Some(failure) = group.failure() {
            return Err(Error::Group(failure));
        }
        let publish_after = timeout.map_or(PUBLISH_AFTER, |timeout| (timeout / 10).min(PUBLISH_AFTER));
        if self.waited >= publish_after && !std::mem::replace(&mut self.published, true) {
            group.set_blocked(true);
        }
        Ok(())
    }

    /// Notes that the disk has answered a call.
    pub(crate) fn answered(&mut self) {
        self.idle = Duration::ZERO;
    }

    /// Returns the time for which the disk has not answered, if that is too long.
    pub(crate) fn too_long(&self) -> Option<Duration> {
        (self.idle >= self.limits.timeout?).then_some(self.idle)
    }

    /// Ends the wait: the transfer is done.
    pub(crate) fn finish(self) {
        if let (true, Some(group)) = (self.published, &self.limits.group) {
            group.set_blocked(false);
        }
    }
}
