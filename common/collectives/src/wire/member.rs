//! One rank's end of a group of processes.

use super::Endpoint;
use super::data::{self, Exchange, Portion};
use super::mailbox::GroupFailure;
use super::message::{Head, MAX_SCALARS, Phase, encode};
use crate::CollectiveError;
use crate::call_id::CallId;
use crate::core::backend::{Backend, Outcome, Result};
use crate::core::buffers::{Issued, Span};
use crate::core::call::Call;
use crate::core::context::{CallContext, Waiter};
use crate::core::failure::{Failure, GroupResult};
use crate::core::queue::CallQueue;
use crate::traffic::Waits;
use device::Buffer;
use events::{Operation, Progress};
use std::sync::Arc;
use std::time::Duration;

mod messages;

/// How long a rank that waits for a disk or a copy looks for messages.
const POLL_TIME: Duration = Duration::from_millis(1);

/// One rank of a group of processes.
pub(crate) struct ProcessMember {
    endpoint: Arc<Endpoint>,
    /// This group, the group it was split from, and so on to the world.
    lineage: Vec<u64>,
    /// The members' ranks in the world.
    global_ranks: Vec<u32>,
    member: usize,
    calls: CallQueue<Issued, Outcome, Failure>,
}

impl ProcessMember {
    pub(crate) fn new(
        endpoint: Arc<Endpoint>,
        lineage: Vec<u64>,
        global_ranks: Vec<u32>,
        member: usize,
    ) -> Self {
        ProcessMember { endpoint, lineage, global_ranks, member, calls: CallQueue::default() }
    }

    fn id(&self) -> u64 {
        self.lineage[0]
    }

    fn exchange<'a>(&'a self, own: &'a Issued) -> Exchange<'a> {
        let context = CallContext { call: &own.call, member: self.member, waiter: self };
        Exchange { context, own, members: self.global_ranks.len() }
    }

    /// Returns this group's failure; `None` if it has not failed. Passes it on to all ranks first:
    /// the rank that reported it may not have reached them, and they must learn of it before they
    /// learn that this rank has ended.
    fn relay_failure(&self) -> Option<Failure> {
        let GroupFailure { group, failure, is_new } = self.endpoint.mailbox.failure(&self.lineage)?;
        if is_new {
            self.endpoint.transport.note_failure();
            self.tell(0..self.endpoint.size, &Head::Failed { group, failure: failure.clone() });
            self.endpoint.mailbox.mark_relayed(group);
        }
        Some(failure)
    }

    /// Fails this group, unless it has failed already. Returns its failure.
    fn fail(&self, failure: Failure) -> Failure {
        self.endpoint.mailbox.fail(self.id(), failure.clone());
        self.relay_failure().unwrap_or(failure)
    }

    /// Sends a message without payload to other ranks. A rank that cannot be reached notices the
    /// broken connection.
    fn tell(&self, ranks: impl IntoIterator<Item = u32>, head: &Head) {
        let head = encode(head, 0);
        for to in ranks.into_iter().filter(|&to| to != self.endpoint.rank) {
            let _ = self.endpoint.transport.send(to, &head, &[], &mut |_| {});
        }
    }

    /// Does this member's part of an issued call. Adds to `peers` how long it waits for the others'
    /// contributions.
    fn carry_out(&self, exchange: &Exchange<'_>, peers: &mut Duration) -> GroupResult<Outcome> {
        let emitter = &exchange.call().observer.emitter;
        let began = emitter.begin();
        let contributions = self.collect(exchange, Phase::Contribution)?;
        *peers += emitter.since(began);
        self.compare(exchange, &contributions)?;
        exchange.call().emit(Progress::Started);
        let sent = exchange.own.bytes_sent(exchange.me(), exchange.members);
        let mut outcome = Outcome { sent, ..Outcome::default() };
        let (me, signature) = (exchange.me(), exchange.signature());
        if signature.external_engine {
            self.discard(contributions);
            return Ok(outcome);
        }
        match signature.operation {
            Operation::AllReduce => {
                data::add(exchange, &contributions);
                self.share_sums(exchange)?;
            }
            Operation::ReduceScatter => data::add(exchange, &contributions),
            Operation::Scalars => outcome.gathered = data::gathered(exchange, &contributions),
            _ => {
                for (from, message) in &contributions {
                    data::take(exchange, message, Portion::contribution(signature, *from, me));
                }
            }
        }
        self.discard(contributions);
        self.emit_hops(exchange);
        Ok(outcome)
    }

    /// Sends this member's sums of an all-reduce to all others, and takes in theirs.
    fn share_sums(&self, exchange: &Exchange<'_>) -> GroupResult<()> {
        let own = Portion::Slice(exchange.me());
        exchange.others().for_each(|to| self.send(exchange, Phase::Result, to, own));
        let results = self.collect(exchange, Phase::Result)?;
        self.check(exchange, &results, Portion::Slice)?;
        results.iter().for_each(|(from, message)| data::take(exchange, message, Portion::Slice(*from)));
        self.discard(results);
        Ok(())
    }
}

