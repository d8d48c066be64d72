//! The time axis that the memory and streams views share.

use super::paint::Paint;
use crate::player::{Player, Scene};
use crate::theme::{DIM, FAINT, ink};
use crate::words;

/// A range of a run's time over a number of columns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Axis {
    pub from: u64,
    /// Time at the right edge; later than `from`.
    pub to: u64,
    /// The time shown.
    pub now: u64,
    pub width: u16,
}

impl Axis {
    /// Returns an axis as long as `steps` steps take, or as the current step if that takes longer:
    /// a rank may hang in it. It ends at the time shown, or later while the run is shorter than the
    /// axis.
    pub(super) fn last_steps(player: &Player, steps: u64, width: u16) -> Self {
        let (scene, now) = (player.scene(), player.clock());
        let known = &scene.window.steps;
        let finished = scene.now.failure.is_none() && scene.now.is_over();
        let end = if finished { now.min(latest(scene)) } else { now };
        let first = known.front().map_or_else(|| beginning(scene), |step| step.from);
        let finished = known.iter().rev().find_map(|step| step.to.map(|to| to.saturating_sub(step.from)));
        let step = finished.unwrap_or_else(|| end.saturating_sub(first).max(1) / steps.max(1));
        let current = known.back().filter(|step| step.to.is_none());
        let current = current.map_or(0, |step| end.saturating_sub(step.from));
        let length = (step * steps).max(current).max(1000);
        let to = end.max(first + length);
        Axis { from: to - length, to, now, width }
    }

    pub(super) fn per_column(&self) -> f64 {
        (self.to - self.from) as f64 / f64::from(self.width.max(1))
    }

    /// Returns the column of a time: negative before the axis, above `width` after it.
    pub(super) fn column(&self, at: u64) -> f64 {
        (at as f64 - self.from as f64) / self.per_column()
    }

    /// Returns a value for every column: up to the time shown, `value` at the column's end; after
    /// it, the default.
    pub(super) fn fill<T: Copy + Default>(&self, mut value: impl FnMut(f64) -> T) -> Vec<T> {
        let mut columns = vec![T::default(); usize::from(self.width)];
        let last = self.column(self.now).ceil().clamp(0.0, f64::from(self.width)) as usize;
        for (number, column) in columns.iter_mut().enumerate().take(last) {
            *column = value(self.from as f64 + self.per_column() * (number + 1) as f64);
        }
        columns
    }

    /// Draws the scale, with round times from the left edge.
    pub(super) fn draw(&self, paint: &mut Paint<'_>, x: u16, y: u16) {
        paint.run(x, y, self.width, "─", ink(FAINT));
        let step = words::round_step(self.per_column() * 10.0);
        let mut time = 0.0;
        while time / self.per_column() + 8.0 < f64::from(self.width) {
            let column = x + (time / self.per_column()).round() as u16;
            paint.put(column, y, "┬", ink(FAINT));
            let label = if time == 0.0 { "0".into() } else { words::round_time(time) };
            paint.text(column + 1, y, label, ink(DIM));
            time += step;
        }
    }
}

fn beginning(scene: &Scene) -> u64 {
    scene.window.lanes.first().and_then(|lane| lane.on_device().front()).map_or(0, |sample| sample.at)
}

/// Returns the time of the latest change of a rank's memory. Events after the last step are not
/// shown.
fn latest(scene: &Scene) -> u64 {
    let samples = scene.window.lanes.iter().filter_map(|lane| lane.on_device().back());
    samples.map(|sample| sample.at).max().unwrap_or(u64::MAX)
}
