//! A thread per rank that looks after its communicators: no rank may wait forever for what a GPU does.
//!
//! Ranks wait for each other on the host before anything is queued, with deadlines of their own. What is left is what
//! happens on the GPU: NCCL fails there, or waits for a rank that has agreed and then does not come. Who computes blocks
//! then in the driver, which knows no deadline. This thread sees it, fails the group, and aborts the communicator; then
//! the driver returns.
//!
//! An abort gives memory of the GPU back, and so waits for all that runs there, kernels of the rank's other communicators
//! included. They wait for ranks that do not come any more, until they are aborted too. So every abort has a thread of its own.

use super::communicator::{Communicator, GiveUp};
use crate::backend::{Backend, Call, Watch};
use device::cuda::{Fence, Runtime};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that was queued on the GPU.
struct Queued {
    call: Call,
    /// How many collectives had been handed in with it; none for messages, which not all take part in.
    count: Option<u64>,
    done: Arc<Fence>,
    since: Instant,
    /// Time for which the run had been held by then.
    held: Duration,
    watch: Watch,
}

/// What is looked after of one group.
pub(crate) struct WatchedCommunicator {
    pub(crate) control: Arc<dyn Backend>,
    pub(crate) communicator: Communicator,
    runtime: Arc<Runtime>,
    pub(crate) timeout: Duration,
    /// No rank goes on before all have handed in.
    pub(crate) together: bool,
    queued: Mutex<VecDeque<Queued>>,
    /// Collectives handed in so far, and how many of them the others know of.
    handed_in: AtomicU64,
    told: AtomicU64,
    /// When NCCL first said that it had lost another rank.
    lost: OnceLock<Instant>,
    /// The group has ended, one way or the other.
    over: AtomicBool,
}

impl WatchedCommunicator {
    pub(crate) fn new(
        control: Arc<dyn Backend>,
        communicator: Communicator,
        runtime: Arc<Runtime>,
        timeout: Duration,
        together: bool,
    ) -> Self {
        // Making the communicator counts as the first.
        let [handed_in, told] = [1, 0].map(AtomicU64::new);
        let (queued, over) = (Mutex::default(), AtomicBool::new(false));
        let lost = OnceLock::new();
        WatchedCommunicator {
            control,
            communicator,
            runtime,
            timeout,
            together,
            queued,
            handed_in,
            told,
            lost,
            over,
        }
    }

