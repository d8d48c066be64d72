//! A group's communicator with what its [watchdog](super::watchdog) needs to know: the calls that
//! are queued on the GPU, and how long the oldest has been the GPU's next.

use super::calls::CommunicatorError;
use super::communicator::{Communicator, GiveUp};
use crate::core::backend::Backend;
use crate::core::call::Call;
use crate::core::deadline::poll_interval;
use crate::core::observer::Observer;
use crate::core::stopwatch::Stopwatch;
use device::cuda::{Fence, Runtime};
use events::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often the watchdog polls.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts a stopwatch for a wait on NCCL of at most `timeout`; `paused` is the run's pause so far.
/// A poll may block while another thread holds the driver's lock, so the interval is at least two
/// polls.
pub(crate) fn stopwatch(paused: Duration, timeout: Duration) -> Stopwatch {
    Stopwatch::start(paused, poll_interval(timeout).max(2 * POLL_INTERVAL))
}

/// A call that is being enqueued, or queued on the GPU.
struct WatchedCall {
    call: Arc<Call>,
    /// The number of steps that this rank has taken once it has handed the call in.
    step: u64,
    /// Reached once the GPU has computed the call's inputs.
    ready: Arc<Fence>,
    /// Reached once the call is complete; `None` until it is queued.
    done: Option<Arc<Fence>>,
    /// The time for which it has been the GPU's next call, ready and queued; `None` until then.
    waited: Option<Stopwatch>,
}

/// When the ranks of a communicator wait for each other on the host:
/// [`enqueue`](super::enqueue::enqueue) says why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostBarrier {
    /// Never: they are processes.
    Never,
    /// After they have enqueued a collective: some are threads of one process.
    AfterEnqueue,
    /// Also before any of them enqueues it: some of these threads share a GPU.
    AroundEnqueue,
}

/// The oldest [`WatchedCall`], as the watchdog knows it.
struct Oldest {
    label: String,
    step: u64,
    /// The call's [`WatchedCall::waited`].
    waited: Option<Duration>,
}

/// A failure on the GPU.
struct Blame {
    /// The member at fault, if it is known.
    culprit: Option<usize>,
    /// What the member was doing.
    during: String,
    reason: String,
}

/// What follows from an error of NCCL's.
enum Verdict {
    /// Another rank may still find the culprit.
    Wait,
    /// The member is at fault; `None` if it is unknown.
    Blame(Option<usize>),
}

/// The time for which all members that the others wait for have been blocked on disks or copies.
struct BlockedTime {
    /// The time at which it was last counted.
    last_poll: Instant,
    total: Duration,
    /// The time for which they have been blocked without a break; at most the timeout, as on the
    /// host.
    current: Duration,
}

/// A group's communicator with the state that its watchdog needs.
pub(crate) struct WatchedCommunicator {
    pub(crate) control: Arc<dyn Backend>,
    pub(crate) communicator: Communicator,
    runtime: Arc<Runtime>,
    pub(crate) timeout: Duration,
    pub(crate) host_barrier: HostBarrier,
    queued: Mutex<VecDeque<WatchedCall>>,
    /// Steps so far: two per collective, one when this rank is ready to enqueue it, and one when it
    /// has done so.
    steps: AtomicU64,
    /// The number of steps that this rank has reported.
    reported: AtomicU64,
    /// The time since NCCL first reported that it had lost another rank.
    lost: Mutex<Option<Stopwatch>>,
    blocked: Mutex<BlockedTime>,
    /// True once the communicator has ended, in order or by an abort.
    over: AtomicBool,
}

