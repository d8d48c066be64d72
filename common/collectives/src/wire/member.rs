//! One rank's end of a group of processes.

use super::Endpoint;
use super::data::{self, Portion, Work};
use super::message::{Kind, Phase, encode, failure_note};
use crate::CollectiveError;
use crate::backend::{Backend, Call, Outcome, Result, Waits, Watch};
use crate::local::data::{Contribution, Span};
use crate::local::deadline::Patience;
use crate::local::direct;
use crate::local::excuses::Excuses;
use crate::local::ticket::{Failure, Lane, Ticket};
use device::Buffer;
use events::{Operation, Progress};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod messages;

/// One rank of a group of processes.
pub(crate) struct ProcessMember {
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

impl ProcessMember {
    pub(crate) fn new(endpoint: Arc<Endpoint>, lineage: Vec<u64>, names: Vec<u32>, member: usize) -> Self {
        ProcessMember { endpoint, lineage, names, member, open: Mutex::default() }
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

    fn patience<'a>(&'a self, held: &'a dyn Fn() -> Duration) -> Patience<'a> {
        Patience { timeout: self.endpoint.timeout, held, delivered: &|| Duration::MAX, excuses: self }
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
            let _ = self.endpoint.transport.send(to, &head, &[], &mut |_| {});
        }
    }

    /// Does this member's part of an issued call.
    fn run(&self, work: &Work<'_>) -> Failed<Outcome> {
        let began = Instant::now();
        let contributions = self.collect(work, Phase::Contribution)?;
        let waits = Waits { peers: began.elapsed(), link: Duration::ZERO };
        self.compare(work, &contributions)?;
        work.watch.tell(work.call(), Progress::Started);
        let mut outcome = Outcome { sent: self.sent(work), waits, ..Outcome::default() };
        if work.call().elsewhere {
            self.discard(contributions);
            return Ok(outcome);
        }
        let me = work.me();
        match work.call().operation {
            Operation::AllReduce => {
                data::add(work, &contributions);
                work.others().for_each(|to| self.post(work, Phase::Result, to, Portion::Slice(me)));
                let results = self.collect(work, Phase::Result)?;
                self.check(work, &results, Portion::Slice)?;
                results.iter().for_each(|(from, message)| data::take(work, message, Portion::Slice(*from)));
                self.discard(results);
            }
            Operation::ReduceScatter => data::add(work, &contributions),
            Operation::Scalars => outcome.gathered = data::gathered(work, &contributions),
            _ => {
                for (from, message) in &contributions {
                    data::take(work, message, Portion::contribution(work.call(), *from, me));
                }
            }
        }
        self.discard(contributions);
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

    /// Does what is open in `call`'s lane up to `call`: old calls first, whatever order they are waited for in, so that
    /// members cannot wait for each other in a circle.
    fn advance(&self, call: &Call, watch: &Watch) -> Failed<Outcome> {
        let held = || watch.held();
        let patience = self.patience(&held);
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

impl Excuses for ProcessMember {
    /// Who takes nothing at the moment does not hear of it: that may be the one that is waited for.
    fn waits_for(&self, rank: Option<u32>) {
        let head = encode(Kind::Waits { rank }, Vec::new(), 0);
        let others = (0..self.endpoint.size).filter(|&to| to != self.endpoint.rank);
        others.for_each(|to| self.endpoint.transport.offer(to, &head));
    }

    fn is_excused(&self, rank: u32) -> bool {
        self.endpoint.mailbox.waiting.excuses(rank, self.endpoint.rank)
    }
}

impl Backend for ProcessMember {
    fn member(&self) -> usize {
        self.member
    }

    fn names(&self) -> &[u32] {
        &self.names
    }

    fn sums_exactly(&self) -> bool {
        true
    }

    fn issue(&self, call: &Call, buffers: &mut [Buffer], bytes: &[u8], watch: &Watch) -> Result<()> {
        if let Some(failure) = self.failure() {
            return Err(failure.seen_by(self.names[self.member], call.operation, call.sequence));
        }
        let Some(mut spans) = Span::of(buffers) else {
            let (rank, operation) = (self.names[self.member], call.operation);
            let what = "buffers on a GPU: between processes it moves main memory only".into();
            return Err(CollectiveError::Invalid { rank, operation, what });
        };
        let sums = spans.split_off(call.shapes.len().min(spans.len()));
        let own = Contribution { call: call.clone(), spans, sums, gpu: None, bytes: bytes.to_vec() };
        let held = || watch.held();
        let patience = self.patience(&held);
        let work = self.work(call.sequence, &own, watch, &patience);
        for to in work.others() {
            self.post(&work, Phase::Contribution, to, Portion::contribution(call, work.me(), to));
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

    fn blame(&self, culprit: Option<usize>, during: String, reason: String) {
        self.fail(Failure::new(&self.names, self.member, culprit, during, reason));
    }

    fn failure(&self, call: &Call) -> Option<CollectiveError> {
        let failure = ProcessMember::failure(self)?;
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
        Arc::new(ProcessMember::new(self.endpoint.clone(), lineage, names, member))
    }
}

/// The number of a sub-group: the same on all its members, and another for every split (FNV-1a, 64 bits).
fn child(parent: u64, key: (u64, u64)) -> u64 {
    let bytes = [parent, key.0, key.1].into_iter().flat_map(u64::to_le_bytes);
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
