//! One rank's end of a group of processes.

use super::Endpoint;
use super::data::{self, Part, Work};
use super::message::{Address, Kind, Letter, Phase, describe, encode, failure_note};
use super::parcel::{ALIGN, padded};
use crate::CollectiveError;
use crate::backend::{Backend, Call, Outcome, Result, Waits, Watch};
use crate::local::data::{Contribution, Span};
use crate::local::deadline::{Deadline, Patience};
use crate::local::direct;
use crate::local::ticket::{Cause, Failure, Lane, Ticket, disagreement};
use device::Buffer;
use events::{Operation, Progress, What};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One rank of a group of processes.
pub(crate) struct Member {
    endpoint: Arc<Endpoint>,
    /// This group, the group it was split from, and so on to the world.
    lineage: Vec<u64>,
    /// The members' ranks in the world.
    names: Vec<u32>,
    member: usize,
    /// Issued calls that are not waited for yet. Only the rank's own thread comes here.
    open: Mutex<BTreeMap<(Lane, u64), Open>>,
}

/// An issued call.
enum Open {
    /// Still to be done.
    Issued(Contribution),
    /// Done, while a later one was waited for.
    Done(std::result::Result<Outcome, Failure>),
}

type Failed<T> = std::result::Result<T, Failure>;

impl Member {
    pub(crate) fn new(endpoint: Arc<Endpoint>, lineage: Vec<u64>, names: Vec<u32>, member: usize) -> Self {
        Member { endpoint, lineage, names, member, open: Mutex::default() }
    }

    fn id(&self) -> u64 {
        self.lineage[0]
    }

