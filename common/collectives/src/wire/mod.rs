//! Ranks that are processes, whichever transport carries their messages.
//!
//! At `issue` a rank sends every other rank a contribution: the signature of its call, and the part
//! of its data that is meant for that rank and known by then. At `wait`, once all contributions
//! have arrived and agree, each rank adds up the slice that it owns, over the same tree as
//! ranks that share memory; in an all-reduce it sends the sum to all ranks as its result. So
//! results have the same bits as between threads, over any transport.
//!
//! No buffer is touched before all contributions agree. A rank that notices a failure passes it to
//! all others before it closes its connections, so that all name the same culprit. If a connection
//! breaks without a departure, the rank behind it is reported. If a rank stays silent, the ranks
//! that wait for it name it at their deadline, unless it has published that it is blocked: then the
//! rank at the end of that chain is named.

mod data;
mod mailbox;
mod member;
mod message;
mod payload;

#[cfg(feature = "mpi")]
pub(crate) use mailbox::SETUP;
pub(crate) use mailbox::{Mailbox, WORLD};
#[cfg(test)]
pub(crate) use message::Message;
pub(crate) use message::{Address, Head, Lengths, PREFIX, Phase, decode, encode, lengths};
pub(crate) use payload::Payload;

use crate::group::Group;
use member::ProcessMember;
use std::sync::Arc;
use std::time::Duration;

/// Receives how long another process has taken no data.
pub(crate) type Stalled<'a> = &'a mut dyn FnMut(Duration);

/// Carries messages between this process and the others. Messages from one process to another
/// arrive in order.
pub(crate) trait Transport: Send + Sync {
    /// Sends `head` (with its prefix) and `pieces` to rank `to`. May block until the other process
    /// has accepted them, but not on that process's compute thread: its reader threads accept
    /// messages. While it blocks it calls `stalled` repeatedly. An error is the reason for
    /// [`Mailbox::lost`].
    fn send(&self, to: u32, head: &[u8], pieces: &[&[u8]], stalled: Stalled<'_>) -> Result<(), String>;

    /// Sends `head` to rank `to` if that does not block; otherwise sends nothing.
    fn offer(&self, to: u32, head: &[u8]);

    /// Blocks until a message reaches the mailbox after `seen`, for at most `time`.
    fn progress(&self, mailbox: &Mailbox, seen: u64, time: Duration);

    /// Notes that a group has failed.
    fn note_failure(&self) {}
}

/// One process among others.
pub(crate) struct Endpoint {
    pub(crate) rank: u32,
    /// Number of processes.
    pub(crate) size: u32,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) transport: Box<dyn Transport>,
    /// How long to wait for another rank. Time for which the run is paused does not count.
    pub(crate) timeout: Duration,
}

impl Endpoint {
    /// Returns this process's end of a group of all ranks.
    pub(crate) fn group(self: Arc<Self>, id: u64) -> Group {
        let member = self.rank as usize;
        let global_ranks = (0..self.size).collect();
        Group::new(Arc::new(ProcessMember::new(self, vec![id], global_ranks, member)), 0)
    }
}
