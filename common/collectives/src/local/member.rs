//! One rank's end of a local group.

use super::data::{Contribution, Span};
use super::deadline::Patience;
use super::excuses::{Excuses, Waiting};
use super::gpu::{OnGpu, Parties};
use super::protocol::Hub;
use super::slot::Entry;
use super::ticket::{Failure, Lane, Ticket};
use super::{Algorithm, Options, direct, ring};
use crate::CollectiveError;
use crate::backend::{Backend, Call, Crossing, Outcome, Result, Waits, Watch};
use device::{Buffer, DeviceError};
use events::Operation;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod share;

use share::Share;

/// What the ranks of a group share.
pub(crate) struct Shared {
    hub: Hub<Contribution>,
    options: Options,
    /// How long to wait busily, here and in sub-groups: what matters is how many ranks the process has.
    spin: Duration,
    /// Zero of the simulated links' clock; sub-groups have the same.
    start: Instant,
    /// When the links of the world and its sub-groups will have delivered everything, in nanoseconds on their clock.
    delivery: Arc<AtomicU64>,
    /// Of the world and its sub-groups.
    waiting: Arc<Waiting>,
    /// Sub-groups by their key.
    children: Mutex<Children>,
    /// By member: what it has reported.
    reports: Vec<AtomicU64>,
}

type Children = BTreeMap<(u64, u64), Arc<Shared>>;

/// How long a rank waits busily before it parks, where every rank has a core of its own: about what parking costs.
const SPIN: Duration = Duration::from_micros(20);

impl Shared {
    /// A world of ranks with these names.
    pub(crate) fn new(names: Vec<u32>, options: Options) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = if names.len() <= cores { SPIN } else { Duration::ZERO };
        let reports = names.iter().map(|_| AtomicU64::new(0)).collect();
        let hub = Hub::new(names, spin);
        let (delivery, waiting, children) = (Arc::default(), Arc::default(), Mutex::default());
        Shared { hub, options, spin, start: Instant::now(), delivery, waiting, children, reports }
    }

    fn sub_group(&self, names: Vec<u32>) -> Self {
        let reports = names.iter().map(|_| AtomicU64::new(0)).collect();
        let hub = Hub::new(names, self.spin);
        let (delivery, waiting) = (self.delivery.clone(), self.waiting.clone());
        Shared { hub, delivery, waiting, children: Mutex::default(), reports, ..*self }
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        self.children.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn poison(&self, failure: &Failure) {
        self.hub.poison(failure.clone());
        for child in self.children().values() {
            child.poison(failure);
        }
    }

    /// The sub-group of `members` under `key`, made by whoever comes first.
    fn child(&self, key: (u64, u64), members: &[usize]) -> Arc<Shared> {
        let mut children = self.children();
        if let Some(child) = children.get(&key) {
            return child.clone();
        }
        let names = members.iter().map(|&member| self.hub.names()[member]).collect();
        let child = Arc::new(self.sub_group(names));
        if let Some(failure) = self.hub.failure() {
            child.poison(&failure);
        }
        children.insert(key, child.clone());
        child
    }
}

/// One rank of a local group.
pub(crate) struct ThreadMember {
    shared: Arc<Shared>,
    member: usize,
}

impl ThreadMember {
    pub(crate) fn new(shared: Arc<Shared>, member: usize) -> Self {
        ThreadMember { shared, member }
    }

    fn name(&self) -> u32 {
        self.shared.hub.names()[self.member]
    }

    fn ticket(&self, call: &Call) -> Ticket {
        let (me, peer) = (self.member, call.peer);
        let lane = match call.operation {
            Operation::Send => Lane::Pair { from: me, to: peer },
            Operation::Recv => Lane::Pair { from: peer, to: me },
            _ => Lane::Group,
        };
        Ticket { lane, sequence: call.sequence, member: me }
    }

    /// Time since the world was made, without pauses.
    fn now(&self, watch: &Watch) -> Duration {
        self.shared.start.elapsed().saturating_sub(watch.held())
    }