    fn open(&self) -> MutexGuard<'_, BTreeMap<(Lane, u64), Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lane(&self, call: &Call) -> Lane {
        match call.operation {
            Operation::Send => Lane::Pair { from: self.member, to: call.peer },
            Operation::Recv => Lane::Pair { from: call.peer, to: self.member },
            _ => Lane::Group,
        }
    }

    fn work<'a>(
        &self,
        sequence: u64,
        own: &'a Contribution,
        watch: &'a Watch,
        patience: &'a Patience<'a>,
    ) -> Work<'a> {
        let lane = self.lane(&own.call);
        let ticket = Ticket { lane, sequence, member: self.member };
        Work { ticket, own, parties: lane.parties(self.names.len()), watch, patience }
    }

    /// The rank in the world of a party of `work`.
    fn name(&self, work: &Work<'_>, party: usize) -> u32 {
        self.names[work.ticket.lane.member(party)]
    }

    fn address(&self, work: &Work<'_>, phase: Phase, from: usize) -> Address {
        let Ticket { lane, sequence, .. } = work.ticket;
        Address { group: self.id(), lane, sequence, phase, from: self.name(work, from) }
    }

    /// Sends `part` of every buffer, and the bytes of scalars, to party `to`.
    fn post(&self, work: &Work<'_>, phase: Phase, to: usize, part: Part) {
        let mut pieces: Vec<&[u8]> = Vec::with_capacity(2 * work.own.spans.len() + 1);
        for span in &work.own.spans {
            let range = part.range(span.len(), work.parties);
            // SAFETY: the buffer was given to this collective, and only this thread touches it until `wait` returns.
            let bytes = unsafe { span.read_bytes(range) };
            pieces.extend([bytes, &[0; ALIGN][..padded(bytes.len()) - bytes.len()]]);
        }
        if matches!(phase, Phase::Opening) {
            pieces.push(&work.own.bytes);
        }
        let address = self.address(work, phase, work.me());
        let size = pieces.iter().map(|piece| piece.len()).sum();
        let head = encode(Kind::Letter(address), describe(work.call()), size);
        let to = self.name(work, to);
        if let Err(reason) = self.endpoint.transport.send(to, &head, &pieces) {
            self.endpoint.mailbox.lost(to, reason);
        }
    }

    /// Everybody else's letters of one phase, by party.
    fn collect(&self, work: &Work<'_>, phase: Phase) -> Failed<Vec<(usize, Letter)>> {
        let mailbox = &self.endpoint.mailbox;
        let parties: Vec<usize> = (0..work.parties).filter(|&party| party != work.me()).collect();
        let addresses: Vec<Address> = parties.iter().map(|&party| self.address(work, phase, party)).collect();
        let deadline = Deadline::start(work.patience);
        loop {
            let (missing, seen) = match mailbox.take(&addresses) {
                Ok(letters) => return Ok(parties.into_iter().zip(letters).collect()),
                Err(missing) => missing,
            };
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            let culprit = addresses[missing].from;
            if mailbox.has_departed(self.id(), culprit) {
                return Err(self.fail(Failure { culprit, cause: Cause::Departed }));
            }
            let left = deadline.left(work.patience);
            if left.is_zero() {
                return Err(self.fail(self.late(work, phase, culprit)));
            }
            self.endpoint.transport.progress(mailbox, seen, left);
        }
    }

    fn late(&self, work: &Work<'_>, phase: Phase, culprit: u32) -> Failure {
        let (operation, sequence) = (work.call().operation, work.ticket.sequence);
        let (reporter, issued) = (self.names[self.member], phase == Phase::Closing);
        let waited = work.patience.timeout;
        Failure { culprit, cause: Cause::Late { reporter, operation, sequence, issued, waited } }
    }

    /// The failure that this group is in, if any. Everybody learns of it from here too: whoever reported it first may
    /// not have reached all.
    fn failure(&self) -> Option<Failure> {
        let (group, failure, fresh) = self.endpoint.mailbox.failure(&self.lineage)?;
        if fresh {
            self.tell(0..self.endpoint.size, Kind::Failed { group }, &failure_note(&failure));
        }
        Some(failure)
    }

    /// Fails this group, unless it has failed already; its failure.
    fn fail(&self, failure: Failure) -> Failure {
        self.endpoint.mailbox.fail(self.id(), failure.clone());
        self.failure().unwrap_or(failure)
    }

    /// A message without payload to other ranks. Those who cannot be reached have other ways to notice.
    fn tell(&self, ranks: impl IntoIterator<Item = u32>, kind: Kind, note: &[u8]) {
        let head = encode(kind, note.to_vec(), 0);
        for to in ranks.into_iter().filter(|&to| to != self.endpoint.rank) {
            let _ = self.endpoint.transport.send(to, &head, &[]);
        }
    }

    /// Does this member's part of an issued call.
    fn run(&self, work: &Work<'_>) -> Failed<Outcome> {
        let began = Instant::now();
        let openings = self.collect(work, Phase::Opening)?;
        let waits = Waits { peers: began.elapsed(), link: Duration::ZERO };
        self.compare(work, &openings)?;
        work.watch.tell(work.call(), Progress::Started);
        let mut outcome = Outcome { sent: self.sent(work), waits, ..Outcome::default() };
        if work.call().elsewhere {
            self.discard(openings);
            return Ok(outcome);
        }
        let me = work.me();
        match work.call().operation {
            Operation::AllReduce => {
                data::add(work, &openings);
                work.others().for_each(|to| self.post(work, Phase::Closing, to, Part::Slice(me)));
                let closings = self.collect(work, Phase::Closing)?;
                self.check(work, &closings, Part::Slice)?;
                closings.iter().for_each(|(from, letter)| data::take(work, letter, Part::Slice(*from)));
                self.discard(closings);
            }
            Operation::ReduceScatter => data::add(work, &openings),
            Operation::Scalars => outcome.gathered = data::gathered(work, &openings),
            _ => {
                for (from, letter) in &openings {
                    data::take(work, letter, Part::opening(work.call(), *from, me));
                }
            }
        }
        self.discard(openings);
        self.tell_hops(work);
        Ok(outcome)
    }

    /// Payload bytes that this member sends; a message's are booked on its sender.
    fn sent(&self, work: &Work<'_>) -> u64 {
        match work.call().operation {
            Operation::Recv => 0,
            _ => direct::sent(work.own, work.me(), work.parties),
        }
    }

    /// Whether all mean the same collective, and sent what belongs to it.
    fn compare(&self, work: &Work<'_>, openings: &[(usize, Letter)]) -> Failed<()> {
        let contribution = |call: &Call| Contribution {
            call: call.clone(),
            spans: Vec::new(),
            gpu: None,
            bytes: Vec::new(),
        };
        let mut all: Vec<Contribution> =
            openings.iter().map(|(_, letter)| contribution(&letter.call)).collect();
        all.insert(work.me(), contribution(work.call()));
        if let Some(failure) = disagreement(&all, &work.ticket, &self.names) {
            return Err(self.fail(failure));
        }
        if work.call().operation == Operation::Scalars {
            return Ok(());
        }
        self.check(work, openings, |from| Part::opening(work.call(), from, work.me()))
    }

    /// Whether letters carry as many bytes as their sender's `part` has.
    fn check(
        &self,
        work: &Work<'_>,
        letters: &[(usize, Letter)],
        part: impl Fn(usize) -> Part,
    ) -> Failed<()> {
        let carried = |letter: &Letter| letter.payload.bytes().len();
        let wrong = |(from, letter): &&(usize, Letter)| carried(letter) != work.size(part(*from));
        let Some((from, letter)) = letters.iter().find(wrong) else { return Ok(()) };
        let (got, expected) = (carried(letter), work.size(part(*from)));
        let reason = format!("its letter carries {got} bytes where {expected} belong");
        let cause = Cause::Poisoned { during: work.call().label(), reason };
        Err(self.fail(Failure { culprit: self.name(work, *from), cause }))
    }

    fn discard(&self, letters: Vec<(usize, Letter)>) {
        letters.into_iter().for_each(|(_, letter)| self.endpoint.mailbox.store.give(letter.payload));
    }

    /// Tells each transfer once: sums at who adds, copies at who has the data.
    fn tell_hops(&self, work: &Work<'_>) {
        let (me, own) = (work.me(), Part::Slice(work.me()));
        let hop = |from: usize, to: usize, part: Part| {
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
            Operation::Broadcast if work.call().peer == me => Part::Whole,
            Operation::Send => Part::Whole,
            _ => return,
        };
        work.others().for_each(|to| hop(me, to, part));
    }

    /// Does what is open in `call`'s lane up to `call`: old calls first, whatever order they are waited for in, so that
    /// members cannot wait for each other in a circle.
    fn advance(&self, call: &Call, watch: &Watch) -> Failed<Outcome> {
        let held = || watch.held();
        let patience = Patience { timeout: self.endpoint.timeout, held: &held, delivered: &|| Duration::MAX };
        let lane = self.lane(call);
        let next = |open: &BTreeMap<(Lane, u64), Open>| {
            let upto = open.range((lane, 0)..=(lane, call.sequence));
            upto.filter(|(_, call)| matches!(call, Open::Issued(_))).map(|(key, _)| *key).next()
        };
        loop {
            let mut open = self.open();
            let Some(key) = next(&open) else { break };
            let Some(Open::Issued(own)) = open.remove(&key) else { break };
            drop(open);
            let outcome = self.run(&self.work(key.1, &own, watch, &patience));
            self.open().insert(key, Open::Done(outcome));
        }
        match self.open().remove(&(lane, call.sequence)) {
            Some(Open::Done(outcome)) => outcome,
            _ => unreachable!("{} was not issued", call.label()),
        }
    }
}

