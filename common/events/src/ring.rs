//! From a rank's thread to the collector: a bounded queue per rank that never blocks the rank.

use crate::event::{Event, What};
use crate::pace::{Boundary, Pace};
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

struct Shared {
    start: Instant,
    queue: ArrayQueue<Event>,
    precious: Mutex<VecDeque<Event>>,
    dropped: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A rank's end: emits events and passes the boundaries at which a run can be paced.
#[derive(Clone)]
pub struct Emitter {
    rank: u32,
    start: Instant,
    shared: Option<Arc<Shared>>,
    pace: Option<Arc<Pace>>,
}

/// The collector's end of one rank's ring.
pub struct Receiver {
    shared: Arc<Shared>,
}

/// A ring of `capacity` events for `rank`; times count from `start`, which all ranks of a process share.
pub fn channel(rank: u32, capacity: usize, start: Instant, pace: Option<Arc<Pace>>) -> (Emitter, Receiver) {
    let shared = Arc::new(Shared {
        start,
        queue: ArrayQueue::new(capacity.max(1)),
        precious: Mutex::new(VecDeque::new()),
        dropped: AtomicU64::new(0),
    });
    (Emitter { rank, start, shared: Some(shared.clone()), pace }, Receiver { shared })
}

/// The end of a ring into which events of another process are put.
pub struct Feed {
    shared: Arc<Shared>,
    /// Events lost before they came here.
    elsewhere: AtomicU64,
}

/// A ring of `capacity` events for a rank of another process; see [`channel`].
pub fn feed(capacity: usize, start: Instant) -> (Feed, Receiver) {
    let (_, receiver) = channel(0, capacity, start, None);
    (Feed { shared: receiver.shared.clone(), elsewhere: AtomicU64::new(0) }, receiver)
}

impl Feed {
    /// Adds an event as it is. Never blocks: a full ring drops and counts.
    pub fn push(&self, event: Event) {
        self.shared.push(event);
    }

    /// `total` events were lost so far before they came here.
    pub fn lost(&self, total: u64) {
        let before = self.elsewhere.swap(total, Ordering::Relaxed);
        self.shared.dropped.fetch_add(total.saturating_sub(before), Ordering::Relaxed);
    }
}

impl Shared {
    fn push(&self, event: Event) {
        let precious = event.what.is_precious();
        if let Err(event) = self.queue.push(event) {
            if precious {
                lock(&self.precious).push_back(event);
            } else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Emitter {
    /// An emitter that nobody listens to.
    pub fn silent(rank: u32) -> Self {
        Emitter { rank, start: Instant::now(), shared: None, pace: None }
    }

    /// The same to whom nobody listens: it obeys the pace, and says nothing.
    pub fn hushed(&self) -> Self {
        Emitter { shared: None, ..self.clone() }
    }

    /// The rank that this emitter speaks for.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Zero of the clock of events.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// Whether somebody listens.
    pub fn is_heard(&self) -> bool {
        self.shared.is_some()
    }

    /// Says what happened, now. Never blocks: a full ring drops and counts.
    pub fn emit(&self, what: What) {
        self.emit_timed(|_| what);
    }

    /// As [`Emitter::emit`], where what happened depends on the event's own time.
    pub fn emit_timed(&self, what: impl FnOnce(u64) -> What) {
        let Some(shared) = &self.shared else { return };
        let held = self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.stamp());
        let at = self.start.elapsed().saturating_sub(held).as_nanos() as u64;
        shared.push(Event { at, rank: self.rank, what: what(at) });
    }

    /// A point outside collectives at which a viewer may hold the rank. Returns at once unless the run is paced.
    pub fn boundary(&self, boundary: Boundary) {
        if let Some(pace) = &self.pace {
            pace.pass(self.rank, boundary);
        }
    }

    /// How long the run has been held so far: no part of its time.
    pub fn held(&self) -> Duration {
        self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.held())
    }

    /// The pacing that this rank obeys, if any. Deadlines subtract the time it held ranks.
    pub fn pace(&self) -> Option<&Arc<Pace>> {
        self.pace.as_ref()
    }
}

impl Receiver {
    /// Real time since the run started, in nanoseconds: no event drained before can be later.
    pub(crate) fn elapsed(&self) -> u64 {
        self.shared.start.elapsed().as_nanos() as u64
    }

    /// Moves everything that has arrived into `into`, oldest first.
    pub fn drain(&self, into: &mut Vec<Event>) {
        while let Some(event) = self.shared.queue.pop() {
            into.push(event);
        }
        into.extend(lock(&self.shared.precious).drain(..));
    }

    /// Events lost so far because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }
}
