//! Which rank waits for which, over all groups. A deadline for a rank pauses while that rank is
//! itself blocked: see [`deadline`](super::deadline).

use events::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// For each rank that has published that it waits: the rank it waits for. Ranks are those of the
/// world.
#[derive(Default)]
pub(crate) struct WaitGraph(Mutex<BTreeMap<u32, u32>>);

impl WaitGraph {
    /// Notes that `rank` waits for `awaited`, or that it waits no longer.
    pub(crate) fn set(&self, rank: u32, awaited: Option<u32>) {
        let mut edges = lock(&self.0);
        match awaited {
            Some(awaited) => edges.insert(rank, awaited),
            None => edges.remove(&rank),
        };
    }

    /// True if `rank` waits for a rank other than `waiter`, which waits for `rank`.
    pub(crate) fn is_blocked(&self, rank: u32, waiter: u32) -> bool {
        lock(&self.0).get(&rank).is_some_and(|&awaited| awaited != waiter)
    }
}
