//! One rank's end of a group whose data NCCL moves.
//!
//! The group under it, `control`, is one of threads or of processes. It numbers and compares calls, names who is missing,
//! passes on failures, and moves what lies in main memory. Only when all ranks have issued a call and agree is it handed
//! to NCCL.

use super::calls::Transfer;
use super::communicator::Communicator;
use super::handing::{hand_in, patience, transfers};
use super::memory_probe::MemoryProbe;
use super::setup::Ready;
use super::watchdog::{Watchdog, WatchedCommunicator};
use crate::CollectiveError;
use crate::backend::{Backend, Call, Outcome, Result, Watch};
use crate::group::Topic;
use crate::local::ticket::Lane;
use device::cuda::{Fence, Runtime};
use device::{Buffer, DeviceError};
use events::{Operation, Work};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One rank of a group over NCCL.
pub(crate) struct NcclMember {
    control: Arc<dyn Backend>,
    runtime: Arc<Runtime>,
    timeout: Duration,
    watchdog: Arc<Watchdog>,
    memory_probe: MemoryProbe,
    together: bool,
    /// Its communicator; none where it is alone.
    watched: Option<Arc<WatchedCommunicator>>,
    /// Calls on the GPU that are not waited for yet. Only the rank's own thread comes here.
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    /// In the order of issue.
    open: VecDeque<Open>,
    /// On the GPU's queue.
    queued: BTreeMap<(Lane, u64), Queued>,
}

/// What a call comes to, and the point at which it is done on the GPU; none where nothing moves.
type Queued = (Outcome, Option<Arc<Fence>>);

/// An issued call.
struct Open {
    call: Call,
    /// Of each buffer's first element.
    addresses: Vec<u64>,
    /// After what the rank had computed when it issued.
    ready: Fence,
}

