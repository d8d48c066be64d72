//! Ranks that are processes, whatever carries their messages.
//!
//! At `issue` a rank sends every other rank an contribution: what it issued, and the part of its data that is known by then
//! and meant for that rank. At `wait`, once all contributions are here and agree, each rank adds up the slice that it
//! answers for, over the same tree as ranks that share memory, and for an all-reduce sends the sum to everybody. So
//! results have the same bits as between threads, whoever carries the messages.
//!
//! No buffer is touched before all contributions agree. A failure is told to everybody before its rank lets go of its
//! connections, so that all name the same culprit; a connection that breaks without a farewell names the rank behind
//! it; a rank that stays silent is named by those who wait for it once their patience ends, unless it has told that it
//! waits itself: then those it waits for are.

mod data;
mod mailbox;
mod member;
mod message;
mod payload;

pub(crate) use mailbox::{Mailbox, WORLD};
#[cfg(test)]
pub(crate) use message::encode;
pub(crate) use message::{Address, HEAD, Head, Kind, Message, Reader, call, decode, failure, put_text};
#[cfg(feature = "mpi")]
pub(crate) use payload::{Payload, PayloadPool};

use crate::group::Group;
use member::ProcessMember;
use std::sync::Arc;
use std::time::Duration;

/// Hears for how long a receiver has taken nothing.
pub(crate) type Stalled<'a> = &'a mut dyn FnMut(Duration);

/// What carries messages between this process and the others. Messages from one process to another arrive in order.
pub(crate) trait Transport: Send + Sync {
    /// Sends `head` (with its note) and `pieces` to rank `to`. May take as long as the other process needs to accept
    /// them, but never waits for its rank; then `stalled` is told again and again. A failure is for [`Mailbox::lost`].
    fn send(&self, to: u32, head: &[u8], pieces: &[&[u8]], stalled: Stalled<'_>) -> Result<(), String>;

    /// Sends `head` to rank `to` if that takes no waiting; else nothing.
    fn offer(&self, to: u32, head: &[u8]);

    /// Waits until something reaches the mailbox after `seen`, for at most `time`.
    fn progress(&self, mailbox: &Mailbox, seen: u64, time: Duration);
}

/// One process among others.
pub(crate) struct Endpoint {
    pub(crate) rank: u32,
    /// Number of processes.
    pub(crate) size: u32,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) transport: Box<dyn Transport>,
    /// How long to wait for other ranks. Time for which the run is paused does not count.
    pub(crate) timeout: Duration,
}

impl Endpoint {
    /// This process's end of the group of all ranks.
    pub(crate) fn world(self: Arc<Self>) -> Group {
        self.group(WORLD)
    }

    /// This process's end of a group of all ranks in which they agree before the run begins: its traffic is not the
    /// world's.
    #[cfg(feature = "mpi")]
    pub(crate) fn setup(self: Arc<Self>) -> Group {
        self.group(mailbox::SETUP)
    }

    fn group(self: Arc<Self>, id: u64) -> Group {
        let member = self.rank as usize;
        let names = (0..self.size).collect();
        Group::new(Arc::new(ProcessMember::new(self, vec![id], names, member)), 0)
    }
}
