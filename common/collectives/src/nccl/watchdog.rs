//! A thread per rank that watches the rank's communicators, so that no rank waits forever for its
//! GPU.
//!
//! Ranks wait for each other on the host before anything is queued, with deadlines of their own.
//! The watchdog covers what can go wrong later, on the GPU: NCCL fails there, or waits for a rank
//! that has agreed to a call and then does not hand it in. The compute thread then blocks inside
//! the driver, which has no timeout. The watchdog notices, fails the group, and aborts the
//! communicator; then the driver returns.
//!
//! An abort frees memory of the GPU, and so waits for everything that runs there, kernels of the
//! rank's other communicators included. Those wait for ranks that enqueue nothing more, until they
//! are aborted too. So every abort has a thread of its own.

use super::calls::CommunicatorError;
use super::communicator::{Communicator, GiveUp};
use crate::core::backend::Backend;
use crate::core::call::Call;
use crate::core::call_id::CallId;
use crate::core::deadline::poll_interval;
use crate::core::observer::Observer;
use crate::core::stopwatch::Stopwatch;
use device::cuda::{Fence, Runtime};
use events::lock;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the watchdog looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Starts to measure a wait for NCCL of at most `timeout`, at a time by which the run has been
/// paused for `paused`. A look may take long, while another thread holds the driver's lock.
pub(crate) fn stopwatch(paused: Duration, timeout: Duration) -> Stopwatch {
    Stopwatch::start(paused, poll_interval(timeout).max(2 * POLL_INTERVAL))
}