    /// Time since a simulated link last delivered; zero while one does.
    fn since_delivery(&self, watch: &Watch) -> Duration {
        if self.shared.options.link.is_none() {
            return Duration::MAX;
        }
        let delivery = Duration::from_nanos(self.shared.delivery.load(Ordering::Relaxed));
        self.now(watch).saturating_sub(delivery)
    }

    /// Waits until the link has delivered; when it carried the data, in time before now.
    fn cross(&self, (began, ended): (Duration, Duration), watch: &Watch) -> Crossing {
        let since = Instant::now();
        self.shared.hub.sleep(|| ended.saturating_sub(self.now(watch)));
        let (exposed, now) = (since.elapsed(), self.now(watch));
        Crossing { began: now.saturating_sub(began), ended: now.saturating_sub(ended), exposed }
    }

    /// Whether the call's data travel around a ring: numbers and messages do not.
    fn goes_around(&self, call: &Call) -> bool {
        let data = !matches!(call.operation, Operation::Barrier | Operation::Scalars);
        let whole = matches!(self.ticket(call).lane, Lane::Group);
        self.shared.options.algorithm == Algorithm::Ring && data && whole
    }

    /// Time that the call takes on the simulated link, for what its busiest rank sends.
    fn cost(&self, contribution: &Contribution) -> Duration {
        let Some(link) = self.shared.options.link else { return Duration::ZERO };
        let (call, size) = (&contribution.call, self.shared.hub.names().len());
        let parties = if matches!(self.ticket(call).lane, Lane::Group) { size } else { 2 };
        let sent = |party| match self.goes_around(call) {
            true => ring::sent(contribution, party, parties),
            false => direct::sent(contribution, party, parties),
        };
        let busiest = (0..parties).map(sent).max().unwrap_or(0);
        link.cost(call.operation, self.shared.options.algorithm, size as u32, busiest)
    }

    /// Does this rank's part of everything up to the ticket that is still to do: everybody's bytes, and the time in
    /// which data moved.
    fn work(&self, ticket: &Ticket, watch: &Watch, patience: &Patience<'_>) -> (Vec<Vec<u8>>, Duration) {
        let (mut gathered, mut moving) = (Vec::new(), Duration::ZERO);
        // A failure ends the work; settling finds out what it means for the ticket.
        while let Ok(Some(Entry { ticket: next, all })) = self.shared.hub.enter(ticket, patience) {
            let part = Share { rank: self, ticket: next, all: &all, watch, patience, finished: None };
            let entered = Instant::now();
            part.run();
            moving += entered.elapsed();
            if next == *ticket && all[0].call.operation == Operation::Scalars {
                gathered = all.iter().map(|contribution| contribution.bytes.clone()).collect();
            }
        }
        (gathered, moving)
    }

    fn contribution(&self, call: &Call, buffers: &mut [Buffer], bytes: &[u8]) -> Result<Contribution> {
        let invalid = |what: &str| CollectiveError::Invalid {
            rank: self.name(),
            operation: call.operation,
            what: what.into(),
        };
        let gpu = OnGpu::of(buffers, call.shapes.len()).map_err(|error| self.device_error(call, &error))?;
        let mut spans = match &gpu {
            Some(_) if self.shared.options.algorithm == Algorithm::Ring => {
                return Err(invalid("buffers on a GPU around a ring: there it moves main memory only"));
            }
            Some(_) => Vec::new(),
            None => {
                Span::of(buffers).ok_or_else(|| invalid("some buffers on a GPU and some in main memory"))?
            }
        };
        let sums = spans.split_off(call.shapes.len().min(spans.len()));
        Ok(Contribution { call: call.clone(), spans, sums, gpu, bytes: bytes.to_vec() })
    }

    fn device_error(&self, call: &Call, error: &DeviceError) -> CollectiveError {
        CollectiveError::Device {
            rank: self.name(),
            operation: call.operation,
            sequence: call.sequence,
            reason: error.to_string(),
        }
    }

    fn explain(&self, failure: Failure, call: &Call) -> CollectiveError {
        failure.seen_by(self.name(), call.operation, call.sequence)
    }
}

impl Excuses for ThreadMember {
    fn waits_for(&self, rank: Option<u32>) {
        self.shared.waiting.set(self.name(), rank);
    }

