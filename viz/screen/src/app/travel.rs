//! Moves the position through a run, and holds or steps a live run that may be held.

use super::{App, Effect, EventSource};
use crate::input::Action;
use crate::player::{Motion, Player};
use crate::timeline::FollowState;
use events::{Boundary, Control, Message};

/// The selectable speeds, in run seconds per real second.
const SPEEDS: [f64; 16] =
    [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0];

/// The index of real time in [`SPEEDS`], the fastest speed of a live run.
const REAL_TIME: usize = 9;

impl App {
    pub(super) fn travel(&mut self, action: Action) -> Option<Effect> {
        let (granularity, recorded) = (self.granularity, self.source == EventSource::Recording);
        let effect = match action {
            Action::TogglePause => self.toggle_pause(),
            Action::Forward => self.forward(granularity),
            Action::Back => self.pause_then(|player| player.step_back(granularity)),
            Action::NextStep => self.forward(Boundary::Step),
            Action::PreviousStep => self.pause_then(|player| player.step_back(Boundary::Step)),
            Action::First => self.pause_then(|player| player.seek(player.timeline().beginning())),
            Action::Seek(share) if recorded => self.seek_share(share),
            Action::Last => self.last(),
            Action::NextProblem if recorded && self.lead().next_problem().is_some() => {
                self.dismissed = false;
                self.pause_then(Player::seek_problem)
            }
            Action::Slower => self.change_speed(-1),
            Action::Faster => self.change_speed(1),
            Action::Release => self.release(),
            _ => None,
        };
        self.sync_runs();
        effect
    }

    /// True if this screen may hold the run.
    pub fn may_hold(&self) -> bool {
        let alive = !self.lead().timeline().ended();
        alive && matches!(self.source, EventSource::Live | EventSource::Attached { control: true })
    }

    /// True if the run is a recording that is followed and may still grow.
    fn grows(&self) -> bool {
        self.lead().timeline().follow_state() == FollowState::Growing
    }

    /// Takes over the pace that the run reports: another viewer may have changed it.
    pub(super) fn note_pace(&mut self, message: &Message) {
        match message {
            Message::Control(Control::Resume) => (self.held, self.pace) = (false, 1.0),
            Message::Control(Control::Slow(pace)) => (self.held, self.pace) = (false, *pace),
            Message::Control(Control::Pause | Control::Step(_)) => self.held = true,
            _ => {}
        }
    }

    fn hold(&mut self) -> Option<Effect> {
        if self.held || !self.may_hold() {
            return None;
        }
        self.held = true;
        Some(Effect::Control(Control::Pause))
    }

    /// Pauses the position and applies `change` to it. The run itself continues.
    pub(super) fn pause_then(&mut self, change: impl FnOnce(&mut Player)) -> Option<Effect> {
        self.lead_mut().set_motion(Motion::Paused);
        change(self.lead_mut());
        None
    }

    /// Moves to the share `share` of the shown run's time, and the first run, which the others
    /// follow, to the same step and phase.
    fn seek_share(&mut self, share: f64) -> Option<Effect> {
        let shown = self.shown.min(self.players.len() - 1);
        self.players[shown].seek_share(share);
        let (lead, others) = self.players.split_at_mut(1);
        if let Some(other) = shown.checked_sub(1) {
            lead[0].sync_to(&others[other]);
        }
        self.pause_then(|_| ())
    }

    /// Moves to the latest event and, unless it is that of a complete recording, follows the run.
    fn last(&mut self) -> Option<Effect> {
        self.pause_then(|player| player.seek(player.timeline().len()));
        // More events of a live run may follow the last rank's end.
        if self.source != EventSource::Recording || self.grows() {
            self.lead_mut().set_motion(Motion::Following);
        }
        None
    }

    fn toggle_pause(&mut self) -> Option<Effect> {
        let paused = self.lead().motion() == Motion::Paused;
        match self.source {
            EventSource::Recording => {
                let follows = self.grows() && self.lead().at_end();
                let onward = if follows { Motion::Following } else { Motion::Playing };
                self.lead_mut().set_motion(if paused { onward } else { Motion::Paused });
                None
            }
            _ if paused || self.held && self.may_hold() => self.resume(),
            // The picture keeps following the run until it stops.
            _ if self.may_hold() => self.hold(),
            _ => self.pause_then(|_| ()),
        }
    }

    fn resume(&mut self) -> Option<Effect> {
        self.lead_mut().set_motion(Motion::Following);
        if !self.held || !self.may_hold() {
            return None;
        }
        self.held = false;
        let control = if self.pace < 1.0 { Control::Slow(self.pace) } else { Control::Resume };
        Some(Effect::Control(control))
    }

    fn release(&mut self) -> Option<Effect> {
        if self.source == EventSource::Recording && !self.grows() {
            self.lead_mut().set_speed(1.0);
            self.lead_mut().set_motion(Motion::Playing);
            return None;
        }
        self.lead_mut().set_motion(Motion::Following);
        if !self.may_hold() {
            return None;
        }
        (self.held, self.pace) = (false, 1.0);
        Some(Effect::Control(Control::Resume))
    }

    fn forward(&mut self, granularity: Boundary) -> Option<Effect> {
        if self.source == EventSource::Recording || !self.lead().at_end() {
            return self.pause_then(|player| player.step_forward(granularity));
        }
        // At the latest event, the run itself advances by one step and the picture follows it.
        self.lead_mut().set_motion(Motion::Following);
        self.held |= self.may_hold();
        self.may_hold().then_some(Effect::Control(Control::Step(granularity)))
    }

    fn change_speed(&mut self, by: isize) -> Option<Effect> {
        let recorded = self.source == EventSource::Recording;
        let fastest = SPEEDS.len() - 1;
        let (current, last) = if recorded { (self.lead().speed(), fastest) } else { (self.pace, REAL_TIME) };
        let index = SPEEDS.iter().position(|&speed| speed >= current * 0.999).unwrap_or(fastest);
        let speed = SPEEDS[index.saturating_add_signed(by).min(last)];
        if recorded {
            self.lead_mut().set_speed(speed);
            return None;
        }
        if !self.may_hold() {
            return None;
        }
        self.pace = speed;
        let control = if speed < 1.0 { Control::Slow(speed) } else { Control::Resume };
        (!self.held).then_some(Effect::Control(control))
    }
}
