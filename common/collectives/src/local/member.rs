//! One rank's end of a local group.

use super::coordinator::Coordinator;
use super::gpu::OnGpu;
use super::published::{Published, on_gpus};
use super::{Algorithm, Options, ring};
use crate::CollectiveError;
use crate::call_id::CallId;
use crate::core::backend::{Backend, Outcome, Result};
use crate::core::buffers::{Issued, Span};
use crate::core::call::{Call, Crossing};
use crate::core::context::{CallContext, Waiter};
use crate::core::failure::{Failure, GroupResult};
use crate::core::observer::Observer;
use crate::core::queue::CallQueue;
use crate::core::wait_graph::WaitGraph;
use crate::traffic::Waits;
use device::Buffer;
use events::Operation;
use events::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

mod share;

use share::Share;

/// The state that the ranks of a group share.
pub(crate) struct Shared {
    coordinator: Coordinator<Published>,
    options: Options,
    /// How long to spin before parking, here and in sub-groups: it depends on how many ranks the
    /// process has.
    spin: Duration,
    /// Zero of the simulated links' clock, the same in sub-groups.
    start: Instant,
    /// The time at which the links of the world and its sub-groups will have delivered everything,
    /// in nanoseconds on their clock.
    delivery: Arc<AtomicU64>,
    /// Shared by the world and its sub-groups.
    waiting: Arc<WaitGraph>,
    /// Sub-groups by their key.
    children: Mutex<BTreeMap<(u64, u64), Arc<Shared>>>,
    /// The number of steps that each member has reported.
    steps: Vec<AtomicU64>,
}

/// How long a rank spins before it parks, where every rank has a core of its own: about as long as
/// parking takes.
const SPIN: Duration = Duration::from_micros(20);

