//! One rank's end of a group whose data NCCL moves.
//!
//! The group under it, `control`, is one of threads or of processes. It numbers and compares calls,
//! names missing ranks, passes on failures, and moves the buffers that lie in main memory. A call
//! is handed to NCCL only once all ranks have issued it and agree.

use super::calls::{CommunicatorMember, NCCL, Transfer};
use super::communicator::Communicator;
use super::enqueue::{enqueue, give_up_at_timeout, transfers};
use super::memory_probe::MemoryProbe;
use super::setup::Connected;
use super::watchdog::Watchdog;
use super::watched_communicator::{HostBarrier, WatchedCommunicator};
use crate::CollectiveError;
use crate::call_id::CallId;
use crate::core::backend::{Backend, Outcome, Result, Topic};
use crate::core::call::{Call, Signature};
use crate::core::observer::Observer;
use crate::core::queue::CallQueue;
use device::cuda::{Fence, Runtime};
use device::{Buffer, DeviceError};
use events::Work;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// One rank of a group over NCCL.
pub(crate) struct NcclMember {
    control: Arc<dyn Backend>,
    runtime: Arc<Runtime>,
    timeout: Duration,
    watchdog: Arc<Watchdog>,
    memory_probe: MemoryProbe,
    host_barrier: HostBarrier,
    /// The group's communicator; `None` if this rank is alone.
    watched: Option<Arc<WatchedCommunicator>>,
    /// Calls on the GPU.
    calls: CallQueue<GpuCall, EnqueueResult, CollectiveError>,
}

/// An issued call on the GPU.
struct GpuCall {
    /// The call as the group under this one has it.
    call: Arc<Call>,
    /// Address of each buffer's first element.
    addresses: Vec<u64>,
    /// Reached once the GPU has finished the work that the rank had queued when it issued.
    ready: Arc<Fence>,
}

/// The outcome of a call on the GPU's queue, and the point at which it is done there; `None` if no
/// data moves.
type EnqueueResult = (Outcome, Option<Arc<Fence>>);

impl NcclMember {
    pub(crate) fn new(
        control: Arc<dyn Backend>,
        runtime: Arc<Runtime>,
        timeout: Duration,
        Connected { watchdog, communicator, memory_probe, host_barrier }: Connected,
    ) -> Self {
        let watched = communicator.map(|communicator| {
            let (control, runtime) = (control.clone(), runtime.clone());
            Arc::new(WatchedCommunicator::new(control, communicator, runtime, timeout, host_barrier))
        });
        watched.iter().for_each(|watched| watchdog.add(watched));
        let calls = CallQueue::default();
        NcclMember { control, runtime, timeout, watchdog, memory_probe, host_barrier, watched, calls }
    }

    /// Returns where `buffers` lie on this rank's GPU; `None` if all lie in main memory.
    fn addresses(&self, call: &Call, buffers: &[Buffer]) -> Result<Option<Vec<u64>>> {
        if buffers.iter().all(Buffer::on_host) {
            return Ok(None);
        }
        let own = |buffer: &Buffer| {
            let (runtime, address) = buffer.on_gpu()?;
            Arc::ptr_eq(runtime, &self.runtime).then_some(address)
        };
        let addresses: Option<Vec<u64>> = buffers.iter().map(own).collect();
        let what = "buffers that do not all lie in one place: this rank's GPU, or main memory";
        addresses.map(Some).ok_or_else(|| self.invalid(call.operation(), what))
    }

    /// Blocks until all ranks have issued the call and agree, and queues it on the GPU, unless the
    /// group has failed: other ranks may have aborted their communicators.
    fn carry_out(&self, gpu_call: &GpuCall) -> Result<EnqueueResult> {
        let outcome = self.control.wait(&gpu_call.call)?;
        match self.control.failure(Some(gpu_call.call.id())) {
            Some(failure) => Err(failure),
            None => Ok((outcome, self.queue(gpu_call)?)),
        }
    }

    /// Queues a call that all ranks agree about. Returns the point at which it is done; `None` if
    /// no data moves.
    fn queue(&self, GpuCall { call, addresses, ready }: &GpuCall) -> Result<Option<Arc<Fence>>> {
        let Some(watched) = &self.watched else { return Ok(None) };
        let transfers: Vec<Transfer> = transfers(&call.signature, addresses).collect();
        if transfers.is_empty() {
            return Ok(None);
        }
        watched.watch(call, ready);
        let (group, sequence, operation) = (call.observer.group, call.sequence, call.operation());
        let what = Work::Collective { group, sequence, operation };
        let queued = self
            .runtime
            .communicate_as(what, [&**ready], |stream| enqueue(watched, call, &transfers, stream));
        let done = Arc::new(queued.map_err(|error| self.fail_call(watched, call, error))?);
        watched.mark_queued(&done);
        Ok(Some(done))
    }

