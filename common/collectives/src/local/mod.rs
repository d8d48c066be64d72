//! Ranks that are threads of one process.
//!
//! At `issue` a rank publishes the addresses of its buffers in a slot of the group, and returns.
//! There is no extra thread: at `wait`, once all ranks have issued, each rank does its part of the
//! work on all ranks' memory, and returns when all are done.

mod coordinator;
mod direct;
mod gpu;
mod link;
mod member;
mod published;
mod ring;
#[cfg(test)]
#[cfg(feature = "schedules")]
mod schedules;
mod shares;
mod slot;
mod sync;

pub use link::Link;

use crate::group::Group;
use events::Operation;
use member::{Shared, ThreadMember};
use std::sync::Arc;
use std::time::Duration;

/// How data moves between ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Each rank works on all ranks' memory. Sums are added over a balanced tree of ranks in f32
    /// and rounded once.
    #[default]
    Direct,
    /// Neighbour to neighbour, as between machines. Sums are rounded at every hop, in another order
    /// for every slice.
    Ring,
}

impl Algorithm {
    /// Returns how many rounds an operation takes between N = `size` ranks, at least two:
    ///
    /// | | direct | ring |
    /// |---|---|---|
    /// | reduce-scatter, all-gather | 1 | N−1 |
    /// | all-reduce | 2 | 2(N−1) |
    /// | broadcast | 1 | N−1 |
    /// | scalars, barrier | 1 | 1 |
    pub const fn rounds(self, operation: Operation, size: u32) -> u32 {
        let hops = match self {
            Algorithm::Direct => 1,
            Algorithm::Ring => size - 1,
        };
        match operation {
            Operation::AllReduce => 2 * hops,
            Operation::ReduceScatter | Operation::AllGather | Operation::Broadcast => hops,
            _ => 1,
        }
    }
}

/// How a local group behaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How long a rank waits for another before the group fails. Time for which the run is paused
    /// does not count.
    pub timeout: Duration,
    /// How data moves.
    pub algorithm: Algorithm,
    /// A simulated link; `None` for none.
    pub link: Option<Link>,
}

impl Default for Options {
    fn default() -> Self {
        Options { timeout: Duration::from_secs(60), algorithm: Algorithm::Direct, link: None }
    }
}

/// Bytes that move from one member to another.
struct Hop {
    from: usize,
    to: usize,
    /// The number of the slice, or of the piece of a broadcast.
    chunk: usize,
    bytes: u64,
}

/// Receives each hop.
type OnHop<'a> = &'a mut dyn FnMut(Hop);

/// Returns the group of all ranks of this process: one [`Group`] per rank, in rank order, each to
/// be sent to its rank's thread.
///
/// # Panics
/// If `world_size` is 0.
pub fn groups(world_size: u32, options: Options) -> Vec<Group> {
    assert!(world_size > 0, "a world has at least one rank");
    let shared = Arc::new(Shared::new((0..world_size).collect(), options));
    (0..world_size as usize)
        .map(|member| Group::new(Arc::new(ThreadMember::new(shared.clone(), member)), 0))
        .collect()
}
