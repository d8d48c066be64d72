//! Pacing a run: pause, step and slow motion.
//!
//! A viewer sets the pace. Ranks call [`Pace::pass`] at every [`Boundary`], outside collectives,
//! and block there while the run is paused.
//!
//! Run time stands still while the run is paused: [`Pace::paused`] is the time during which at
//! least one rank was held and no event happened on any rank. Event times and deadlines leave it
//! out. So a run looks the same at every pace, and watching it causes no timeouts.

mod gate;

use crate::event::kinds::labelled;
use crate::lock::lock;
use gate::{Gate, Mode};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

labelled! {
    /// A point in a rank's program at which it may be held.
    Boundary {
        /// Between two events.
        Event => "event",
        /// Before a collective is issued.
        Collective => "collective",
        /// At the start of a pass over a unit.
        Unit => "unit",
        /// Before an optimizer step.
        Step => "step",
    }
}

/// The pace of a run, shared by the viewer and all ranks of a process.
pub struct Pace {
    gate: Mutex<Gate>,
    changed: Condvar,
    epoch: Instant,
    /// False while ranks run freely. While it is false, a rank that passes a boundary reads nothing
    /// else.
    active: AtomicBool,
    /// The time held up to the latest release, in nanoseconds.
    frozen: AtomicU64,
    /// Time of the latest event on any rank while `active`, in nanoseconds since `epoch`.
    last_activity: AtomicU64,
    /// The number of ranks held at a boundary.
    waiting: AtomicU64,
    /// The number of requests so far.
    requests: AtomicU64,
    /// True if the same viewers pace other processes. While those are held, this process may wait
    /// for them.
    several_processes: AtomicBool,
    /// Set when the process continues after a stop by a signal, and cleared once the stop is
    /// subtracted.
    continued: Arc<AtomicBool>,
    /// The earliest time at which a stop can have begun, in nanoseconds since `epoch`.
    stopped_from: AtomicU64,
    /// Receivers of viewers' requests: the connections to the other processes of a job.
    listeners: Mutex<Vec<mpsc::Sender<Control>>>,
}

impl Default for Pace {
    /// Returns a pace at which ranks run freely.
    fn default() -> Self {
        Pace {
            gate: Mutex::default(),
            changed: Condvar::new(),
            epoch: Instant::now(),
            active: AtomicBool::new(false),
            frozen: AtomicU64::new(0),
            last_activity: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            several_processes: AtomicBool::new(false),
            continued: Arc::default(),
            stopped_from: AtomicU64::new(u64::MAX),
            listeners: Mutex::default(),
        }
    }
}