impl Shared {
    /// Returns the shared state of a world of `global_ranks`.
    pub(crate) fn new(global_ranks: Vec<u32>, options: Options) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let spin = if global_ranks.len() <= cores { SPIN } else { Duration::ZERO };
        let steps = global_ranks.iter().map(|_| AtomicU64::new(0)).collect();
        let coordinator = Coordinator::new(global_ranks, spin);
        let (delivery, waiting, children) = (Arc::default(), Arc::default(), Mutex::default());
        Shared { coordinator, options, spin, start: Instant::now(), delivery, waiting, children, steps }
    }

    /// Fails the group and its sub-groups, unless they have failed already.
    fn poison(&self, failure: &Failure) {
        let first = self.coordinator.fail(failure.clone());
        for child in lock(&self.children).values() {
            child.poison(&first);
        }
    }

    /// Returns the sub-group of `members` under `key`. The first member that asks makes it.
    fn child(&self, key: (u64, u64), members: &[usize]) -> Arc<Shared> {
        let mut children = lock(&self.children);
        if let Some(child) = children.get(&key) {
            return child.clone();
        }
        let global_ranks = members.iter().map(|&member| self.coordinator.global_ranks()[member]).collect();
        let child = Arc::new(Shared {
            coordinator: Coordinator::new(global_ranks, self.spin),
            delivery: self.delivery.clone(),
            waiting: self.waiting.clone(),
            children: Mutex::default(),
            steps: members.iter().map(|_| AtomicU64::new(0)).collect(),
            ..*self
        });
        if let Some(failure) = self.coordinator.failure() {
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
    /// Results are every member's bytes, for scalars.
    calls: CallQueue<Arc<Call>, Vec<Vec<u8>>, Failure>,
}

impl ThreadMember {
    pub(crate) fn new(shared: Arc<Shared>, member: usize) -> Self {
        ThreadMember { shared, member, calls: CallQueue::default() }
    }

    fn context<'a>(&'a self, call: &'a Call) -> CallContext<'a> {
        CallContext { call, member: self.member, waiter: self }
    }

    /// Returns the run's time since the world was made.
    fn now(&self, paused: Duration) -> Duration {
        self.shared.start.elapsed().saturating_sub(paused)
    }

    /// Blocks until the link has delivered. Returns when it carried the data.
    fn cross(&self, (began, ended): (Duration, Duration), observer: &Observer) -> Crossing {
        let began_to_wait = observer.emitter.begin();
        self.shared.coordinator.sleep(|| ended.saturating_sub(self.now(observer.paused())));
        let (exposed, now) = (observer.emitter.since(began_to_wait), self.now(observer.paused()));
        Crossing { began: now.saturating_sub(began), ended: now.saturating_sub(ended), exposed }
    }

    /// True if the call's data travel around a ring. Scalars do not.
    fn goes_around(&self, call: &Call) -> bool {
        let data = !matches!(call.operation(), Operation::Barrier | Operation::Scalars);
        self.shared.options.algorithm == Algorithm::Ring && data
    }

    /// Returns the time that the call takes on the simulated link: that of the rank that sends
    /// most.
    fn cost(&self, issued: &Issued) -> Duration {
        let Some(link) = self.shared.options.link else { return Duration::ZERO };
        let size = self.shared.coordinator.global_ranks().len();
        let sent = |member| {
            if self.goes_around(&issued.call) {
                ring::sent(issued, member, size)
            } else {
                issued.bytes_sent(member, size)
            }
        };
        let busiest = (0..size).map(sent).max().unwrap_or(0);
        link.cost(issued.call.operation(), self.shared.options.algorithm, size as u32, busiest)
    }

    /// Does this rank's share of a call. Returns every member's bytes for scalars, and adds the
    /// time in which data moved to `moving`.
    fn carry_out(&self, call: &Call, moving: &mut Duration) -> GroupResult<Vec<Vec<u8>>> {
        let context = self.context(call);
        let all = self.shared.coordinator.enter(&context)?;
        let entered = Instant::now();
        Share { rank: self, context, all: &all, finished: None }.run();
        *moving += entered.elapsed();
        let scalars = call.operation() == Operation::Scalars;
        Ok(all.iter().filter(|_| scalars).map(|published| published.issued.bytes.clone()).collect())
    }

    fn publish_buffers(&self, call: &Arc<Call>, buffers: &mut [Buffer], bytes: &[u8]) -> Result<Published> {
        let invalid = |what| self.invalid(call.operation(), what);
        let count = call.signature.shapes.len();
        let gpu = OnGpu::of(buffers, count).map_err(|error| self.device_error(call, &error))?;
        let spans = match &gpu {
            Some(_) if self.shared.options.algorithm == Algorithm::Ring => {
                return Err(invalid("buffers on a GPU around a ring: there it moves main memory only"));
            }
            Some(_) => Vec::new(),
            None => {
                Span::of(buffers).ok_or_else(|| invalid("some buffers on a GPU and some in main memory"))?
            }
        };
        Ok(Published { issued: Issued::new(call, spans, bytes), gpu })
    }

    fn explain(&self, failure: Failure, call: &Call) -> CollectiveError {
        failure.seen_by(self.global_rank(), Some(call.id()))
    }
}

impl Waiter for ThreadMember {
    fn timeout(&self) -> Duration {
        self.shared.options.timeout
    }

    fn since_delivery(&self, paused: Duration) -> Duration {
        if self.shared.options.link.is_none() {
            return Duration::MAX;
        }
        let delivery = Duration::from_nanos(self.shared.delivery.load(Ordering::Relaxed));
        self.now(paused).saturating_sub(delivery)
    }

    fn publish(&self, rank: Option<u32>) {
        self.shared.waiting.set(self.global_rank(), rank);
    }

    fn is_blocked(&self, rank: u32) -> bool {
        self.shared.waiting.is_blocked(rank, self.global_rank())
    }
}

impl Backend for ThreadMember {
    fn member(&self) -> usize {
        self.member
    }

    fn global_ranks(&self) -> &[u32] {
        self.shared.coordinator.global_ranks()
    }

    fn sums_exactly(&self) -> bool {
        self.shared.options.algorithm == Algorithm::Direct
    }

    fn issue(&self, call: &Arc<Call>, buffers: &mut [Buffer], bytes: &[u8]) -> Result<()> {
        let published = self.publish_buffers(call, buffers, bytes)?;
        let (cost, now) = (self.cost(&published.issued), self.now(call.observer.paused()));
        let issued = self.shared.coordinator.issue(&self.context(call), published, now, cost);
        let delivery = issued.map_err(|failure| self.explain(failure, call))?;
        self.shared.delivery.fetch_max(delivery.as_nanos() as u64, Ordering::Relaxed);
        self.calls.push(call.sequence, call.clone());
        Ok(())
    }

    fn wait(&self, call: &Call) -> Result<Outcome> {
        let (began, context) = (call.observer.emitter.begin(), self.context(call));
        let mut moving = Duration::ZERO;
        // A failure ends the work; settling determines the outcome of this call.
        let carried_out = self.calls.finish(call.sequence, |call| self.carry_out(call, &mut moving));
        let all = self.shared.coordinator.published(&context);
        let settled = self.shared.coordinator.settle(&context);
        let members = all.as_deref().and_then(on_gpus);
        let drain = || members.iter().for_each(|members| members.drain(self.member));
        let settled = settled.map_err(|failure| self.explain(failure, call)).inspect_err(|_| drain())?;
        let peers = call.observer.emitter.since(began).saturating_sub(moving);
        if let Some(members) = &members {
            let after = members.settle(self.member).inspect_err(|_| drain());
            after.map_err(|error| self.device_error(call, &error))?;
        }
        let crossing = settled.crossing.map(|crossing| self.cross(crossing, &call.observer));
        let waits = Waits { peers, link: crossing.map_or(Duration::ZERO, |crossing| crossing.exposed) };
        let complete = Some(self.shared.start + settled.complete + call.observer.paused());
        let (sent, gathered) = (settled.sent, carried_out.unwrap_or_default());
        Ok(Outcome { sent, gathered, waits, crossing, complete })
    }

    fn abandon(&self, call: &Call, during: String, reason: String) {
        self.poison(during, reason);
        self.calls.remove(call.sequence);
        let context = self.context(call);
        let all = self.shared.coordinator.published(&context);
        // The group has failed: no rank enters any more, and settling waits only for ranks inside.
        let _ = self.shared.coordinator.settle(&context);
        if let Some(members) = all.as_deref().and_then(on_gpus) {
            members.drain(self.member);
        }
    }

    fn blame(&self, culprit: Option<usize>, during: String, reason: String) {
        self.shared.poison(&Failure::new(self.global_ranks(), self.member, culprit, during, reason));
    }

    fn failure(&self, call: Option<CallId>) -> Option<CollectiveError> {
        self.shared.coordinator.failure().map(|failure| failure.seen_by(self.global_rank(), call))
    }

    fn publish_blocked(&self, blocked: bool) {
        self.publish(blocked.then(|| self.global_rank()));
    }

    fn is_member_blocked(&self, member: usize) -> bool {
        self.is_blocked(self.global_ranks()[member])
    }

    fn report_steps(&self, steps: u64) {
        self.shared.steps[self.member].fetch_max(steps, Ordering::Relaxed);
    }

    fn reported_steps(&self) -> Vec<u64> {
        self.shared.steps.iter().map(|steps| steps.load(Ordering::Relaxed)).collect()
    }

    fn depart(&self) {
        self.shared.coordinator.depart(self.member);
    }

    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend> {
        let member = members.iter().position(|&member| member == self.member).unwrap_or(0);
        Arc::new(ThreadMember::new(self.shared.child(key, members), member))
    }
}