impl WatchedCommunicator {
    pub(crate) fn new(
        control: Arc<dyn Backend>,
        communicator: Communicator,
        runtime: Arc<Runtime>,
        timeout: Duration,
        host_barrier: HostBarrier,
    ) -> Self {
        WatchedCommunicator {
            control,
            communicator,
            runtime,
            timeout,
            host_barrier,
            queued: Mutex::default(),
            // Making the communicator counts as the first.
            steps: AtomicU64::new(1),
            reported: AtomicU64::new(0),
            lost: Mutex::default(),
            blocked: Mutex::new(BlockedTime {
                last_poll: Instant::now(),
                total: Duration::ZERO,
                current: Duration::ZERO,
            }),
            over: AtomicBool::new(false),
        }
    }

    /// Counts a step towards enqueueing a collective. Returns the number of steps so far.
    pub(crate) fn step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Blocks until all ranks have taken `steps` steps, as this one has, or until `give_up` returns
    /// a reason.
    pub(crate) fn pass_barrier(&self, steps: u64, give_up: GiveUp<'_>) -> Result<(), String> {
        self.control.report_steps(steps);
        while self.control.reported_steps().iter().any(|&report| report < steps) {
            if let Some(reason) = give_up() {
                return Err(reason);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Watches `call`, the next to be enqueued, from now on: NCCL may fail before it is queued.
    /// The GPU begins it once it has reached `ready`.
    pub(crate) fn watch(&self, call: &Arc<Call>, ready: &Arc<Fence>) {
        let step = self.steps.load(Ordering::Acquire) + 2;
        let mut queued = lock(&self.queued);
        // The watchdog reports the driver's error, if it has one.
        let _ = self.forget_complete(&mut queued);
        let (call, ready) = (call.clone(), ready.clone());
        queued.push_back(WatchedCall { call, step, ready, done: None, waited: None });
    }

    /// Marks the call watched last as queued; it is complete at `done`.
    pub(crate) fn mark_queued(&self, done: &Arc<Fence>) {
        if let Some(last) = lock(&self.queued).back_mut() {
            last.done = Some(done.clone());
        }
    }

    /// Ends the watch.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Aborts the communicator.
    pub(crate) fn abort(&self) {
        self.end();
        self.communicator.abort();
    }

    /// Checks for a failure once. True if the communicator is to be aborted now.
    pub(super) fn check(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return false;
        }
        let steps = self.steps.load(Ordering::Acquire);
        if self.reported.swap(steps, Ordering::AcqRel) != steps {
            self.control.report_steps(steps);
        }
        self.count_blocked_time();
        if let Some(Blame { culprit, during, reason }) = self.failure() {
            self.control.blame(culprit, during, reason);
        }
        self.control.failure(None).is_some() && !self.over.swap(true, Ordering::AcqRel)
    }

    /// Returns how long waits for NCCL have been paused so far: with the run, and while
    /// the members that others wait for were blocked.
    pub(crate) fn paused(&self, observer: &Observer) -> Duration {
        observer.paused() + lock(&self.blocked).total
    }

    /// Counts the time since the last call as a pause if the members that have taken the fewest
    /// steps are blocked: by their disks, say.
    fn count_blocked_time(&self) {
        let reports = self.control.reported_steps();
        let fewest = reports.iter().min();
        let mut awaited = (0..reports.len()).filter(|&member| reports.get(member) == fewest);
        let are_blocked =
            awaited.all(|one| one != self.communicator.member() && self.control.is_member_blocked(one));
        let time = &mut *lock(&self.blocked);
        let now = Instant::now();
        let passed = now.saturating_duration_since(std::mem::replace(&mut time.last_poll, now));
        let current = if are_blocked { self.timeout.min(time.current + passed) } else { Duration::ZERO };
        time.total += current.saturating_sub(time.current);
        time.current = current;
    }

    /// Forgets queued calls that are complete. Returns the driver's error, if it has one.
    fn forget_complete(&self, queued: &mut VecDeque<WatchedCall>) -> Option<String> {
        while let Some(done) = queued.front().and_then(|first| first.done.as_ref()) {
            match self.runtime.has_reached(done) {
                Ok(true) => drop(queued.pop_front()),
                Ok(false) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    }

    /// Returns the failure on the GPU, if there is one. Waits for no call of NCCL's: it may hang.
    fn failure(&self) -> Option<Blame> {
        let (first, broken) = self.oldest();
        let during = first.as_ref().map_or("its work on the GPU".into(), |first| first.label.clone());
        if let Some(reason) = broken {
            return Some(Blame { culprit: Some(self.communicator.member()), during, reason });
        }
        if let Err(error) = self.communicator.state_unless_busy() {
            let culprit = match self.verdict(&error, first.map(|first| first.step)) {
                Verdict::Wait => return None,
                Verdict::Blame(culprit) => culprit,
            };
            return Some(Blame { culprit, during, reason: format!("NCCL reports: {}", error.reason) });
        }
        let first = first.filter(|first| first.waited.is_some_and(|waited| waited >= self.timeout))?;
        let (culprit, reason) = self.blame_for_timeout(Some(first.step));
        Some(Blame { culprit, during, reason })
    }

    /// Returns the oldest call that is not complete, and the driver's error, if it has one.
    fn oldest(&self) -> (Option<Oldest>, Option<String>) {
        let mut queued = lock(&self.queued);
        let broken = self.forget_complete(&mut queued);
        let oldest = |first: &mut WatchedCall| Oldest {
            label: first.call.id().to_string(),
            step: first.step,
            waited: self.waited(first),
        };
        (queued.front_mut().map(oldest), broken)
    }

    /// Returns how long the oldest call has been the GPU's next, and begins to measure that.
    fn waited(&self, oldest: &mut WatchedCall) -> Option<Duration> {
        let paused = self.paused(&oldest.call.observer);
        if oldest.waited.is_none() && oldest.done.is_some() {
            // An error of the driver's is reported at `done`.
            let ready = self.runtime.has_reached(&oldest.ready).unwrap_or(false);
            oldest.waited = ready.then(|| stopwatch(paused, self.timeout));
        }
        Some(oldest.waited.as_mut()?.poll(paused))
    }

    /// Returns which member caused an error of NCCL's. Where NCCL has lost another rank, waits
    /// until the timeout for the group to fail: another rank may know which.
    fn verdict(&self, error: &CommunicatorError, step: Option<u64>) -> Verdict {
        if !error.blames_another {
            return Verdict::Blame(Some(self.communicator.member()));
        }
        let waited = lock(&self.lost)
            .get_or_insert_with(|| stopwatch(Duration::ZERO, self.timeout))
            .poll(Duration::ZERO);
        if waited < self.timeout { Verdict::Wait } else { Verdict::Blame(self.member_behind(step)) }
    }

    /// Returns another member whose latest report says that it had not taken step number `step`.
    fn member_behind(&self, step: Option<u64>) -> Option<usize> {
        let (step, reports) = (step?, self.control.reported_steps());
        let behind = |&other: &usize| other != self.communicator.member() && reports[other] < step;
        (0..reports.len()).find(behind)
    }

    /// Returns the member that has not taken step `step` (`None` if unknown), and the message that
    /// says so.
    pub(crate) fn blame_for_timeout(&self, step: Option<u64>) -> (Option<usize>, String) {
        let (culprit, waited) = (self.member_behind(step), self.timeout);
        let me = self.control.global_ranks()[self.communicator.member()];
        let reason = match culprit {
            Some(culprit) => {
                let rank = self.control.global_ranks()[culprit];
                format!(
                    "rank {me} waited {waited:?} on its GPU for rank {rank}, which never handed its part to NCCL"
                )
            }
            None => {
                format!(
                    "NCCL has not finished it within {waited:?}, though every rank has handed in its part"
                )
            }
        };
        (culprit, reason)
    }

    /// Blocks until the group has failed. Once NCCL has lost another rank, the watchdog fails it at
    /// the timeout.
    pub(crate) fn wait_for_failure(&self) {
        while self.control.failure(None).is_none() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}