/// A viewer's request to a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// Hold ranks at their next boundary. Discards steps that no rank has begun.
    Pause,
    /// Let ranks run freely.
    Resume,
    /// Hold the run and advance it to the next boundary of this kind: every rank, or for
    /// [`Boundary::Event`] only the rank of each process that is furthest behind. Steps add up if
    /// ranks are still in an earlier one.
    Step(Boundary),
    /// Run in slow motion: run seconds per real second. From 1 on, ranks run freely; 1/1000 is the
    /// slowest.
    Slow(f64),
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        lock(&self.gate)
    }

    fn set(&self, change: impl FnOnce(&mut Gate)) {
        let mut gate = self.lock();
        if self.waits_for_other_processes() {
            self.count_quiet_time();
        }
        change(&mut gate);
        let active = gate.is_active();
        if active && !self.active.swap(true, Ordering::AcqRel) {
            self.touch();
        }
        self.active.store(active, Ordering::Release);
        drop(gate);
        self.changed.notify_all();
    }

    /// Declares that other processes have the same pace. While they are paced, time counts as held
    /// in this process, too, even if none of its ranks is at a boundary.
    pub fn share_between_processes(&self) {
        self.several_processes.store(true, Ordering::Release);
    }

    /// True if this process may be waiting for others that are held.
    fn waits_for_other_processes(&self) -> bool {
        self.several_processes.load(Ordering::Acquire)
            && self.active.load(Ordering::Acquire)
            && self.waiting.load(Ordering::Acquire) == 0
    }

    /// Returns a receiver of all requests that viewers make from now on.
    pub fn listen(&self) -> mpsc::Receiver<Control> {
        let (sender, receiver) = mpsc::channel();
        lock(&self.listeners).push(sender);
        receiver
    }

    fn tell(&self, control: Control) {
        let mut listeners = lock(&self.listeners);
        listeners.retain(|listener| listener.send(control).is_ok());
    }

    /// Applies a viewer's request, unless the run is ending.
    pub fn control(&self, control: Control) {
        if self.lock().cancelled {
            return;
        }
        match control {
            Control::Pause => self.set(Gate::hold),
            Control::Step(granularity) => self.set(|gate| gate.step(granularity)),
            Control::Slow(factor) if factor < 1.0 => {
                let real = self.epoch.elapsed();
                let run = real.saturating_sub(self.paused());
                self.set(|gate| gate.mode = Mode::Slow { factor: factor.max(0.001), real, run });
            }
            Control::Resume | Control::Slow(_) => self.set(|gate| gate.mode = Mode::Free),
        }
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.tell(control);
    }

    /// Returns the number of requests that have been applied so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Acquire)
    }

    /// Returns the pace that viewers have asked for last. A run that is stepped counts as held.
    pub fn asked(&self) -> Control {
        let gate = self.lock();
        match gate.mode {
            _ if gate.cancelled => Control::Resume,
            Mode::Free => Control::Resume,
            Mode::Paused => Control::Pause,
            Mode::Slow { factor, .. } => Control::Slow(factor),
        }
    }

    /// Releases all ranks and never holds them again: the run is ending.
    pub fn cancel(&self) {
        self.set(|gate| gate.cancelled = true);
        self.tell(Control::Resume);
    }

    /// Returns the number of ranks that are held at a boundary now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Blocks while the run is paused. Called by ranks, through [`crate::Emitter::boundary`].
    pub fn pass(&self, rank: u32, boundary: Boundary) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let mut gate = self.lock();
        self.touch();
        self.subtract_stop();
        let arrived = self.epoch.elapsed().saturating_sub(self.held_by_now());
        gate.arrive(rank);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        while let Some(time) = gate.wait(rank, boundary, arrived, self.epoch.elapsed()) {
            gate = self.changed.wait_timeout(gate, time).unwrap_or_else(PoisonError::into_inner).0;
        }
        gate.depart(rank);
        self.count_quiet_time();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        drop(gate);
        self.changed.notify_all();
    }

    /// Counts the time since the latest activity as held. The caller has locked the gate.
    fn count_quiet_time(&self) {
        let now = self.epoch.elapsed().as_nanos() as u64;
        let quiet = now.saturating_sub(self.last_activity.fetch_max(now, Ordering::AcqRel));
        self.frozen.fetch_add(quiet, Ordering::AcqRel);
    }

    /// Records activity on a rank now.
    fn touch(&self) {
        self.last_activity.fetch_max(self.epoch.elapsed().as_nanos() as u64, Ordering::AcqRel);
    }

    /// Returns the held time to subtract from the time of an event that happens now. Records the
    /// activity.
    pub(crate) fn stamp(&self) -> Duration {
        self.subtract_stop();
        if self.active.load(Ordering::Acquire) {
            self.touch();
        }
        Duration::from_nanos(self.frozen.load(Ordering::Acquire))
    }

    /// Returns the flag that a handler of SIGCONT must set. The next read of the run's time
    /// subtracts the stop.
    pub fn continued(&self) -> Arc<AtomicBool> {
        self.continued.clone()
    }

    /// Declares that the process is running. A later stop counts as beginning no earlier than
    /// `at_least` from now, until the next call.
    pub fn mark_running(&self, at_least: Duration) {
        let from = self.epoch.elapsed() + at_least;
        // If a stop is not subtracted yet, it began earlier.
        if !self.continued.load(Ordering::Acquire) {
            self.stopped_from.store(from.as_nanos() as u64, Ordering::Release);
        }
    }

    /// Counts the time for which the whole process was stopped as held, once it continues.
    fn subtract_stop(&self) {
        if !self.continued.load(Ordering::Relaxed) {
            return;
        }
        // Read while the flag is set: `mark_running` does not change the value until it is cleared.
        let from = self.stopped_from.load(Ordering::Acquire);
        if !self.continued.swap(false, Ordering::AcqRel) {
            return;
        }
        // Counts a stop only once, unless `mark_running` was called since.
        let _ = self.stopped_from.compare_exchange(from, u64::MAX, Ordering::AcqRel, Ordering::Relaxed);
        // While a rank is held, the quiet time until its release includes the stop.
        if self.waiting.load(Ordering::Acquire) == 0 {
            self.touch();
            let stopped = self.epoch.elapsed().saturating_sub(Duration::from_nanos(from));
            self.frozen.fetch_add(stopped.as_nanos() as u64, Ordering::AcqRel);
        }
    }

    /// Returns the total time so far during which ranks were held and no event happened. Deadlines
    /// subtract it.
    pub fn paused(&self) -> Duration {
        self.subtract_stop();
        // A release moves time from one part of the sum to the other. A deadline that saw neither
        // would pass at once.
        let may_change = self.active.load(Ordering::Acquire) || self.waiting() > 0;
        let _gate = may_change.then(|| self.lock());
        self.held_by_now()
    }

    /// Returns the same time as [`Pace::paused`]. The caller has locked the gate, or no rank is
    /// held.
    fn held_by_now(&self) -> Duration {
        Duration::from_nanos(self.frozen.load(Ordering::Acquire)) + self.quiet()
    }

    /// Returns the time since the latest event on any rank while at least one rank is held; zero if
    /// none is held.
    pub fn quiet(&self) -> Duration {
        if self.waiting.load(Ordering::Acquire) == 0 && !self.waits_for_other_processes() {
            return Duration::ZERO;
        }
        let now = self.epoch.elapsed().as_nanos() as u64;
        Duration::from_nanos(now.saturating_sub(self.last_activity.load(Ordering::Acquire)))
    }
}