    /// A collective has been handed in: how many that makes.
    pub(crate) fn count(&self) -> u64 {
        self.handed_in.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until all ranks have handed in `count` collectives, as this one has, or until `give_up` has a reason not to.
    pub(crate) fn meet(&self, count: u64, give_up: GiveUp<'_>) -> Result<(), String> {
        self.control.report(count);
        while self.control.reports().iter().any(|&report| report < count) {
            if let Some(reason) = give_up() {
                return Err(reason);
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// `call` is queued, and done at `done`.
    pub(crate) fn watch(&self, call: &Call, count: Option<u64>, done: &Arc<Fence>, watch: &Watch) {
        let (call, done, watch, since) = (call.clone(), done.clone(), watch.clone(), Instant::now());
        let mut queued = lock(&self.queued);
        while queued.front().is_some_and(|first| self.runtime.has_reached(&first.done).unwrap_or(false)) {
            queued.pop_front();
        }
        queued.push_back(Queued { call, count, done, since, held: watch.held(), watch });
    }

    /// Nothing more is to be looked after.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Aborts the communicator.
    pub(crate) fn abort(&self) {
        self.end();
        self.communicator.abort();
    }

    /// Looks once; whether the communicator is to be aborted now.
    fn look(&self) -> bool {
        if self.over.load(Ordering::Acquire) {
            return false;
        }
        let count = self.handed_in.load(Ordering::Acquire);
        if self.told.swap(count, Ordering::AcqRel) != count {
            self.control.report(count);
        }
        if let Some((culprit, during, reason)) = self.trouble() {
            self.control.blame(culprit, during, reason);
        }
        self.control.failure(&Call::none()).is_some() && !self.over.swap(true, Ordering::AcqRel)
    }

    /// What has gone wrong on the GPU, if anything: who is to blame, if anybody can tell, during what, and why.
    fn trouble(&self) -> Option<(Option<usize>, String, String)> {
        let mut queued = lock(&self.queued);
        let mut broken = None;
        while let Some(first) = queued.front() {
            match self.runtime.has_reached(&first.done) {
                Ok(true) => drop(queued.pop_front()),
                Ok(false) => break,
                Err(error) => {
                    broken = Some(error.to_string());
                    break;
                }
            }
        }
        let me = self.communicator.member;
        let during = queued.front().map_or("its work on the GPU".into(), |first| first.call.label());
        if let Some(reason) = broken {
            return Some((Some(me), during, reason));
        }
        if let Err(reason) = self.communicator.state_unless_busy() {
            let culprit = self.at_fault(queued.front().and_then(|first| first.count))?;
            return Some((culprit, during, format!("NCCL reports: {reason}")));
        }
        let first = queued.front()?;
        let held = first.watch.held().saturating_sub(first.held);
        if first.since.elapsed().saturating_sub(held) < self.timeout {
            return None;
        }
        let (culprit, reason) = self.late(first.count);
        Some((culprit, during, reason))
    }

    /// Whose fault an error of NCCL's is, if anybody can tell. Nothing yet where it has lost another rank: somebody may know
    /// which, as long as there is time.
    fn at_fault(&self, count: Option<u64>) -> Option<Option<usize>> {
        if !self.communicator.blames_another() {
            return Some(Some(self.communicator.member));
        }
        let since = self.lost.get_or_init(Instant::now);
        (since.elapsed() >= self.timeout).then(|| self.behind(count))
    }

    /// Another rank that had not handed in collective number `count` when it was last heard of.
    fn behind(&self, count: Option<u64>) -> Option<usize> {
        let (count, reports) = (count?, self.control.reports());
        let behind = |&other: &usize| other != self.communicator.member && reports[other] < count;
        (0..reports.len()).find(behind)
    }

    /// Who keeps the collective that was handed in as number `count` from ending, if anybody can tell, and why.
    pub(crate) fn late(&self, count: Option<u64>) -> (Option<usize>, String) {
        let (culprit, waited) = (self.behind(count), self.timeout);
        let me = self.control.names()[self.communicator.member];
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

    /// Waits until the group has failed, which it does by the deadline once NCCL has lost another rank.
    pub(crate) fn hear(&self) {
        while self.control.failure(&Call::none()).is_none() {
            std::thread::sleep(LOOK);
        }
    }
}

/// The thread.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    watched: Vec<Weak<WatchedCommunicator>>,
    closing: bool,
}

impl Watchdog {
    /// Starts it, for rank `rank`.
    pub(crate) fn start(rank: u32) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("watch over rank {rank}"))
            .spawn(move || theirs.run())?;
        Ok(Watchdog { shared, thread: Some(thread) })
    }

    /// Looks after `watched` from now on.
    pub(crate) fn add(&self, watched: &Arc<WatchedCommunicator>) {
        lock(&self.shared.state).watched.push(Arc::downgrade(watched));
    }
}

impl Shared {
    fn run(&self) {
        std::thread::scope(|aborts| {
            while let Some(watched) = self.next() {
                for watched in watched.into_iter().filter(|watched| watched.look()) {
                    aborts.spawn(move || watched.abort());
                }
            }
        });
    }

    /// What is to be looked at, after a pause; none at the end.
    fn next(&self) -> Option<Vec<Arc<WatchedCommunicator>>> {
        let mut state = lock(&self.state);
        if !state.closing {
            state = self.changed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.watched.retain(|watched| watched.strong_count() > 0);
        (!state.closing).then(|| state.watched.iter().filter_map(Weak::upgrade).collect())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        lock(&self.shared.state).closing = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It ends within a look and its aborts; what it has seen, it has told the group.
            let _ = thread.join();
        }
    }
}
