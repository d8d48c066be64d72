//! A position in a run, live or recorded, and its motion: playing, stepping, seeking.

mod moves;

pub use moves::Problem;

use crate::places;
use crate::timeline::{Ending, Timeline};
use crate::window::Window;
use events::{Event, Message, Recording, RecordingError, RunHeader, Snapshot, StepRecord, What};
use std::sync::Arc;

/// The state of a run at one position, which the views draw.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The run's description.
    pub header: Arc<RunHeader>,
    /// The state of every rank.
    pub now: Snapshot,
    /// The last few steps.
    pub window: Window,
    /// The number of steps done before the latest validation that ended within the window.
    pub validated: Option<u32>,
}

impl Scene {
    fn new(header: Arc<RunHeader>, now: Snapshot) -> Self {
        let updates_on_cpu = places::updates_on_cpu(&header);
        let window = Window { updates_on_cpu, ..Window::new(&now) };
        Scene { header, now, window, validated: None }
    }

    fn lose_track(&mut self) {
        self.now.lose_track();
        self.window.lose_track(self.now.at);
    }

    fn apply(&mut self, event: &Event) {
        let takes = self.now.ranks.get(event.rank as usize).is_some_and(|rank| rank.takes(event));
        self.now.apply(event);
        if let What::Evaluated { step, .. } = event.what {
            self.validated = self.validated.max(Some(step));
        }
        if takes {
            self.window.apply(event);
        }
    }
}

/// How the position changes over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// It stays at the latest event.
    Following,
    /// It moves with time.
    Playing,
    /// It stays where it is.
    Paused,
}

/// The slowest speed: run seconds per real second.
pub const SLOWEST: f64 = 0.001;

/// The fastest speed of a recording.
pub const FASTEST: f64 = 100.0;

/// A position in a run.
pub struct Player {
    timeline: Timeline,
    scene: Scene,
    /// The time of the run that is shown, in nanoseconds: at or after the latest event applied.
    clock: f64,
    motion: Motion,
    speed: f64,
    batch: (u64, Arc<Vec<Event>>),
}

impl Player {
    /// Returns a player at the beginning of the timeline, or at its end if it is
    /// [`Motion::Following`].
    pub fn new(timeline: Timeline, motion: Motion) -> Self {
        let start = timeline.keyframe(timeline.beginning()).clone();
        let scene = Scene::new(timeline.header.clone(), start);
        let clock = scene.now.at as f64;
        let mut player = Player { timeline, scene, clock, motion, speed: 1.0, batch: (0, Arc::default()) };
        player.tick(0.0);
        player
    }

    /// Returns a player at the beginning of a recording.
    ///
    /// # Errors
    /// [`RecordingError`] if a batch is unreadable.
    pub fn recorded(recording: Recording) -> Result<Self, RecordingError> {
        Ok(Player::new(Timeline::recorded(recording)?, Motion::Paused))
    }

    /// Returns the state at the position.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// Returns the whole run.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Adds the bytes by which the recording's file has grown.
    pub(crate) fn grow(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        self.timeline.grow(bytes)
    }

    /// Returns the number of events before the position.
    pub fn position(&self) -> u64 {
        self.scene.now.events
    }

    /// Returns the time shown, in nanoseconds of the run.
    pub fn clock(&self) -> u64 {
        self.clock as u64
    }

    /// Returns how the position changes over time.
    pub fn motion(&self) -> Motion {
        self.motion
    }

    /// Sets how the position changes over time. Playing from the end starts at the beginning.
    pub fn set_motion(&mut self, motion: Motion) {
        if motion == Motion::Playing && self.at_end() && self.timeline.ended() {
            self.seek(self.timeline.beginning());
        }
        self.motion = motion;
        self.tick(0.0);
    }

    /// Returns the speed of playing, in run seconds per real second.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Sets the speed of playing, limited to between [`SLOWEST`] and [`FASTEST`].
    pub fn set_speed(&mut self, speed: f64) {
        self.speed = speed.clamp(SLOWEST, FASTEST);
    }

    /// Returns the steps that are finished at the position.
    pub fn steps_done(&self) -> &[StepRecord] {
        let steps = &self.timeline.state.history.steps;
        &steps[..steps.partition_point(|record| record.at <= self.scene.now.at)]
    }

    /// True if the position is after the latest event.
    pub fn at_end(&self) -> bool {
        self.position() >= self.timeline.len()
    }

    /// Returns how the run ended; `None` if it has not, or if the position is before its end. When
    /// runs are compared, a run that has ended stays at the position of the others.
    pub fn ending_shown(&self) -> Option<Ending> {
        let latest = self.at_end() || self.motion == Motion::Following;
        self.timeline.ending().filter(|_| latest)
    }

    /// Applies a message of a live run.
    pub fn push(&mut self, message: Message) {
        if self.timeline.push(message) {
            self.seek(self.timeline.len());
        }
        if self.position() < self.timeline.beginning() {
            self.seek(self.timeline.beginning());
        }
    }

    /// Advances by `seconds` of real time. Returns true if the position or the time shown has
    /// changed.
    pub fn tick(&mut self, seconds: f64) -> bool {
        let before = (self.position(), self.clock());
        match self.motion {
            Motion::Paused => {}
            Motion::Following => {
                self.advance_to(self.timeline.len());
                self.clock = self.scene.now.at as f64;
            }
            Motion::Playing => self.play(seconds),
        }
        before != (self.position(), self.clock())
    }

    fn play(&mut self, seconds: f64) {
        self.play_until(self.clock + seconds * self.speed * 1e9);
        if self.at_end() {
            self.clock = self.scene.now.at as f64;
            if self.timeline.ended() {
                self.motion = Motion::Paused;
            }
        }
    }

    /// Returns the event after the position; `None` at the end.
    fn next_event(&mut self) -> Option<Event> {
        let position = self.position();
        if position >= self.timeline.len() {
            return None;
        }
        let inside = |(first, events): &(u64, Arc<Vec<Event>>)| {
            position.checked_sub(*first).filter(|&offset| offset < events.len() as u64)
        };
        let offset = inside(&self.batch).or_else(|| {
            self.batch = self.timeline.events_at(position);
            inside(&self.batch)
        })?;
        self.batch.1.get(offset as usize).cloned()
    }

    /// Applies the event after the position.
    fn take(&mut self, event: &Event) {
        if self.timeline.gaps.begins_at(self.position()) {
            self.scene.lose_track();
        }
        self.scene.apply(event);
    }

    fn advance_to(&mut self, position: u64) {
        while self.position() < position {
            let Some(event) = self.next_event() else { return };
            self.take(&event);
        }
    }
}