    /// Fails the group for a call that could not be queued. Returns the group's failure, which may
    /// be an earlier one.
    fn fail_call(&self, watched: &WatchedCommunicator, call: &Call, error: DeviceError) -> CollectiveError {
        let (reason, by_nccl) = match error {
            DeviceError::Cuda { call: NCCL, reason } => (format!("NCCL reports: {reason}"), true),
            other => (other.to_string(), false),
        };
        if watched.communicator.blames_another() {
            watched.wait_for_failure();
        }
        let before = self.control.failure(Some(call.id()));
        self.control.poison(call.id().to_string(), reason.clone());
        watched.abort();
        // The watchdog may have failed the group with the same error of NCCL: return the group's
        // failure, so that all ranks print one message.
        let failure = if by_nccl { self.control.failure(Some(call.id())) } else { before };
        failure.unwrap_or_else(|| self.device_error(call, &reason))
    }

    /// Cleans up after a failure: afterwards no kernel waits on the GPU, and none touches a buffer.
    fn abort(&self) {
        let Some(watched) = &self.watched else { return };
        watched.abort();
        // After a failure, a further error of the driver adds nothing.
        let _ = self.runtime.synchronize();
    }

    /// Ends the communicator: in order, unless the group has failed.
    fn end(&self) {
        let Some(watched) = &self.watched else { return };
        watched.end();
        let has_failed = || self.control.failure(None).is_some() || std::thread::panicking();
        let since = Instant::now();
        let give_up = || {
            let late = since.elapsed() > self.timeout.min(LINGER);
            (has_failed() || late).then(|| "the other ranks do not end it".to_string())
        };
        if has_failed() || watched.communicator.finish(&give_up).is_err() {
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
        let observer = Observer::silent(self.global_rank());
        let give_up = give_up_at_timeout(watched, None, None, &observer);
        let membership = CommunicatorMember { member: me, size: members.len() };
        // SAFETY: every member of this group splits it at this point of its program, and nothing is
        // queued.
        let made = unsafe { watched.communicator.split(color, membership, &give_up) }?;
        self.memory_probe.end(before).map_err(|error| error.to_string())?;
        Ok(made)
    }
}

/// How long a group that ends waits for the other ranks.
const LINGER: Duration = Duration::from_secs(10);

impl Backend for NcclMember {
    fn member(&self) -> usize {
        self.control.member()
    }

    fn global_ranks(&self) -> &[u32] {
        self.control.global_ranks()
    }

    fn sums_exactly(&self) -> bool {
        false
    }

    fn issue(&self, call: &Arc<Call>, buffers: &mut [Buffer], bytes: &[u8]) -> Result<()> {
        let Some(addresses) = self.addresses(call, buffers)? else {
            return self.control.issue(call, buffers, bytes).inspect_err(|_| self.abort());
        };
        let ready = self.runtime.computed().map_err(|error| self.device_error(call, &error))?.into();
        let signature = Signature { external_engine: true, ..call.signature.clone() };
        let call = Arc::new(Call { signature, observer: call.observer.clone(), ..**call });
        self.control.issue(&call, &mut [], bytes).inspect_err(|_| self.abort())?;
        self.calls.push(call.sequence, GpuCall { call, addresses, ready });
        Ok(())
    }

    fn wait(&self, call: &Call) -> Result<Outcome> {
        if !self.calls.contains(call.sequence) {
            // Otherwise a rank that waits for that call first would be blocked until this rank
            // enqueues it.
            let due = || self.calls.has_due_before(call.sequence) && self.failure(Some(call.id())).is_none();
            debug_assert!(!due(), "{} is waited for before an earlier call on the GPU", call.id());
            return self.control.wait(call).inspect_err(|_| self.abort());
        }
        let queued = self.calls.finish(call.sequence, |issued| self.carry_out(issued));
        let (outcome, done) = queued.inspect_err(|_| self.abort())?;
        let after = done.map_or(Ok(()), |done| self.runtime.compute_after(&done));
        after.map(|()| outcome).map_err(|error| self.device_error(call, &error))
    }

    fn abandon(&self, call: &Call, during: String, reason: String) {
        self.poison(during.clone(), reason.clone());
        self.abort();
        // The group under this one gives up the call too, unless it has been waited for there.
        if !self.calls.remove(call.sequence) {
            self.control.abandon(call, during, reason);
        }
    }

    fn blame(&self, culprit: Option<usize>, during: String, reason: String) {
        self.control.blame(culprit, during, reason);
    }

    fn failure(&self, call: Option<CallId>) -> Option<CollectiveError> {
        self.control.failure(call)
    }

    fn receive(&self) {
        self.control.receive();
    }

    fn publish_blocked(&self, blocked: bool) {
        self.control.publish_blocked(blocked);
    }

    fn is_member_blocked(&self, member: usize) -> bool {
        self.control.is_member_blocked(member)
    }

    fn report_steps(&self, steps: u64) {
        self.control.report_steps(steps);
    }

    fn reported_steps(&self) -> Vec<u64> {
        self.control.reported_steps()
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
        let (watchdog, host_barrier) = (self.watchdog.clone(), self.host_barrier);
        let connected = Connected { watchdog, communicator, memory_probe, host_barrier };
        Arc::new(NcclMember::new(control, self.runtime.clone(), self.timeout, connected))
    }

    fn open_control_group(&self, topic: Topic) -> Arc<dyn Backend> {
        self.control.open_control_group(topic)
    }
}