impl Waiter for ProcessMember {
    fn timeout(&self) -> Duration {
        self.endpoint.timeout
    }

    /// Skips a rank that takes no data at the moment: it may be the one that this rank waits for.
    fn publish(&self, rank: Option<u32>) {
        let head = encode(&Head::Waits { rank }, 0);
        let others = (0..self.endpoint.size).filter(|&to| to != self.endpoint.rank);
        others.for_each(|to| self.endpoint.transport.offer(to, &head));
    }

    fn is_blocked(&self, rank: u32) -> bool {
        self.endpoint.mailbox.waiting.is_blocked(rank, self.endpoint.rank)
    }
}

impl Backend for ProcessMember {
    fn member(&self) -> usize {
        self.member
    }

    fn global_ranks(&self) -> &[u32] {
        &self.global_ranks
    }

    fn sums_exactly(&self) -> bool {
        true
    }

    fn holds_early_data(&self) -> bool {
        true
    }

    fn issue(&self, call: &Arc<Call>, buffers: &mut [Buffer], bytes: &[u8]) -> Result<()> {
        if let Some(failure) = self.relay_failure() {
            return Err(failure.seen_by(self.global_rank(), Some(call.id())));
        }
        let Some(spans) = Span::of(buffers) else {
            let what = "buffers on a GPU: between processes it moves main memory only";
            return Err(self.invalid(call.operation(), what));
        };
        let own = Issued::new(call, spans, bytes);
        let exchange = self.exchange(&own);
        let limit = match call.operation() {
            Operation::Scalars => MAX_SCALARS,
            _ => exchange.size(Portion::Whole),
        };
        self.endpoint.mailbox.expect(self.id(), call.sequence, limit);
        for to in exchange.others() {
            let portion = Portion::contribution(&call.signature, exchange.me(), to);
            self.send(&exchange, Phase::Contribution, to, portion);
        }
        self.calls.push(call.sequence, own);
        Ok(())
    }

    fn wait(&self, call: &Call) -> Result<Outcome> {
        // This wait may carry out earlier calls, too.
        let mut peers = Duration::ZERO;
        let carry_out = |own: &Issued| self.carry_out(&self.exchange(own), &mut peers);
        let outcome = self.calls.finish(call.sequence, carry_out);
        self.endpoint.mailbox.forget(self.id(), call.sequence);
        let waits = Waits { peers, link: Duration::ZERO };
        outcome
            .map(|outcome| Outcome { waits, ..outcome })
            .map_err(|failure| failure.seen_by(self.global_rank(), Some(call.id())))
    }

    fn abandon(&self, call: &Call, during: String, reason: String) {
        self.poison(during, reason);
        self.calls.remove(call.sequence);
        self.endpoint.mailbox.forget(self.id(), call.sequence);
    }

    fn blame(&self, culprit: Option<usize>, during: String, reason: String) {
        self.fail(Failure::new(&self.global_ranks, self.member, culprit, during, reason));
    }

    fn failure(&self, call: Option<CallId>) -> Option<CollectiveError> {
        Some(self.relay_failure()?.seen_by(self.global_rank(), call))
    }

    fn receive(&self) {
        let Endpoint { transport, mailbox, .. } = &*self.endpoint;
        transport.progress(mailbox, mailbox.epoch(), POLL_TIME);
    }

    fn publish_blocked(&self, blocked: bool) {
        self.publish(blocked.then(|| self.global_rank()));
    }

    fn is_member_blocked(&self, member: usize) -> bool {
        self.is_blocked(self.global_ranks[member])
    }

    fn report_steps(&self, steps: u64) {
        self.tell(self.global_ranks.iter().copied(), &Head::Steps { group: self.id(), steps });
        self.endpoint.mailbox.note_steps(self.id(), self.endpoint.rank, steps);
    }

    fn reported_steps(&self) -> Vec<u64> {
        self.global_ranks.iter().map(|&rank| self.endpoint.mailbox.steps(self.id(), rank)).collect()
    }

    fn depart(&self) {
        // A failure that this rank has not seen yet must not reach the others after its departure.
        let _ = self.relay_failure();
        self.tell(self.global_ranks.iter().copied(), &Head::Departed { group: self.id() });
    }

    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend> {
        let global_ranks = members.iter().map(|&member| self.global_ranks[member]).collect();
        let member = members.iter().position(|&member| member == self.member).unwrap_or(0);
        let mut lineage = vec![child(self.id(), key)];
        lineage.extend(&self.lineage);
        Arc::new(ProcessMember::new(self.endpoint.clone(), lineage, global_ranks, member))
    }
}

/// Returns the number of a sub-group: the same on all its members, and another for every split
/// (FNV-1a, 64 bits).
fn child(parent: u64, key: (u64, u64)) -> u64 {
    let bytes = [parent, key.0, key.1].into_iter().flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