/// A call that is being enqueued, or queued on the GPU.
struct Queued {
    call: Arc<Call>,
    /// The number of steps that this rank has taken once it has handed the call in.
    count: u64,
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

/// The oldest [`Queued`] call, as the watchdog knows it.
struct Oldest {
    label: String,
    count: u64,
    /// The call's [`Queued::waited`].
    waited: Option<Duration>,
}

/// The time for which all members that the others wait for have been blocked on disks or copies.
struct Excused {
    /// The time of the latest look.
    looked: Instant,
    total: Duration,
    /// The time for which they have been blocked without a break; at most the timeout, as on the
    /// host.
    spell: Duration,
}

/// A group's communicator with the state that its watchdog needs.
pub(crate) struct WatchedCommunicator {
    pub(crate) control: Arc<dyn Backend>,
    pub(crate) communicator: Communicator,
    runtime: Arc<Runtime>,
    pub(crate) timeout: Duration,
    pub(crate) host_barrier: HostBarrier,
    queued: Mutex<VecDeque<Queued>>,
    /// Steps so far: two per collective, one when this rank is ready to enqueue it, and one when it
    /// has done so.
    steps: AtomicU64,
    /// The number of steps that this rank has reported.
    reported: AtomicU64,
    /// The time since NCCL first reported that it had lost another rank.
    lost: Mutex<Option<Stopwatch>>,
    excused: Mutex<Excused>,
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
            excused: Mutex::new(Excused {
                looked: Instant::now(),
                total: Duration::ZERO,
                spell: Duration::ZERO,
            }),
            over: AtomicBool::new(false),
        }
    }

    /// Counts a step towards enqueueing a collective. Returns the number of steps so far.
    pub(crate) fn step(&self) -> u64 {
        self.steps.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Blocks until all ranks have taken `count` steps, as this one has, or until `give_up` returns
    /// a reason.
    pub(crate) fn pass_barrier(&self, count: u64, give_up: GiveUp<'_>) -> Result<(), String> {
        self.control.report(count);
        while self.control.reports().iter().any(|&report| report < count) {
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
        let count = self.steps.load(Ordering::Acquire) + 2;
        let mut queued = lock(&self.queued);
        // The watchdog reports the driver's error, if it has one.
        let _ = self.forget_complete(&mut queued);
        let (call, ready) = (call.clone(), ready.clone());
        queued.push_back(Queued { call, count, ready, done: None, waited: None });
    }

    /// Takes note that the call watched last is queued, and complete at `done`.
    pub(crate) fn is_queued(&self, done: &Arc<Fence>) {
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

    /// Looks once. True if the communicator is to be aborted now.
    fn look(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return false;
        }
        let count = self.steps.load(Ordering::Acquire);
        if self.reported.swap(count, Ordering::AcqRel) != count {
            self.control.report(count);
        }
        self.excuse();
        if let Some((culprit, during, reason)) = self.trouble() {
            self.control.blame(culprit, during, reason);
        }
        self.control.failure(CallId::NONE).is_some() && !self.over.swap(true, Ordering::AcqRel)
    }

    /// Returns how long waits for NCCL have been paused so far: with the run, and by members that
    /// are excused.
    pub(crate) fn paused(&self, observer: &Observer) -> Duration {
        observer.paused() + lock(&self.excused).total
    }

    /// Counts the time since the last look as a pause if the members that have taken the fewest
    /// steps are blocked: by their disks, say.
    fn excuse(&self) {
        let reports = self.control.reports();
        let fewest = reports.iter().min();
        let mut awaited = (0..reports.len()).filter(|&member| reports.get(member) == fewest);
        let blocked = awaited.all(|one| one != self.communicator.member && self.control.is_excused(one));
        let excused = &mut *lock(&self.excused);
        let now = Instant::now();
        let passed = now.saturating_duration_since(std::mem::replace(&mut excused.looked, now));
        let spell = if blocked { self.timeout.min(excused.spell + passed) } else { Duration::ZERO };
        excused.total += spell.saturating_sub(excused.spell);
        excused.spell = spell;
    }

    /// Forgets queued calls that are complete. Returns the driver's error, if it has one.
    fn forget_complete(&self, queued: &mut VecDeque<Queued>) -> Option<String> {
        while let Some(done) = queued.front().and_then(|first| first.done.as_ref()) {
            match self.runtime.has_reached(done) {
                Ok(true) => drop(queued.pop_front()),
                Ok(false) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    }

    /// Returns the failure on the GPU, `None` if there is none: the member at fault, `None` if it
    /// is unknown; the operation; the reason. Waits for no call of NCCL's: it may hang.
    fn trouble(&self) -> Option<(Option<usize>, String, String)> {
        let (first, broken) = self.oldest();
        let during = first.as_ref().map_or("its work on the GPU".into(), |first| first.label.clone());
        if let Some(reason) = broken {
            return Some((Some(self.communicator.member), during, reason));
        }
        if let Err(error) = self.communicator.state_unless_busy() {
            let culprit = self.at_fault(&error, first.map(|first| first.count))?;
            return Some((culprit, during, format!("NCCL reports: {}", error.reason)));
        }
        let first = first.filter(|first| first.waited.is_some_and(|waited| waited >= self.timeout))?;
        let (culprit, reason) = self.late(Some(first.count));
        Some((culprit, during, reason))
    }

    /// Returns the oldest call that is not complete, and the driver's error, if it has one.
    fn oldest(&self) -> (Option<Oldest>, Option<String>) {
        let mut queued = lock(&self.queued);
        let broken = self.forget_complete(&mut queued);
        let oldest = |first: &mut Queued| Oldest {
            label: first.call.label(),
            count: first.count,
            waited: self.waited(first),
        };
        (queued.front_mut().map(oldest), broken)
    }

    /// Returns how long the oldest call has been the GPU's next, and begins to measure that.
    fn waited(&self, oldest: &mut Queued) -> Option<Duration> {
        let paused = self.paused(&oldest.call.observer);
        if oldest.waited.is_none() && oldest.done.is_some() {
            // An error of the driver's is reported at `done`.
            let ready = self.runtime.has_reached(&oldest.ready).unwrap_or(false);
            oldest.waited = ready.then(|| stopwatch(paused, self.timeout));
        }
        Some(oldest.waited.as_mut()?.look(paused))
    }

    /// Returns the member that caused an error of NCCL's; `Some(None)` if it is unknown. Where NCCL
    /// has lost another rank, returns `None` until the timeout: another rank may know which.
    fn at_fault(&self, error: &CommunicatorError, count: Option<u64>) -> Option<Option<usize>> {
        if !error.blames_another {
            return Some(Some(self.communicator.member));
        }
        let waited = lock(&self.lost)
            .get_or_insert_with(|| stopwatch(Duration::ZERO, self.timeout))
            .look(Duration::ZERO);
        (waited >= self.timeout).then(|| self.behind(count))
    }

    /// Returns another member whose latest report says that it had not taken step number `count`.
    fn behind(&self, count: Option<u64>) -> Option<usize> {
        let (count, reports) = (count?, self.control.reports());
        let behind = |&other: &usize| other != self.communicator.member && reports[other] < count;
        (0..reports.len()).find(behind)
    }

    /// Returns the member that keeps a collective, of which step number `count` is a part, from
    /// ending, if it is known, and the reason.
    pub(crate) fn late(&self, count: Option<u64>) -> (Option<usize>, String) {
        let (culprit, waited) = (self.behind(count), self.timeout);
        let me = self.control.global_ranks()[self.communicator.member];
        let reason = match culprit {
            Some(_) => {
                format!("rank {me} waited {waited:?} for it on its GPU, but it never handed its part to NCCL")
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
        while self.control.failure(CallId::NONE).is_none() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// One rank's watchdog thread.
pub(crate) struct Watchdog {
    /// Hands communicators to the thread, which ends once this is dropped.
    watched: Option<Sender<Weak<WatchedCommunicator>>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts the thread, for rank `rank`.
    pub(crate) fn start(rank: u32) -> std::io::Result<Self> {
        let (watched, given) = channel();
        let thread = std::thread::Builder::new()
            .name(format!("watch over rank {rank}"))
            .spawn(move || watch_all(&given))?;
        Ok(Watchdog { watched: Some(watched), thread: Some(thread) })
    }

    /// Watches a communicator from now on.
    pub(crate) fn add(&self, watched: &Arc<WatchedCommunicator>) {
        // Fails only if the thread has panicked.
        self.watched.iter().for_each(|given| drop(given.send(Arc::downgrade(watched))));
    }
}

/// Looks at all communicators that arrive, repeatedly, until the sender is dropped.
fn watch_all(given: &Receiver<Weak<WatchedCommunicator>>) {
    let mut all = Vec::new();
    std::thread::scope(|aborts| {
        loop {
            match given.recv_timeout(POLL_INTERVAL) {
                Ok(watched) => all.push(watched),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            all.retain(|watched| watched.strong_count() > 0);
            for watched in all.iter().filter_map(Weak::upgrade).filter(|watched| watched.look()) {
                aborts.spawn(move || watched.abort());
            }
        }
    });
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.watched = None;
        if let Some(thread) = self.thread.take() {
            // The thread ends within one look and its aborts, and has reported every failure it
            // noticed to the group.
            let _ = thread.join();
        }
    }
}
