//! What one rank does in one collective.

use super::{ThreadMember, parties};
use crate::backend::{Backend, Call, Watch};
use crate::local::data::Contribution;
use crate::local::deadline::Patience;
use crate::local::direct;
use crate::local::gpu::Parties;
use crate::local::ring::{self, Neighbours, Ring};
use crate::local::ticket::{Failure, Ticket};
use events::{Progress, What, Work};

/// One rank inside one collective's data; leaves it when dropped, in an unwinding too.
pub(super) struct Share<'a> {
    pub(super) rank: &'a ThreadMember,
    pub(super) ticket: Ticket,
    pub(super) all: &'a [Contribution],
    pub(super) watch: &'a Watch,
    pub(super) patience: &'a Patience<'a>,
    /// Bytes sent, once the part is complete.
    pub(super) finished: Option<u64>,
}

impl Share<'_> {
    /// Moves this rank's part of the data.
    pub(super) fn run(mut self) {
        let me = self.ticket.party();
        let call = &self.all[me].call;
        self.watch.tell(call, Progress::Started);
        if call.elsewhere {
            self.finished = Some(direct::sent(&self.all[me], me, self.all.len()));
            return;
        }
        if let Some(parties) = parties(self.all) {
            self.finished = self.run_on_gpu(&parties, me);
            return;
        }
        self.finished = if self.rank.goes_around(call) {
            // SAFETY: the protocol let this rank enter once: all have issued and agree, and nobody's buffer is given
            // back before this rank has left.
            unsafe { Ring { all: self.all, me }.run(&mut self) }
                .is_ok()
                .then(|| ring::sent(&self.all[me], me, self.all.len()))
        } else {
            // SAFETY: as above.
            Some(unsafe {
                direct::run(self.all, me, &mut |from, to, chunk, bytes| self.tell(from, to, chunk, bytes))
            })
        };
    }

    /// Queues this rank's share; the bytes that it sends, or `None` once the group knows why it failed.
    fn run_on_gpu(&self, parties: &Parties<'_>, me: usize) -> Option<u64> {
        let Call { sequence, operation, .. } = self.all[me].call;
        let what = Work::Collective { group: self.watch.group, sequence, operation };
        let hop = &mut |from, to, chunk, bytes| self.tell(from, to, chunk, bytes);
        // SAFETY: the protocol let this rank enter once: all have issued and agree. Nobody gets a buffer back before all
        // have queued their shares, and nobody computes on it before those are done.
        let queued = unsafe { parties.run(me, what, hop) };
        match queued {
            Ok(()) => Some(direct::sent(&self.all[me], me, self.all.len())),
            Err(error) => {
                self.rank.poison(parties.call.label(), error.to_string());
                None
            }
        }
    }

    fn tell(&self, from: usize, to: usize, chunk: usize, bytes: u64) {
        let name = |party| self.rank.names()[self.ticket.lane.member(party)] as u16;
        self.watch.emitter.emit(What::Hop {
            group: self.watch.group,
            sequence: self.ticket.sequence,
            from: name(from),
            to: name(to),
            chunk: chunk as u16,
            bytes,
        });
    }
}

impl Neighbours<Failure> for Share<'_> {
    fn follow(&mut self, left: usize, steps: usize) -> std::result::Result<(), Failure> {
        self.rank.shared.hub.follow(&self.ticket, left, steps, self.patience)
    }

    fn advance(&mut self) {
        self.rank.shared.hub.advance(&self.ticket);
    }

    fn hop(&mut self, from: usize, to: usize, chunk: usize, bytes: u64) {
        self.tell(from, to, chunk, bytes);
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.rank.poison(self.all[0].call.label(), "it panicked".into());
        }
        self.rank.shared.hub.exit(&self.ticket, self.finished.is_some(), self.finished.unwrap_or(0));
    }
}
