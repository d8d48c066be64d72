//! Moves the position: seeks, steps, and follows another run.

use super::{Player, Scene};
use crate::timeline::Mark;
use events::{Boundary, Event, Operation, Pass, Progress, What};

/// An exceptional event that a person may look for in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A step skipped because gradients overflowed; the time at which it ended.
    Skipped(u64),
    /// The failure that ended the run.
    Failure,
}

impl Player {
    /// Moves to just before event `position`. The window then holds the two steps before it.
    pub fn seek(&mut self, position: u64) {
        let position = position.clamp(self.timeline.beginning(), self.timeline.len());
        let known = self.position() >= self.timeline.beginning();
        let near = known && position.checked_sub(self.position()).is_some_and(|ahead| ahead < 10_000);
        if !near {
            let start = self.timeline.keyframe(self.window_start(position)).clone();
            self.scene = Scene::new(self.timeline.header.clone(), start);
        }
        self.advance_to(position);
        self.clock = self.scene.now.at as f64;
    }

    /// Returns where the window of a scene at `position` begins: two steps before the current one.
    fn window_start(&self, position: u64) -> u64 {
        let marks = &self.timeline.marks;
        let before = marks.partition_point(|mark| mark.position < position);
        let steps = marks.range(..before).rev().filter(|mark| mark.pass.is_none());
        steps.take(3).last().map_or(self.timeline.beginning(), |mark| mark.position)
    }

    /// Moves to the share `share` of the run's time.
    pub fn seek_share(&mut self, share: f64) {
        let (first, last) = self.time_range();
        self.seek_time(first as f64 + share.clamp(0.0, 1.0) * (last - first) as f64);
    }

    /// Returns the times of the oldest event kept and of the latest.
    pub fn time_range(&self) -> (u64, u64) {
        let start = self.timeline.keyframe(self.timeline.beginning());
        (start.at, self.timeline.state.snapshot.at.max(start.at + 1))
    }

    /// Returns the first step that has begun, of those kept.
    pub fn first_step(&self) -> Option<u32> {
        self.timeline.marks.front().map(|mark| mark.step)
    }

    /// Returns `step` if the run has it, else an error that names the steps it has.
    ///
    /// # Errors
    /// A sentence for the person who asked for the step.
    pub fn check_step(&self, step: u64) -> Result<u32, String> {
        let marks = &self.timeline.marks;
        let (Some(first), Some(last)) = (marks.front(), marks.back()) else {
            return Err(format!("there is no step {step}: no step has begun"));
        };
        let from = marks.partition_point(|mark| u64::from(mark.step) < step);
        if let Some(mark) = marks.get(from).filter(|mark| u64::from(mark.step) == step) {
            return Ok(mark.step);
        }
        let kept = if self.timeline.is_recorded() { "recorded" } else { "kept" };
        Err(format!("there is no step {step}: steps {} to {} are {kept}", first.step, last.step))
    }

    /// Moves to the beginning of `step`, or of the next step if there is no such step.
    pub fn seek_step(&mut self, step: u32) {
        let marks = &self.timeline.marks;
        let after = marks.partition_point(|mark| mark.step < step);
        let position = marks.get(after).map_or(self.timeline.len(), |mark| mark.position);
        self.seek(position + 1);
    }

    /// Moves into `step`, to the share `fraction` of its time.
    pub fn seek_into_step(&mut self, step: u32, fraction: f64) {
        self.seek_step(step);
        let from = self.scene.now.at as f64;
        let marks = &self.timeline.marks;
        let next = marks.iter().find(|mark| mark.step > step && mark.pass.is_none());
        let to = next.map_or(self.timeline.state.snapshot.at, |mark| mark.at) as f64;
        let target = from + (to - from) * fraction.clamp(0.0, 1.0);
        self.play_until(target);
    }

    /// Returns the end times of steps that were skipped because gradients overflowed.
    pub fn skips(&self) -> impl Iterator<Item = u64> {
        let steps = &self.timeline.state.history.steps;
        let before = std::iter::once(0).chain(steps.iter().map(|record| record.skipped));
        let skipped = steps.iter().zip(before).filter(|(record, before)| record.skipped > *before);
        skipped.map(|(record, _)| record.at)
    }

    /// Returns the next skipped step or, after the last one, the failure of the run; `None` if
    /// there is neither.
    pub fn next_problem(&self) -> Option<Problem> {
        let skipped = self.skips().find(|at| *at > self.scene.now.at).map(Problem::Skipped);
        let failed = self.timeline.state.snapshot.failure.is_some() && !self.at_end();
        skipped.or_else(|| failed.then_some(Problem::Failure))
    }

    /// Moves to the event that reports the next skipped step, or else to the failure of the run.
    /// Does nothing if there is neither.
    pub fn seek_problem(&mut self) {
        match self.next_problem() {
            Some(Problem::Skipped(at)) => {
                self.seek_time(at as f64);
                // Rank 0 reports a skipped step with its loss scale, before it begins another step.
                let told = |what: &What| matches!(what, What::LossScale { .. } | What::StepStarted { .. });
                self.advance_until(|event| event.rank == 0 && told(&event.what));
            }
            Some(Problem::Failure) => self.seek(self.timeline.len()),
            None => {}
        }
    }

