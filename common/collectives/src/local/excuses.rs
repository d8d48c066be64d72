//! Who waits for whom: the excuse of a rank that others wait for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What one rank knows of the others' waiting, in any group, and tells of its own.
pub(crate) trait Excuses {
    /// This rank has waited for another for a while; with none it waits no longer.
    fn waits_for(&self, rank: Option<u32>);
    /// Whether `rank` has waited for a while, and for another than this one.
    fn is_excused(&self, rank: u32) -> bool;
}

/// Who has waited for whom for a while, by their ranks in the world.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<BTreeMap<u32, u32>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rank` has waited for another one for a while, or waits no longer.
    pub(crate) fn set(&self, rank: u32, awaited: Option<u32>) {
        let mut all = self.lock();
        match awaited {
            Some(awaited) => all.insert(rank, awaited),
            None => all.remove(&rank),
        };
    }

    /// Whether `rank` waits for somebody else than `other`, who waits for it.
    pub(crate) fn excuses(&self, rank: u32, other: u32) -> bool {
        self.lock().get(&rank).is_some_and(|&awaited| awaited != other)
    }
}