    fn is_excused(&self, rank: u32) -> bool {
        self.shared.waiting.excuses(rank, self.name())
    }
}

impl Backend for ThreadMember {
    fn member(&self) -> usize {
        self.member
    }

    fn names(&self) -> &[u32] {
        self.shared.hub.names()
    }

    fn sums_exactly(&self) -> bool {
        self.shared.options.algorithm == Algorithm::Direct
    }

    fn issue(&self, call: &Call, buffers: &mut [Buffer], bytes: &[u8], watch: &Watch) -> Result<()> {
        let contribution = self.contribution(call, buffers, bytes)?;
        let cost = self.cost(&contribution);
        let issued = self.shared.hub.issue(self.ticket(call), contribution, self.now(watch), cost);
        let delivery = issued.map_err(|failure| self.explain(failure, call))?;
        self.shared.delivery.fetch_max(delivery.as_nanos() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn wait(&self, call: &Call, watch: &Watch) -> Result<Outcome> {
        let began = Instant::now();
        let (held, delivered) = (|| watch.held(), || self.since_delivery(watch));
        let timeout = self.shared.options.timeout;
        let patience = Patience { timeout, held: &held, delivered: &delivered, excuses: self };
        let ticket = self.ticket(call);
        let (gathered, moving) = self.work(&ticket, watch, &patience);
        let all = self.shared.hub.contributions(&ticket);
        let settled = self.shared.hub.settle(&ticket, &patience);
        let parties = all.as_deref().and_then(parties);
        let drain = || parties.iter().for_each(|parties| parties.drain(ticket.party()));
        let settled = settled.map_err(|failure| self.explain(failure, call)).inspect_err(|_| drain())?;
        let peers = began.elapsed().saturating_sub(moving);
        if let Some(parties) = &parties {
            let after = parties.settle(ticket.party()).inspect_err(|_| drain());
            after.map_err(|error| self.device_error(call, &error))?;
        }
        let crossing = settled.crossing.map(|crossing| self.cross(crossing, watch));
        let waits = Waits { peers, link: crossing.map_or(Duration::ZERO, |crossing| crossing.exposed) };
        Ok(Outcome { sent: settled.sent, gathered, waits, crossing })
    }

    fn abandon(&self, call: &Call, during: String, reason: String, watch: &Watch) {
        self.poison(during, reason);
        let (held, delivered) = (|| watch.held(), || self.since_delivery(watch));
        let timeout = self.shared.options.timeout;
        let patience = Patience { timeout, held: &held, delivered: &delivered, excuses: self };
        let ticket = self.ticket(call);
        // The group has failed: nobody enters any more, and settling waits only for those inside. What it returns is of no use
        // here.
        let all = self.shared.hub.contributions(&ticket);
        let _ = self.shared.hub.settle(&ticket, &patience);
        if let Some(parties) = all.as_deref().and_then(parties) {
            parties.drain(ticket.party());
        }
    }

    fn blame(&self, culprit: Option<usize>, during: String, reason: String) {
        self.shared.poison(&Failure::new(self.names(), self.member, culprit, during, reason));
    }

    fn failure(&self, call: &Call) -> Option<CollectiveError> {
        self.shared.hub.failure().map(|failure| self.explain(failure, call))
    }

    fn report(&self, count: u64) {
        self.shared.reports[self.member].fetch_max(count, Ordering::Relaxed);
    }

    fn reports(&self) -> Vec<u64> {
        self.shared.reports.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn depart(&self) {
        self.shared.hub.depart(self.member);
    }

    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend> {
        let member = members.iter().position(|&member| member == self.member).unwrap_or(0);
        Arc::new(ThreadMember::new(self.shared.child(key, members), member))
    }
}

/// Everybody's buffers, if they lie on GPUs.
fn parties(all: &[Contribution]) -> Option<Parties<'_>> {
    let on_gpu: Option<Vec<_>> = all.iter().map(|contribution| contribution.gpu.as_ref()).collect();
    Some(Parties { call: &all[0].call, all: on_gpu? })
}
