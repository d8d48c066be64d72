//! Holding a run: pause, step and slow motion.
//!
//! A viewer sets the pace; ranks ask at every [`Boundary`], outside collectives, whether they may go on.
//!
//! A run that is held has a clock of its own: [`Pace::held`] is the time during which at least one rank was held and
//! nothing happened on any rank. Event times and deadlines leave it out, so a run looks the same at every pace and never
//! times out because somebody is watching it.

mod state;

use state::{Mode, State, Verdict};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// A place in a rank's program at which it may be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum Boundary {
    /// Between two events.
    Event,
    /// Before a collective is issued.
    Collective,
    /// At the start of a pass over a unit.
    Unit,
    /// Before an optimizer step.
    Step,
}

/// The pace that a run is held to. Shared by the viewer and all ranks of a process.
pub struct Pace {
    state: Mutex<State>,
    changed: Condvar,
    epoch: Instant,
    /// Whether anything but a free run is asked for: the one thing that an unpaced boundary reads.
    active: AtomicBool,
    /// Nanoseconds held until the latest release.
    frozen: AtomicU64,
    /// When something last happened on any rank while active, in nanoseconds since `epoch`.
    last_activity: AtomicU64,
    waiting: AtomicU64,
    /// Whether other processes obey the same viewers: while they are paced, this one may be waiting for them.
    company: AtomicBool,
    /// Raised when the process goes on after a stop, and lowered once that is left out.
    continued: Arc<AtomicBool>,
    /// The earliest at which a stop can have begun, in nanoseconds since `epoch`.
    stood_from: AtomicU64,
    /// Who hears what viewers ask: the other processes of a job.
    listeners: Mutex<Vec<mpsc::Sender<Control>>>,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            state: Mutex::default(),
            changed: Condvar::new(),
            epoch: Instant::now(),
            active: AtomicBool::new(false),
            frozen: AtomicU64::new(0),
            last_activity: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            company: AtomicBool::new(false),
            continued: Arc::default(),
            stood_from: AtomicU64::new(u64::MAX),
            listeners: Mutex::default(),
        }
    }
}

/// What a viewer asks of a run.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Control {
    /// Hold ranks at their next boundary.
    Pause,
    /// Run freely.
    Resume,
    /// Hold, and go on to the next boundary of this kind.
    Step(Boundary),
    /// Slow motion: run seconds per real second, in (0, 1].
    Slow(f64),
}

