//! The messages of a call: written, collected, and held against what belongs in them.

use super::{Failed, ProcessMember};
use crate::backend::Call;
use crate::local::data::{Contribution, Span};
use crate::local::deadline::{Deadline, look};
use crate::local::excuses::Excuses;
use crate::local::ticket::{Cause, Failure, Ticket, disagreement};
use crate::wire::data::{Portion, Work};
use crate::wire::message::{Address, Kind, Message, Phase, describe, encode};
use crate::wire::payload::{ALIGN, padded};
use events::{Operation, What};
use std::time::Duration;

impl ProcessMember {
    /// The rank in the world of a party of `work`.
    fn name(&self, work: &Work<'_>, party: usize) -> u32 {
        self.names[work.ticket.lane.member(party)]
    }

    fn address(&self, work: &Work<'_>, phase: Phase, from: usize) -> Address {
        let Ticket { lane, sequence, .. } = work.ticket;
        Address { group: self.id(), lane, sequence, phase, from: self.name(work, from) }
    }

    /// Sends `part` of every buffer, and the bytes of scalars, to party `to`.
    pub(super) fn post(&self, work: &Work<'_>, phase: Phase, to: usize, part: Portion) {
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 * work.own.spans.len() + 1);
        for span in &work.own.spans {
            let range = part.range(span.len(), work.parties);
            // SAFETY: the buffer was given to this collective, and only this thread touches it until `wait` returns.
            let bytes = unsafe { span.read_bytes(range) };
            pieces.extend([bytes, &[0; ALIGN][..padded(bytes.len()) - bytes.len()]]);
        }
        if matches!(phase, Phase::Contribution) {
            pieces.push(&work.own.bytes);
        }
        let address = self.address(work, phase, work.me());
        let size = pieces.iter().map(|piece| piece.len()).sum();
        let head = encode(Kind::Message(address), describe(work.call()), size);
        let to = self.name(work, to);
        let (look, mut told) = (look(work.patience.timeout), false);
        let mut stalled = |time: Duration| {
            if time >= look && !std::mem::replace(&mut told, true) {
                self.waits_for(Some(to));
            }
        };
        match self.endpoint.transport.send(to, &head, &pieces, &mut stalled) {
            Ok(()) if told => self.waits_for(None),
            Ok(()) => {}
            Err(reason) => self.endpoint.mailbox.lost(to, reason),
        }
    }

    /// Everybody else's messages of one phase, by party.
    pub(super) fn collect(&self, work: &Work<'_>, phase: Phase) -> Failed<Vec<(usize, Message)>> {
        let mailbox = &self.endpoint.mailbox;
        let parties: Vec<usize> = (0..work.parties).filter(|&party| party != work.me()).collect();
        let addresses: Vec<Address> = parties.iter().map(|&party| self.address(work, phase, party)).collect();
        let mut deadline = Deadline::start(work.patience);
        loop {
            let (missing, seen) = match mailbox.take(&addresses) {
                Ok(messages) => return Ok(parties.into_iter().zip(messages).collect()),
                Err(missing) => missing,
            };
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            if let Some(culprit) = mailbox.departed(self.id(), &missing) {
                return Err(self.fail(Failure { culprit, cause: Cause::Departed }));
            }
            match deadline.left(&missing) {
                Ok(left) => self.endpoint.transport.progress(mailbox, seen, left),
                Err(culprit) => return Err(self.fail(self.late(work, phase, culprit))),
            }
        }
    }

    fn late(&self, work: &Work<'_>, phase: Phase, culprit: u32) -> Failure {
        let (operation, sequence) = (work.call().operation, work.ticket.sequence);
        let (reporter, issued) = (self.names[self.member], phase == Phase::Result);
        let waited = work.patience.timeout;
        Failure { culprit, cause: Cause::Late { reporter, operation, sequence, issued, waited } }
    }

    /// Whether all mean the same collective, and sent what belongs to it.
    pub(super) fn compare(&self, work: &Work<'_>, contributions: &[(usize, Message)]) -> Failed<()> {
        let contribution = |call: &Call| Contribution {
            call: call.clone(),
            spans: Vec::new(),
            sums: Vec::new(),
            gpu: None,
            bytes: Vec::new(),
        };
        let mut all: Vec<Contribution> =
            contributions.iter().map(|(_, message)| contribution(&message.call)).collect();
        all.insert(work.me(), contribution(work.call()));
        if let Some(failure) = disagreement(&all, &work.ticket, &self.names) {
            return Err(self.fail(failure));
        }
        if work.call().operation == Operation::Scalars {
            return Ok(());
        }
        self.check(work, contributions, |from| Portion::contribution(work.call(), from, work.me()))
    }

    /// Whether messages carry as many bytes as their sender's `part` has.
    pub(super) fn check(
        &self,
        work: &Work<'_>,
        messages: &[(usize, Message)],
        part: impl Fn(usize) -> Portion,
    ) -> Failed<()> {
        let carried = |message: &Message| message.payload.bytes().len();
        let wrong = |(from, message): &&(usize, Message)| carried(message) != work.size(part(*from));
        let Some((from, message)) = messages.iter().find(wrong) else { return Ok(()) };
        let (got, expected) = (carried(message), work.size(part(*from)));
        let reason = format!("its message carries {got} bytes where {expected} belong");
        let cause = Cause::Poisoned { during: work.call().label(), reason };
        Err(self.fail(Failure { culprit: self.name(work, *from), cause }))
    }

    pub(super) fn discard(&self, messages: Vec<(usize, Message)>) {
        messages.into_iter().for_each(|(_, message)| self.endpoint.mailbox.pool.give(message.payload));
    }

    /// Tells each transfer once: sums at who adds, copies at who has the data.
    pub(super) fn tell_hops(&self, work: &Work<'_>) {
        let (me, own) = (work.me(), Portion::Slice(work.me()));
        let hop = |from: usize, to: usize, part: Portion| {
            let bytes = |span: &Span| span.bytes_of(&part.range(span.len(), work.parties));
            work.watch.emitter.emit(What::Hop {
                group: work.watch.group,
                sequence: work.ticket.sequence,
                from: self.name(work, from) as u16,
                to: self.name(work, to) as u16,
                chunk: me as u16,
                bytes: work.own.spans.iter().map(bytes).sum(),
            });
        };
        let adds = matches!(work.call().operation, Operation::AllReduce | Operation::ReduceScatter);
        work.others().filter(|_| adds).for_each(|from| hop(from, me, own));
        let part = match work.call().operation {
            Operation::AllReduce | Operation::AllGather => own,
            Operation::Broadcast if work.call().peer == me => Portion::Whole,
            Operation::Send => Portion::Whole,
            _ => return,
        };
        work.others().for_each(|to| hop(me, to, part));
    }
}
