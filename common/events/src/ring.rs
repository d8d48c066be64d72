//! A bounded queue of events from a rank's thread to the collector. It never blocks the rank.

use crate::event::{Event, What};
use crate::lock::lock;
use crate::pace::{Boundary, Pace};
use crossbeam_queue::ArrayQueue;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

struct Ring {
    start: Instant,
    queue: ArrayQueue<Event>,
    never_dropped: Mutex<VecDeque<Event>>,
    dropped: AtomicU64,
}

/// A rank's end of its ring: emits events, and blocks at boundaries while the run is paused.
#[derive(Clone)]
pub struct Emitter {
    rank: u32,
    start: Instant,
    ring: Option<Arc<Ring>>,
    pace: Option<Arc<Pace>>,
}

/// Time at which something began, and how long the run had been paused by then.
#[derive(Clone, Copy, Debug)]
pub struct Began {
    at: Instant,
    paused: Duration,
}

/// The collector's end of one rank's ring.
pub struct Receiver {
    ring: Arc<Ring>,
}

/// Creates a ring of `capacity` events for `rank`. Times count from `start`, which all ranks of a
/// process share.
pub fn channel(rank: u32, capacity: usize, start: Instant, pace: Option<Arc<Pace>>) -> (Emitter, Receiver) {
    let ring = Arc::new(Ring {
        start,
        queue: ArrayQueue::new(capacity.max(1)),
        never_dropped: Mutex::new(VecDeque::new()),
        dropped: AtomicU64::new(0),
    });
    (Emitter { rank, start, ring: Some(ring.clone()), pace }, Receiver { ring })
}

/// The sending end of a ring for a rank of another process.
pub struct Feed {
    ring: Arc<Ring>,
    /// The number of events lost in the other process.
    elsewhere: AtomicU64,
}

/// Creates a ring of `capacity` events for a rank of another process; see [`channel`].
pub fn feed(capacity: usize, start: Instant) -> (Feed, Receiver) {
    let (_, receiver) = channel(0, capacity, start, None);
    (Feed { ring: receiver.ring.clone(), elsewhere: AtomicU64::new(0) }, receiver)
}

impl Feed {
    /// Adds an event unchanged. Never blocks: if the ring is full, the event is dropped and
    /// counted.
    pub fn push(&self, event: Event) {
        self.ring.push(event);
    }

    /// Sets the number of events that the other process has lost so far to `total`.
    pub fn lost(&self, total: u64) {
        let before = self.elsewhere.swap(total, Ordering::Relaxed);
        self.ring.dropped.fetch_add(total.saturating_sub(before), Ordering::Relaxed);
    }
}

impl Ring {
    fn push(&self, event: Event) {
        let never_dropped = event.what.is_never_dropped();
        if let Err(event) = self.queue.push(event) {
            if never_dropped {
                lock(&self.never_dropped).push_back(event);
            } else {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Emitter {
    /// Returns an emitter without a ring or a pace: its events are discarded.
    pub fn silent(rank: u32) -> Self {
        Emitter { rank, start: Instant::now(), ring: None, pace: None }
    }

    /// Returns a copy that obeys the same pace and discards events.
    pub fn without_events(&self) -> Self {
        Emitter { ring: None, ..self.clone() }
    }

    /// Returns the rank whose events this emitter emits.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Returns the instant from which event times count.
    pub fn start(&self) -> Instant {
        self.start
    }

    /// True if events are collected.
    pub fn emits_events(&self) -> bool {
        self.ring.is_some()
    }

    /// Emits an event with the current time. Never blocks: if the ring is full, the event is
    /// dropped and counted.
    pub fn emit(&self, what: What) {
        self.emit_timed(|_| what);
    }

    /// Emits the event that `what` returns for the event's own time in nanoseconds. See
    /// [`Emitter::emit`].
    pub fn emit_timed(&self, what: impl FnOnce(u64) -> What) {
        let Some(ring) = &self.ring else { return };
        let paused = self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.stamp());
        let at = self.start.elapsed().saturating_sub(paused).as_nanos() as u64;
        ring.push(Event { at, rank: self.rank, what: what(at) });
    }

    /// Blocks while a viewer holds the rank at `boundary`. Returns at once if the run is not paced.
    pub fn boundary(&self, boundary: Boundary) {
        if let Some(pace) = &self.pace {
            pace.pass(self.rank, boundary);
        }
    }

    /// Returns how long the run has been paused so far. Run time does not include it.
    pub fn paused(&self) -> Duration {
        self.pace.as_ref().map_or(Duration::ZERO, |pace| pace.paused())
    }

    /// Returns the present moment, for [`Emitter::since`].
    pub fn begin(&self) -> Began {
        Began { at: Instant::now(), paused: self.paused() }
    }

    /// Returns how long ago `began` was, without the time for which the run has been paused since.
    pub fn since(&self, began: Began) -> Duration {
        began.at.elapsed().saturating_sub(self.paused().saturating_sub(began.paused))
    }
}

impl Receiver {
    /// Returns the real time since the run started, in nanoseconds. No event drained so far can be
    /// later.
    pub(crate) fn elapsed(&self) -> u64 {
        self.ring.start.elapsed().as_nanos() as u64
    }

    /// Moves all events that have arrived to the end of `into`, oldest first.
    pub fn drain(&self, into: &mut Vec<Event>) {
        while let Some(event) = self.ring.queue.pop() {
            into.push(event);
        }
        into.extend(lock(&self.ring.never_dropped).drain(..));
    }

    /// Returns the number of events lost so far because the ring was full.
    pub fn dropped(&self) -> u64 {
        self.ring.dropped.load(Ordering::Relaxed)
    }
}
