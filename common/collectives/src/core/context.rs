//! One member's view of one call.

use super::call::Call;
use super::failure::{Awaited, Cause, Failure};
use super::observer::Observer;
use std::time::Duration;

/// How a rank waits for other ranks: its clocks, and its end of the [wait
/// graph](super::wait_graph::WaitGraph).
pub(crate) trait Waiter {
    /// Returns how long to wait for another rank before the group fails.
    fn timeout(&self) -> Duration;

    /// Returns how long the run has been paused so far.
    fn paused(&self, observer: &Observer) -> Duration {
        observer.paused()
    }

    /// Returns the time since a simulated link last delivered: zero while it is delivering, the
    /// largest time without a link. `paused` is the run's pause so far.
    fn since_delivery(&self, _paused: Duration) -> Duration {
        Duration::MAX
    }

    /// Publishes that this rank has been waiting for `rank` for a while, or that it waits no
    /// longer.
    fn publish(&self, rank: Option<u32>);

    /// True if `rank` has published that it waits for a rank other than this one.
    fn is_blocked(&self, rank: u32) -> bool;
}

/// A call with its member's place in the group and way of waiting.
#[derive(Clone, Copy)]
pub(crate) struct CallContext<'a> {
    pub(crate) call: &'a Call,
    /// This rank's place in the group.
    pub(crate) member: usize,
    pub(crate) waiter: &'a dyn Waiter,
}

impl CallContext<'_> {
    pub(crate) fn sequence(&self) -> u64 {
        self.call.sequence
    }

    /// Returns the failure for this rank, `reporter`, that has timed out on what it `awaited` from
    /// `culprit`.
    pub(crate) fn timeout_failure(&self, reporter: u32, culprit: u32, awaited: Awaited) -> Failure {
        let (call, waited) = (self.call.id(), self.waiter.timeout());
        Failure { culprit, cause: Cause::Late { reporter, call, awaited, waited } }
    }

    /// Returns how long the run has been paused so far.
    pub(crate) fn paused(&self) -> Duration {
        self.waiter.paused(&self.call.observer)
    }
}