impl NcclMember {
    pub(crate) fn new(
        control: Arc<dyn Backend>,
        runtime: Arc<Runtime>,
        timeout: Duration,
        Ready { watchdog, communicator, memory_probe, together }: Ready,
    ) -> Self {
        let watched = communicator.map(|communicator| {
            Arc::new(WatchedCommunicator::new(
                control.clone(),
                communicator,
                runtime.clone(),
                timeout,
                together,
            ))
        });
        watched.iter().for_each(|watched| watchdog.add(watched));
        NcclMember {
            control,
            runtime,
            timeout,
            watchdog,
            memory_probe,
            together,
            watched,
            calls: Mutex::default(),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> u32 {
        self.control.names()[self.control.member()]
    }

    fn lane(&self, call: &Call) -> Lane {
        let me = self.control.member();
        match call.operation {
            Operation::Send => Lane::Pair { from: me, to: call.peer },
            Operation::Recv => Lane::Pair { from: call.peer, to: me },
            _ => Lane::Group,
        }
    }

    fn key(&self, call: &Call) -> (Lane, u64) {
        (self.lane(call), call.sequence)
    }

    /// Where `buffers` lie on this rank's GPU; `None` if all lie in main memory.
    fn addresses(&self, call: &Call, buffers: &[Buffer]) -> Result<Option<Vec<u64>>> {
        if buffers.iter().all(Buffer::on_host) {
            return Ok(None);
        }
        let own = |buffer: &Buffer| {
            let (runtime, address) = buffer.on_gpu()?;
            Arc::ptr_eq(runtime, &self.runtime).then_some(address)
        };
        let addresses: Option<Vec<u64>> = buffers.iter().map(own).collect();
        addresses.map(Some).ok_or_else(|| CollectiveError::Invalid {
            rank: self.name(),
            operation: call.operation,
            what: "buffers that do not all lie in one place: this rank's GPU, or main memory".into(),
        })
    }

    /// The oldest open calls that go to NCCL as one: a collective, or all messages up to the next collective.
    fn next(&self) -> Vec<Open> {
        let mut calls = self.calls();
        let message = |open: &Open| matches!(open.call.operation, Operation::Send | Operation::Recv);
        let messages = calls.open.iter().take_while(|open| message(open)).count();
        let count = messages.max(1).min(calls.open.len());
        calls.open.drain(..count).collect()
    }

    /// Hands in open calls, oldest first, until `target` is on the GPU's queue.
    fn advance(&self, target: &Call, watch: &Watch) -> Result<()> {
        while !self.calls().queued.contains_key(&self.key(target)) {
            let next = self.next();
            let agreed = |open: &Open| self.control.wait(&open.call, watch);
            let outcomes: Vec<Outcome> = next.iter().map(agreed).collect::<Result<_>>()?;
            let done = self.queue(&next, watch)?;
            let mut calls = self.calls();
            for (open, outcome) in next.iter().zip(outcomes) {
                calls.queued.insert(self.key(&open.call), (outcome, done.clone()));
            }
        }
        Ok(())
    }

    /// Queues calls that all ranks agree about, as one; the point at which they are done. None where nothing moves.
    fn queue(&self, next: &[Open], watch: &Watch) -> Result<Option<Arc<Fence>>> {
        let (Some(watched), Some(Open { call, .. })) = (&self.watched, next.first()) else { return Ok(None) };
        let transfers: Vec<Transfer> =
            next.iter().flat_map(|open| transfers(&open.call, &open.addresses)).collect();
        if transfers.is_empty() {
            return Ok(None);
        }
        let mut count = None;
        let what =
            Work::Collective { group: watch.group, sequence: call.sequence, operation: call.operation };
        let queued = self.runtime.communicate_as(what, next.iter().map(|open| &open.ready), |stream| {
            count = hand_in(watched, call, &transfers, stream, watch)?;
            Ok(())
        });
        let done = Arc::new(queued.map_err(|error| self.failed(watched, call, error))?);
        watched.watch(call, count, &done, watch);
        Ok(Some(done))
    }

    /// What to say about a call that could not be queued: the group's failure, which this may be.
    fn failed(&self, watched: &WatchedCommunicator, call: &Call, error: DeviceError) -> CollectiveError {
        let reason = match error {
            DeviceError::Cuda { call: "NCCL", reason } => format!("NCCL reports: {reason}"),
            other => other.to_string(),
        };
        if watched.communicator.blames_another() {
            watched.hear();
        }
        let before = self.control.failure(call);
        self.control.poison(call.label(), reason.clone());
        watched.abort();
        before.unwrap_or_else(|| self.device_error(call, reason))
    }

    /// After a failure: nobody waits on the GPU any more, and nothing is left there that touches a buffer.
    fn abort(&self) {
        let Some(watched) = &self.watched else { return };
        watched.abort();
        // What the driver has to say about a failed run adds nothing to the failure.
        let _ = self.runtime.synchronize();
    }

    /// Ends the communicator, in order if all is well.
    fn end(&self) {
        let Some(watched) = &self.watched else { return };
        watched.end();
        let failed = || self.control.failure(&Call::none()).is_some() || std::thread::panicking();
        let since = Instant::now();
        let give_up = || {
            let late = since.elapsed() > self.timeout.min(LINGER);
            (failed() || late).then(|| "the others do not come to its end".to_string())
        };
        if failed() || watched.communicator.finish(&give_up).is_err() {
            watched.abort();
        }
    }

    fn split_communicator(
        &self,
        members: &[usize],
        me: usize,
    ) -> std::result::Result<Option<Communicator>, String> {
        let Some(watched) = &self.watched else { return Ok(None) };
        self.runtime.synchronize().map_err(|error| error.to_string())?;
        let before = self.memory_probe.begin().map_err(|error| error.to_string())?;
        let color = members.first().copied().filter(|_| members.len() > 1);
        let (call, watch) = (Call::none(), Watch::silent(self.name()));
        // SAFETY: every member of this group splits it at this point of its program, and nothing is queued.
        let made = unsafe {
            watched.communicator.split(color, (me, members.len()), &patience(watched, &call, None, &watch))
        }?;
        self.memory_probe.end(before).map_err(|error| error.to_string())?;
        Ok(made)
    }

    /// Whether `call` is on the GPU and not waited for yet.
    fn holds(&self, call: &Call) -> bool {
        let (key, calls) = (self.key(call), self.calls());
        calls.queued.contains_key(&key) || calls.open.iter().any(|open| self.key(&open.call) == key)
    }

    fn device_error(&self, call: &Call, error: impl std::fmt::Display) -> CollectiveError {
        let (rank, operation, sequence) = (self.name(), call.operation, call.sequence);
        CollectiveError::Device { rank, operation, sequence, reason: error.to_string() }
    }
}

/// How long the end of a group waits for the others.
const LINGER: Duration = Duration::from_secs(10);

impl Backend for NcclMember {
    fn member(&self) -> usize {
        self.control.member()
    }

    fn names(&self) -> &[u32] {
        self.control.names()
    }

    fn sums_exactly(&self) -> bool {
        false
    }

    fn issue(&self, call: &Call, buffers: &mut [Buffer], bytes: &[u8], watch: &Watch) -> Result<()> {
        let Some(addresses) = self.addresses(call, buffers)? else {
            return self.control.issue(call, buffers, bytes, watch).inspect_err(|_| self.abort());
        };
        let ready = self.runtime.computed().map_err(|error| self.device_error(call, error))?;
        let call = Call { elsewhere: true, ..call.clone() };
        self.control.issue(&call, &mut [], bytes, watch).inspect_err(|_| self.abort())?;
        self.calls().open.push_back(Open { call, addresses, ready });
        Ok(())
    }

    fn wait(&self, call: &Call, watch: &Watch) -> Result<Outcome> {
        if !self.holds(call) {
            return self.control.wait(call, watch).inspect_err(|_| self.abort());
        }
        self.advance(call, watch).inspect_err(|_| self.abort())?;
        let Some((outcome, done)) = self.calls().queued.remove(&self.key(call)) else {
            unreachable!("{} was queued", call.label())
        };
        let after = done.map_or(Ok(()), |done| self.runtime.compute_after(&done));
        after.map(|()| outcome).map_err(|error| self.device_error(call, error))
    }

    fn abandon(&self, call: &Call, during: String, reason: String, watch: &Watch) {
        self.poison(during.clone(), reason.clone());
        self.abort();
        let key = self.key(call);
        let mut calls = self.calls();
        let held = calls.queued.remove(&key).is_some();
        let before = calls.open.len();
        calls.open.retain(|open| self.key(&open.call) != key);
        let opened = calls.open.len() < before;
        drop(calls);
        if !held {
            let call = Call { elsewhere: opened, ..call.clone() };
            self.control.abandon(&call, during, reason, watch);
        }
    }

    fn blame(&self, culprit: Option<usize>, during: String, reason: String) {
        self.control.blame(culprit, during, reason);
    }

    fn failure(&self, call: &Call) -> Option<CollectiveError> {
        self.control.failure(call)
    }

    fn report(&self, count: u64) {
        self.control.report(count);
    }

    fn reports(&self) -> Vec<u64> {
        self.control.reports()
    }

    fn depart(&self) {
        self.end();
        self.control.depart();
    }

    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend> {
        let control = self.control.split(key, members);
        let communicator = self.split_communicator(members, control.member());
        let communicator = communicator.unwrap_or_else(|reason| {
            self.poison("the split of its group".into(), format!("NCCL reports: {reason}"));
            None
        });
        let memory_probe = self.memory_probe.split(&control, members);
        let (watchdog, together) = (self.watchdog.clone(), self.together);
        let ready = Ready { watchdog, communicator, memory_probe, together };
        Arc::new(NcclMember::new(control, self.runtime.clone(), self.timeout, ready))
    }

    fn beside(&self, topic: Topic) -> Arc<dyn Backend> {
        self.control.beside(topic)
    }
}