impl Pace {
    /// A pace that lets ranks run freely.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        if self.waits_for_company() {
            self.book();
        }
        change(&mut state);
        let active = state.is_active();
        if active && !self.active.swap(true, Ordering::AcqRel) {
            self.touch();
        }
        self.active.store(active, Ordering::Release);
        drop(state);
        self.changed.notify_all();
    }

    /// Says that other processes are paced alike. Time under pace is then held time here too, even if no rank of this
    /// process is at a boundary.
    pub fn in_company(&self) {
        self.company.store(true, Ordering::Release);
    }

    /// Whether this process may be waiting for others that are paced.
    fn waits_for_company(&self) -> bool {
        self.company.load(Ordering::Acquire)
            && self.active.load(Ordering::Acquire)
            && self.waiting.load(Ordering::Acquire) == 0
    }

    /// Everything that viewers ask from now on.
    pub fn listen(&self) -> mpsc::Receiver<Control> {
        let (sender, receiver) = mpsc::channel();
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        receiver
    }

    fn tell(&self, control: Control) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.send(control).is_ok());
    }

    /// Does what a viewer asks.
    pub fn control(&self, control: Control) {
        match control {
            Control::Pause => self.pause(),
            Control::Resume => self.resume(),
            Control::Step(granularity) => self.step(granularity),
            Control::Slow(factor) => self.slow(factor),
        }
    }

    /// Holds ranks at their next boundary. Steps that no rank has begun are forgotten.
    pub fn pause(&self) {
        self.set(State::hold);
        self.tell(Control::Pause);
    }

    /// Lets ranks run freely again.
    pub fn resume(&self) {
        self.set(|state| state.mode = Mode::Free);
        self.tell(Control::Resume);
    }

    /// Holds the run and lets it go on to the next boundary of this kind: every rank, or for [`Boundary::Event`] only
    /// the rank that is furthest behind. Steps asked for while ranks are still in the one before all count.
    pub fn step(&self, granularity: Boundary) {
        self.set(|state| state.step(granularity));
        self.tell(Control::Step(granularity));
    }

    /// Slow motion: `factor` run seconds per real second. 1 and above is a free run, 1/1000 the slowest.
    pub fn slow(&self, factor: f64) {
        if factor >= 1.0 || factor.is_nan() {
            return self.resume();
        }
        let real = self.epoch.elapsed();
        let run = real.saturating_sub(self.held());
        self.set(|state| state.mode = Mode::Slow { factor: factor.max(0.001), real, run });
        self.tell(Control::Slow(factor));
    }

    /// Lets every rank go for good: the run is ending.
    pub fn cancel(&self) {
        self.set(|state| state.cancelled = true);
        self.tell(Control::Resume);
    }

    /// Whether ranks are held at boundaries until somebody steps or resumes.
    pub fn is_paused(&self) -> bool {
        let state = self.lock();
        state.is_paused()
    }

    /// Ranks that are held at a boundary right now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Blocks while the run is held. Called by ranks, through [`crate::Emitter::boundary`].
    pub fn pass(&self, rank: u32, boundary: Boundary) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.lock();
        self.touch();
        let arrived = self.epoch.elapsed().saturating_sub(self.held());
        state.arrive(rank);
        self.waiting.fetch_add(1, Ordering::AcqRel);
        loop {
            state = match state.verdict(rank, boundary, arrived, self.epoch.elapsed()) {
                Verdict::Go => break,
                Verdict::Wait => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Verdict::WaitFor(time) => {
                    self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.depart(rank);
        self.release();
        drop(state);
        self.changed.notify_all();
    }

    /// Books the quiet time before a release as held. Called with the state locked.
    fn release(&self) {
        self.book();
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Books the time since something last happened as held.
    fn book(&self) {
        let now = self.epoch.elapsed().as_nanos() as u64;
        let quiet = now.saturating_sub(self.last_activity.fetch_max(now, Ordering::AcqRel));
        self.frozen.fetch_add(quiet, Ordering::AcqRel);
    }

    /// Notes that something happened on a rank just now.
    fn touch(&self) {
        self.last_activity.fetch_max(self.epoch.elapsed().as_nanos() as u64, Ordering::AcqRel);
    }

    /// The time to stamp on an event that happens now: held time until the latest release. Also notes the activity.
    pub(crate) fn stamp(&self) -> Duration {
        self.leave_out_a_stop();
        if self.active.load(Ordering::Acquire) {
            self.touch();
        }
        Duration::from_nanos(self.frozen.load(Ordering::Acquire))
    }

    /// To be raised by SIGCONT: whoever reads the run's time next leaves out the stop, before anything can count it.
    pub fn continued(&self) -> Arc<AtomicBool> {
        self.continued.clone()
    }

    /// Says that the process runs, and that a stop of it is taken to begin no sooner than `at_least` from now, until this is
    /// said again.
    pub fn runs(&self, at_least: Duration) {
        let from = self.epoch.elapsed() + at_least;
        // A stop that is still to be left out began before.
        if !self.continued.load(Ordering::Acquire) {
            self.stood_from.store(from.as_nanos() as u64, Ordering::Release);
        }
    }

    /// Leaves out time for which the whole process stood still, once it goes on.
    fn leave_out_a_stop(&self) {
        if !self.continued.load(Ordering::Relaxed) {
            return;
        }
        // Read while the flag is up: `runs` leaves it alone until then.
        let from = self.stood_from.load(Ordering::Acquire);
        if !self.continued.swap(false, Ordering::AcqRel) {
            return;
        }
        // Once, unless the process has said since that it runs.
        let _ = self.stood_from.compare_exchange(from, u64::MAX, Ordering::AcqRel, Ordering::Relaxed);
        // While a rank is held, the quiet time until its release covers it.
        if self.waiting.load(Ordering::Acquire) == 0 {
            self.touch();
            let stood = self.epoch.elapsed().saturating_sub(Duration::from_nanos(from));
            self.frozen.fetch_add(stood.as_nanos() as u64, Ordering::AcqRel);
        }
    }

    /// Total time so far for which ranks were held while nothing else happened. Deadlines subtract it.
    pub fn held(&self) -> Duration {
        self.leave_out_a_stop();
        Duration::from_nanos(self.frozen.load(Ordering::Acquire)) + self.quiet()
    }

    /// How long nothing has happened on any rank because at least one is held; zero if none is.
    pub fn quiet(&self) -> Duration {
        if self.waiting.load(Ordering::Acquire) == 0 && !self.waits_for_company() {
            return Duration::ZERO;
        }
        let now = self.epoch.elapsed().as_nanos() as u64;
        Duration::from_nanos(now.saturating_sub(self.last_activity.load(Ordering::Acquire)))
    }
}