impl Backend for Member {
    fn member(&self) -> usize {
        self.member
    }

    fn names(&self) -> &[u32] {
        &self.names
    }

    fn issue(&self, call: &Call, buffers: &mut [Buffer], bytes: &[u8], watch: &Watch) -> Result<()> {
        if let Some(failure) = self.failure() {
            return Err(failure.seen_by(self.names[self.member], call.operation, call.sequence));
        }
        let Some(spans) = Span::of(buffers) else {
            let (rank, operation) = (self.names[self.member], call.operation);
            let what = "buffers on a GPU: between processes it moves main memory only".into();
            return Err(CollectiveError::Invalid { rank, operation, what });
        };
        let own = Contribution { call: call.clone(), spans, gpu: None, bytes: bytes.to_vec() };
        let held = || watch.held();
        let patience = Patience { timeout: self.endpoint.timeout, held: &held, delivered: &|| Duration::MAX };
        let work = self.work(call.sequence, &own, watch, &patience);
        for to in work.others() {
            self.post(&work, Phase::Opening, to, Part::opening(call, work.me(), to));
        }
        self.open().insert((self.lane(call), call.sequence), Open::Issued(own));
        Ok(())
    }

    fn wait(&self, call: &Call, watch: &Watch) -> Result<Outcome> {
        let explain =
            |failure: Failure| failure.seen_by(self.names[self.member], call.operation, call.sequence);
        self.advance(call, watch).map_err(explain)
    }

    fn abandon(&self, call: &Call, during: String, reason: String, _: &Watch) {
        self.poison(during, reason);
        self.open().remove(&(self.lane(call), call.sequence));
    }

    fn blame(&self, culprit: usize, during: String, reason: String) {
        let culprit = self.names[culprit];
        self.fail(Failure { culprit, cause: Cause::Poisoned { during, reason } });
    }

    fn failure(&self, call: &Call) -> Option<CollectiveError> {
        let failure = Member::failure(self)?;
        Some(failure.seen_by(self.names[self.member], call.operation, call.sequence))
    }

    fn report(&self, count: u64) {
        self.tell(self.names.iter().copied(), Kind::Report { group: self.id(), count }, &[]);
        self.endpoint.mailbox.report(self.id(), self.endpoint.rank, count);
    }

    fn reports(&self) -> Vec<u64> {
        self.names.iter().map(|&rank| self.endpoint.mailbox.reported(self.id(), rank)).collect()
    }

    fn depart(&self) {
        // A failure that this rank has not seen yet must not arrive after its farewell.
        let _ = self.failure();
        self.tell(self.names.iter().copied(), Kind::Departed { group: self.id() }, &[]);
    }

    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend> {
        let names = members.iter().map(|&member| self.names[member]).collect();
        let member = members.iter().position(|&member| member == self.member).unwrap_or(0);
        let mut lineage = vec![child(self.id(), key)];
        lineage.extend(&self.lineage);
        Arc::new(Member::new(self.endpoint.clone(), lineage, names, member))
    }
}

/// The number of a sub-group: the same on all its members, and another for every split (FNV-1a, 64 bits).
fn child(parent: u64, key: (u64, u64)) -> u64 {
    let bytes = [parent, key.0, key.1].into_iter().flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
