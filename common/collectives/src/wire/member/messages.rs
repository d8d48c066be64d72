//! The messages of a call: sent, collected, and compared with what belongs in them.

use super::ProcessMember;
use crate::core::context::Waiter;
use crate::core::deadline::{Deadline, poll_interval};
use crate::core::failure::{Awaited, Cause, Failure, GroupResult, disagreement};
use crate::wire::data::{Exchange, Portion};
use crate::wire::mailbox::Missing;
use crate::wire::message::{Address, Head, Message, Phase, encode};
use crate::wire::payload::{ALIGN, padded};
use events::Operation;
use std::time::Duration;

impl ProcessMember {
    fn address(&self, exchange: &Exchange<'_>, phase: Phase) -> Address {
        Address { group: self.id(), sequence: exchange.context.sequence(), phase }
    }

    /// Sends `portion` of every buffer, and the bytes of scalars, to member `to`.
    pub(super) fn send(&self, exchange: &Exchange<'_>, phase: Phase, to: usize, portion: Portion) {
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 * exchange.own.spans.len() + 1);
        for span in &exchange.own.spans {
            let range = portion.range(span.len(), exchange.members);
            // SAFETY: the buffer is left to this collective, and only this thread touches it until
            // `wait` returns.
            let bytes = unsafe { span.read(range) };
            pieces.extend([bytes, &[0; ALIGN][..padded(bytes.len()) - bytes.len()]]);
        }
        if phase == Phase::Contribution {
            pieces.push(&exchange.own.bytes);
        }
        let size = pieces.iter().map(|piece| piece.len()).sum();
        let (address, signature) = (self.address(exchange, phase), exchange.signature().clone());
        let head = encode(&Head::Data { address, signature }, size);
        let to = self.global_ranks[to];
        let publish_after = poll_interval(self.timeout());
        let mut is_published = false;
        let mut on_stall = |stalled: Duration| {
            if stalled >= publish_after && !is_published {
                is_published = true;
                self.publish(Some(to));
            }
        };
        match self.endpoint.transport.send(to, &head, &pieces, &mut on_stall) {
            Ok(()) if is_published => self.publish(None),
            Ok(()) => {}
            Err(reason) => self.endpoint.mailbox.lost(to, reason),
        }
    }

    /// Blocks until all other members' messages of one phase are here. Returns them by member.
    pub(super) fn collect(
        &self,
        exchange: &Exchange<'_>,
        phase: Phase,
    ) -> GroupResult<Vec<(usize, Message)>> {
        let (mailbox, address) = (&self.endpoint.mailbox, self.address(exchange, phase));
        let members: Vec<usize> = (0..exchange.members).filter(|&member| member != exchange.me()).collect();
        let ranks: Vec<u32> = members.iter().map(|&member| self.global_ranks[member]).collect();
        let mut deadline = Deadline::start(&exchange.context);
        loop {
            let Missing { ranks: missing, departed, seen } =
                match mailbox.take(address, &ranks, &self.lineage) {
                    Ok(messages) => return Ok(members.into_iter().zip(messages).collect()),
                    Err(missing) => missing,
                };
            if let Some(failure) = self.relay_failure() {
                return Err(failure);
            }
            if let Some(culprit) = departed {
                return Err(self.fail(Failure { culprit, cause: Cause::Departed }));
            }
            match deadline.poll(&missing) {
                Ok(left) => self.endpoint.transport.progress(mailbox, seen, left),
                Err(culprit) => {
                    let reporter = self.global_ranks[self.member];
                    let awaited = if phase == Phase::Result { Awaited::Part } else { Awaited::Issue };
                    return Err(self.fail(exchange.context.timeout_failure(reporter, culprit, awaited)));
                }
            }
        }
    }

    /// Fails the group unless all members mean the same collective, and sent what belongs to it.
    pub(super) fn compare(
        &self,
        exchange: &Exchange<'_>,
        contributions: &[(usize, Message)],
    ) -> GroupResult<()> {
        let signature = exchange.signature();
        let mut all: Vec<_> = contributions.iter().map(|(_, message)| &message.signature).collect();
        all.insert(exchange.me(), signature);
        if let Some(failure) = disagreement(&all, exchange.context.sequence(), &self.global_ranks) {
            return Err(self.fail(failure));
        }
        if signature.operation == Operation::Scalars {
            return Ok(());
        }
        self.check(exchange, contributions, |from| Portion::contribution(signature, from, exchange.me()))
    }

    /// Fails the group unless each message carries as many bytes as its sender's `portion` has.
    pub(super) fn check(
        &self,
        exchange: &Exchange<'_>,
        messages: &[(usize, Message)],
        portion: impl Fn(usize) -> Portion,
    ) -> GroupResult<()> {
        let wrong = |(from, message): &&(usize, Message)| message.announced != exchange.size(portion(*from));
        let Some((from, message)) = messages.iter().find(wrong) else { return Ok(()) };
        let (got, expected) = (message.announced, exchange.size(portion(*from)));
        let reason = format!("its message carries {got} bytes; {expected} were expected");
        let cause = Cause::Poisoned { during: exchange.call().id().to_string(), reason };
        Err(self.fail(Failure { culprit: self.global_ranks[*from], cause }))
    }

    pub(super) fn discard(&self, messages: Vec<(usize, Message)>) {
        messages.into_iter().for_each(|(_, message)| self.endpoint.mailbox.pool.give(message.payload));
    }

    /// Emits each transfer once: for sums the member that adds emits it, for copies the member that
    /// has the data.
    pub(super) fn emit_hops(&self, exchange: &Exchange<'_>) {
        let (me, own) = (exchange.me(), Portion::Slice(exchange.me()));
        let bytes = |portion: Portion| {
            let spans = exchange.own.spans.iter();
            spans.map(|span| span.bytes_of(&portion.range(span.len(), exchange.members))).sum()
        };
        let hop = |from: usize, to: usize, portion: Portion| {
            exchange.call().emit_hop(self.global_ranks[from], self.global_ranks[to], me, bytes(portion));
        };
        let signature = exchange.signature();
        let adds = matches!(signature.operation, Operation::AllReduce | Operation::ReduceScatter);
        exchange.others().filter(|_| adds).for_each(|from| hop(from, me, own));
        let portion = match signature.operation {
            Operation::AllReduce | Operation::AllGather => own,
            Operation::Broadcast if signature.root == me => Portion::Whole,
            _ => return,
        };
        exchange.others().for_each(|to| hop(me, to, portion));
    }
}
