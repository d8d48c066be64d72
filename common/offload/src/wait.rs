//! A rank's wait for a place: what ends it early, and when it has lasted too long.

use crate::{Error, Result};
use collectives::GroupWatch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time between two looks at the run's clock, which stands still while the run is paused, and
/// at the rank's group.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Longest wait that the rank does not publish.
const SHORT: Duration = Duration::from_secs(1);

/// What a rank heeds while it waits for a place.
#[derive(Default)]
pub struct Heeds {
    /// Its group, whose failure ends the wait with an error.
    pub group: Option<GroupWatch>,
    /// A request to stop the run: simulated ways then deliver at once.
    pub stop: Option<Arc<AtomicBool>>,
    /// The longest that a disk may answer nothing, and that a simulated way may take: peers wait no
    /// longer for the rank.
    pub timeout: Option<Duration>,
}

impl Heeds {
    /// True if the run is to stop, so that the rank waits for no simulated way.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Acquire))
    }

    /// Begins a wait at `now` on the run's clock.
    pub(crate) fn begin(&self, now: Duration) -> Wait<'_> {
        Wait { heeds: self, looked: now, waited: Duration::ZERO, idle: Duration::ZERO, published: false }
    }
}

/// A wait that is under way.
pub(crate) struct Wait<'a> {
    heeds: &'a Heeds,
    looked: Duration,
    waited: Duration,
    /// Time since the disk last answered anything.
    idle: Duration,
    published: bool,
}

impl Wait<'_> {
    /// Looks around at `now`, at most [`LOOK`] after the last look; what is beyond twice that the
    /// process was stopped. A long wait is published, so that ranks that wait for this one bear with it.
    ///
    /// # Errors
    /// The group's failure.
    pub(crate) fn look(&mut self, now: Duration) -> Result<()> {
        let passed = now.saturating_sub(std::mem::replace(&mut self.looked, now)).min(2 * LOOK);
        self.waited += passed;
        self.idle += passed;
        let Heeds { group: Some(group), timeout, .. } = self.heeds else { return Ok(()) };
        if let Some(failure) = group.failure() {
            return Err(Error::Group(failure));
        }
        let short = timeout.map_or(SHORT, |timeout| (timeout / 10).min(SHORT));
        if self.waited >= short && !std::mem::replace(&mut self.published, true) {
            group.publish(true);
        }
        Ok(())
    }

    /// The disk has answered something.
    pub(crate) fn answered(&mut self) {
        self.idle = Duration::ZERO;
    }

    /// The time for which the disk has answered nothing, if that is too long.
    pub(crate) fn too_long(&self) -> Option<Duration> {
        Some(self.idle).filter(|&idle| self.heeds.timeout.is_some_and(|timeout| idle >= timeout))
    }

    /// What the rank waited for is here.
    pub(crate) fn over(self) {
        if let (true, Some(group)) = (self.published, &self.heeds.group) {
            group.publish(false);
        }
    }
}
