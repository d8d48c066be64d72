//! Holding a run: pause, step and slow motion.
//!
//! A viewer sets the pace; ranks ask at every [`Boundary`], outside collectives, whether they may go on. The time for
//! which ranks were held is counted, so that deadlines can leave it out.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A place in a rank's program at which it may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Boundary {
    /// Between two events.
    Event,
    /// Before a collective is issued.
    Collective,
    /// Before a pass over a unit.
    Unit,
    /// Before an optimizer step.
    Step,
}

#[derive(Default)]
struct State {
    paused: bool,
    held: Duration,
    paused_since: Option<Instant>,
    cancelled: bool,
}

/// The pace that a run is held to. Shared by the viewer and all ranks of a process.
#[derive(Default)]
pub struct Pace {
    state: Mutex<State>,
    changed: Condvar,
}

impl Pace {
    /// A pace that lets ranks run freely.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds ranks at their next boundary.
    pub fn pause(&self) {
        let mut state = self.lock();
        if !state.paused {
            state.paused = true;
            state.paused_since = Some(Instant::now());
        }
    }

    /// Lets ranks run freely again.
    pub fn resume(&self) {
        let mut state = self.lock();
        state.paused = false;
        if let Some(since) = state.paused_since.take() {
            state.held += since.elapsed();
        }
        self.changed.notify_all();
    }

    /// Lets every rank go for good: the run is ending.
    pub fn cancel(&self) {
        self.lock().cancelled = true;
        self.resume();
    }

    /// Blocks while the run is paused. Called by ranks, through [`crate::Emitter::boundary`].
    pub fn pass(&self, _rank: u32, _boundary: Boundary) {
        let mut state = self.lock();
        while state.paused && !state.cancelled {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Total time for which ranks have been held so far.
    pub fn held(&self) -> Duration {
        let state = self.lock();
        state.held + state.paused_since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}