    /// Advances until `ends` is true of the event that was applied last.
    fn advance_until(&mut self, ends: impl Fn(&Event) -> bool) {
        while let Some(event) = self.next_event() {
            self.take(&event);
            if ends(&event) {
                break;
            }
        }
        self.clock = self.scene.now.at as f64;
    }

    /// Moves to the time `target` of the run.
    fn seek_time(&mut self, target: f64) {
        let mark = self.timeline.marks.partition_point(|mark| mark.at as f64 <= target);
        self.seek(self.before_mark(mark));
        self.play_until(target);
    }

    /// Returns the position of the mark before the one of this index, or the oldest position.
    fn before_mark(&self, index: usize) -> u64 {
        let mark = self.timeline.marks.get(index.wrapping_sub(1));
        mark.map_or(self.timeline.beginning(), |mark| mark.position)
    }

    pub(super) fn play_until(&mut self, target: f64) {
        while let Some(event) = self.next_event() {
            if event.at as f64 > target {
                break;
            }
            self.take(&event);
        }
        self.clock = target.max(self.scene.now.at as f64);
    }

    /// Advances to the next event, collective, pass over a unit or step.
    pub fn step_forward(&mut self, granularity: Boundary) {
        self.advance_until(|event| ends_step(event, granularity));
    }

    /// Moves back to the previous event, collective, pass over a unit or step.
    pub fn step_back(&mut self, granularity: Boundary) {
        let mut position = self.position().saturating_sub(1);
        while position > self.timeline.beginning() {
            let (first, events) = self.timeline.events_at(position - 1);
            let upto = ((position - first) as usize).min(events.len());
            let found = events[..upto].iter().rposition(|event| ends_step(event, granularity));
            if let Some(found) = found {
                return self.seek(first + found as u64 + 1);
            }
            position = first;
        }
        self.seek(position);
    }

    /// Returns the phase of the latest mark: its place in the order of steps, passes and units.
    pub fn latest_phase(&self) -> impl Ord + use<> {
        let units = self.timeline.header.units.len() as u16;
        self.timeline.marks.back().map(|mark| phase(mark, units))
    }

    /// Moves to the same step, pass and unit as `other`, and equally far into it. If `other` is
    /// right after its beginning, so is this player: ranks of all stages hold the same activations
    /// there. If this run has no such pass, moves to where that pass would begin: to the end of a
    /// run that ended before it.
    pub fn sync_to(&mut self, other: &Player) {
        let units = self.timeline.header.units.len() as u16;
        let theirs = &other.timeline.marks;
        let index = theirs.partition_point(|mark| mark.position < other.position());
        let Some(mark) = index.checked_sub(1).and_then(|index| theirs.get(index)) else {
            return self.seek(self.timeline.beginning());
        };
        let end = theirs.get(index).map_or(other.timeline.len(), |mark| mark.position);
        // A mark's own event begins the pass, so only the events after it count.
        let (gone, all) = (other.position() - mark.position - 1, end - mark.position - 1);
        let share = gone as f64 / all.max(1) as f64;
        let key = phase(mark, other.timeline.header.units.len() as u16);
        let ours = &self.timeline.marks;
        let index = ours.partition_point(|mark| phase(mark, units) <= key);
        let end = ours.get(index).map_or(self.timeline.len(), |mark| mark.position);
        let found = index.checked_sub(1).and_then(|index| ours.get(index));
        let Some(mark) = found.filter(|mark| phase(mark, units) == key) else {
            return self.seek(end);
        };
        let gone = (end - mark.position).saturating_sub(1) as f64 * share;
        self.seek(mark.position + 1 + gone.ceil() as u64);
    }
}

/// Returns a mark's place in the order of steps, passes and units.
fn phase(mark: &Mark, units: u16) -> (u32, u8, u16, u8, u16) {
    match mark.pass {
        None => (mark.step, 0, 0, 0, 0),
        Some((Pass::Forward, unit, micro)) => (mark.step, 1, micro, 0, unit),
        Some((Pass::Recompute | Pass::Backward | Pass::Add, unit, micro)) => {
            (mark.step, 1, micro, 1, units.saturating_sub(unit))
        }
        Some((Pass::Step, unit, _)) => (mark.step, 2, 0, 0, unit),
        Some((Pass::Evaluate, unit, batch)) => (mark.step, 3, batch, 0, unit),
    }
}

/// True if a step of this granularity ends after `event`. Where all ranks emit the same event, rank
/// 0's counts.
fn ends_step(event: &Event, granularity: Boundary) -> bool {
    match (granularity, &event.what) {
        (Boundary::Event, _) => true,
        (Boundary::Collective, What::Collective(collective)) => {
            let data = !matches!(collective.operation, Operation::Scalars | Operation::Barrier);
            event.rank == 0 && data && collective.progress == Progress::Started
        }
        (Boundary::Unit, What::PassStarted { .. }) => event.rank == 0,
        (_, What::StepStarted { .. }) => event.rank == 0,
        _ => false,
    }
}
