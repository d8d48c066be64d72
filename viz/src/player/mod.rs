//! Standing somewhere in a run, and moving: playing, stepping, seeking. The same for live runs and recordings.

mod moves;

use crate::timeline::Timeline;
use crate::window::Window;
use events::{Event, Message, RunHeader, Snapshot};
use std::sync::Arc;

/// The run as it is at one moment: what the views draw.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The run's description.
    pub header: Arc<RunHeader>,
    /// Every rank now.
    pub now: Snapshot,
    /// The last few steps.
    pub window: Window,
}

impl Scene {
    fn new(header: Arc<RunHeader>, now: Snapshot) -> Self {
        let window = Window::new(&now);
        Scene { header, now, window }
    }

    fn apply(&mut self, event: &Event) {
        let takes = self.now.ranks.get(event.rank as usize).is_some_and(|rank| rank.takes(event));
        self.now.apply(event);
        if takes {
            self.window.apply(event);
        }
    }
}

/// How the position changes by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// It stays at the latest event.
    Following,
    /// It moves with time.
    Playing,
    /// It stays where it is.
    Standing,
}

/// The slowest speed: run seconds per real second.
pub const SLOWEST: f64 = 0.001;

/// A place in a run.
pub struct Player {
    timeline: Timeline,
    scene: Scene,
    /// The moment of the run that is shown, in nanoseconds: at or after the latest event applied.
    clock: f64,
    motion: Motion,
    speed: f64,
    batch: (u64, Arc<[Event]>),
}

impl Player {
    /// At the beginning of a recording, standing; or at the end of a live run, following.
    pub fn new(timeline: Timeline, motion: Motion) -> Self {
        let beginning = timeline.beginning();
        let (_, start) = timeline.keyframe(beginning);
        let scene = Scene::new(timeline.header().clone(), start.as_ref().clone());
        let clock = scene.now.at as f64;
        let mut player = Player { timeline, scene, clock, motion, speed: 1.0, batch: (0, [].into()) };
        player.tick(0.0);
        player
    }

    /// The run at the position.
    pub fn scene(&self) -> &Scene {
        &self.scene
    }

    /// The whole run.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Number of events before the position.
    pub fn position(&self) -> u64 {
        self.scene.now.events
    }

    /// The moment shown, in nanoseconds of the run.
    pub fn clock(&self) -> u64 {
        self.clock as u64
    }

    /// How the position changes by itself.
    pub fn motion(&self) -> Motion {
        self.motion
    }

    /// Changes how the position changes by itself. Playing from the end begins at the beginning.
    pub fn set_motion(&mut self, motion: Motion) {
        if motion == Motion::Playing && self.at_end() && self.timeline.ended() {
            self.seek(self.timeline.beginning());
        }
        self.motion = motion;
        self.tick(0.0);
    }

    /// Run seconds per real second while playing.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Sets the speed, between [`SLOWEST`] and real time.
    pub fn set_speed(&mut self, speed: f64) {
        self.speed = speed.clamp(SLOWEST, 1.0);
    }

    /// Whether the position is behind the latest event.
    pub fn at_end(&self) -> bool {
        self.position() >= self.timeline.len()
    }

    /// Takes a message of a live run.
    pub fn push(&mut self, message: Message) {
        if self.timeline.push(message) {
            self.seek(self.timeline.len());
        }
        if self.position() < self.timeline.beginning() {
            self.seek(self.timeline.beginning());
        }
    }

    /// Lets `seconds` of real time pass. Returns whether the picture has changed.
    pub fn tick(&mut self, seconds: f64) -> bool {
        let before = (self.position(), self.clock());
        match self.motion {
            Motion::Standing => {}
            Motion::Following => {
                self.advance_to(self.timeline.len());
                self.clock = self.scene.now.at as f64;
            }
            Motion::Playing => self.play(seconds),
        }
        before != (self.position(), self.clock())
    }

    fn play(&mut self, seconds: f64) {
        self.clock += seconds * self.speed * 1e9;
        while let Some(event) = self.next_event() {
            if event.at as f64 > self.clock {
                return;
            }
            self.scene.apply(&event);
        }
        self.clock = self.clock.min(self.scene.now.at as f64);
        if self.timeline.ended() {
            self.motion = Motion::Standing;
        }
    }

    /// The event after the position.
    fn next_event(&mut self) -> Option<Event> {
        let position = self.position();
        if position >= self.timeline.len() {
            return None;
        }
        let inside = |(first, events): &(u64, Arc<[Event]>)| {
            position.checked_sub(*first).filter(|&offset| offset < events.len() as u64)
        };
        let offset = inside(&self.batch).or_else(|| {
            self.batch = self.timeline.events_at(position);
            inside(&self.batch)
        })?;
        self.batch.1.get(offset as usize).cloned()
    }

    fn advance_to(&mut self, position: u64) {
        while self.position() < position {
            let Some(event) = self.next_event() else { return };
            self.scene.apply(&event);
        }
    }
}
