//! Where a rank's progress is reported and counted.

use crate::traffic::{CallTimer, TrafficCounters};
use events::{Emitter, Operation, What};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Receives what one rank does in one group: events, and counters of its traffic.
#[derive(Clone)]
pub(crate) struct Observer {
    pub(crate) emitter: Emitter,
    /// Traffic of this group.
    pub(crate) counters: Arc<TrafficCounters>,
    /// Traffic of the world's group and of every group split from it.
    pub(crate) overall: Arc<TrafficCounters>,
    /// The group's number.
    pub(crate) group: u16,
    /// True once pending results may be dropped; shared by the same groups as `overall`.
    pub(crate) winding_down: Arc<AtomicBool>,
    /// The time at which the call that the rank has waited for last was complete.
    pub(crate) complete: Arc<Mutex<Option<Instant>>>,
}

impl Observer {
    /// Returns an observer for calls that are no part of the run.
    pub(crate) fn silent(rank: u32) -> Self {
        Observer::new(Emitter::silent(rank), 0)
    }

    /// Returns an observer of group number `group` that emits to `emitter`.
    pub(crate) fn new(emitter: Emitter, group: u16) -> Self {
        let (counters, overall, winding_down) = (Arc::default(), Arc::default(), Arc::default());
        Observer { emitter, counters, overall, group, winding_down, complete: Arc::default() }
    }

    /// Counts the rank's time in a call of `operation` since `timer` started.
    pub(crate) fn spent(&self, operation: Operation, timer: &CallTimer) {
        let time = timer.elapsed(&self.emitter);
        self.count(|counters| counters.spent(operation, time));
    }

    /// Calls `count` for the counters of this group and for those of all groups.
    pub(crate) fn count(&self, count: impl Fn(&TrafficCounters)) {
        [&self.counters, &self.overall].into_iter().for_each(|counters| count(counters));
    }

    /// Emits that this rank's collective has failed, while its buffers still exist.
    pub(crate) fn failing(&self) {
        self.emitter.emit(What::Failing);
    }

    /// Returns how long the run has been paused so far.
    pub(crate) fn paused(&self) -> Duration {
        self.emitter.paused()
    }
}
