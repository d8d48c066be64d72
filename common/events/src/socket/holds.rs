//! Tracks which viewers hold or slow a run, and the pace to which it returns when they disconnect.

use crate::pace::{Control, Pace};
use std::collections::BTreeMap;

/// One viewer's requests that hold or slow the run, with no other request between them.
struct Hold {
    /// The pace asked for before the first of them.
    before: Control,
    /// The number of requests before the first of them.
    follows: u64,
    /// The number of requests up to the latest of them.
    latest: u64,
}

/// The holds of all viewers, by the viewers' numbers. A hold is in force until the next request,
/// whether another viewer or the run's own screen makes it.
#[derive(Default)]
pub(super) struct Holds(BTreeMap<u64, Hold>);

impl Holds {
    /// Applies a request of `viewer` to `pace`.
    pub(super) fn ask(&mut self, viewer: u64, control: Control, pace: &Pace) {
        let made = pace.requests();
        let own = self.0.get(&viewer).filter(|hold| hold.latest == made);
        let (before, follows) = own.map_or((pace.asked(), made), |hold| (hold.before, hold.follows));
        if own.is_none() {
            self.leave(viewer, pace);
        }
        pace.control(control);
        match control {
            Control::Resume | Control::Slow(1.0..) => _ = self.0.remove(&viewer),
            _ => _ = self.0.insert(viewer, Hold { before, follows, latest: pace.requests() }),
        }
    }

    /// Ends the hold of a `viewer` that disconnects. If it is in force, the run returns to the pace
    /// before it. If another hold follows it, the end of that hold returns to the pace before this
    /// one.
    pub(super) fn leave(&mut self, viewer: u64, pace: &Pace) {
        let Some(hold) = self.0.remove(&viewer) else { return };
        let in_force = hold.latest == pace.requests();
        if in_force {
            pace.control(hold.before);
        }
        for other in self.0.values_mut() {
            if other.follows == hold.latest {
                (other.before, other.follows) = (hold.before, hold.follows);
            }
            if in_force && other.latest == hold.follows {
                other.latest = pace.requests();
            }
        }
    }
}
