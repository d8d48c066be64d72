//! Who waits for whom: the excuse of a rank that others wait for.

use std::sync::atomic::{AtomicU32, Ordering};

/// What one rank knows of the others' waiting, in any group, and tells of its own.
pub(crate) trait Excuses {
    /// This rank has waited for another for a while; with none it waits no longer.
    fn waits_for(&self, rank: Option<u32>);
    /// Whether `rank` has waited for a while, and for another than this one.
    fn is_excused(&self, rank: u32) -> bool;
}

/// Whom the ranks of a process wait for, by their rank in the world. What is read is at most a little old.
pub(crate) struct Waiting(Box<[AtomicU32]>);

/// Nobody.
const NONE: u32 = u32::MAX;

impl Waiting {
    /// In a world of `size` ranks nobody waits.
    pub(crate) fn new(size: usize) -> Self {
        Waiting((0..size).map(|_| AtomicU32::new(NONE)).collect())
    }

    /// What `rank` knows and tells.
    pub(crate) fn of(&self, rank: u32) -> impl Excuses + use<'_> {
        Own { all: &self.0, rank }
    }
}

struct Own<'a> {
    all: &'a [AtomicU32],
    rank: u32,
}

impl Excuses for Own<'_> {
    fn waits_for(&self, rank: Option<u32>) {
        self.all[self.rank as usize].store(rank.unwrap_or(NONE), Ordering::Relaxed);
    }

    fn is_excused(&self, rank: u32) -> bool {
        ![NONE, self.rank].contains(&self.all[rank as usize].load(Ordering::Relaxed))
    }
}
