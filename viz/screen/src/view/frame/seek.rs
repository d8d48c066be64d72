//! The seek bar: the position in a recording, or the share of its steps that a run has done.

use crate::app::{App, EventSource};
use crate::player::Player;
use crate::theme::{self, ACCENT, DIM, FAINT, bold, ink};
use crate::view::paint::Paint;
use crate::words;

/// Returns the first column of the bar and its width, on a screen of `width` columns.
fn place(width: u16) -> (u16, u16) {
    (1, width.saturating_sub(28))
}

/// Returns the share of the run's time at `column`; `None` outside the bar.
pub(super) fn clicked(width: u16, column: u16) -> Option<f64> {
    let (start, width) = place(width);
    let inside = column.checked_sub(start).filter(|offset| *offset < width)?;
    Some(f64::from(inside) / f64::from(width.max(2) - 1))
}

/// Draws the bar, and next to it the number of events and the time.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let (start, width) = place(paint.width());
    let player = app.player();
    let share = match app.source {
        EventSource::Recording => share_at(player, player.clock()),
        _ => live_share(player),
    };
    let column = |share: f64| (share.clamp(0.0, 1.0) * f64::from(width.saturating_sub(1))).round() as u16;
    let head = column(share);
    paint.run(start, 0, width, "─", ink(FAINT));
    let marks = |times: Vec<u64>| times.into_iter().map(|at| start + column(share_at(player, at)));
    if app.source == EventSource::Recording {
        marks(steps(player, width)).for_each(|x| paint.put(x, 0, "┴", ink(FAINT)));
    }
    paint.run(start, 0, head, "━", ink(ACCENT));
    if app.source == EventSource::Recording {
        marks(player.skips().collect()).for_each(|x| paint.put(x, 0, "×", bold(theme::WAITING)));
    }
    paint.put(start + head, 0, "●", bold(ACCENT));
    let time = words::time(player.clock());
    let right = paint.width().saturating_sub(1);
    let event = format!("event {}", words::grouped(player.position()));
    paint.right(right, 0, format!("{event} · {time}"), ink(DIM));
}

/// Returns the share of the run's time that has passed at the time `at`.
fn share_at(player: &Player, at: u64) -> f64 {
    let (first, last) = player.time_range();
    (at.saturating_sub(first)) as f64 / (last - first) as f64
}

/// Returns the times at which steps begin, unless they are too close to tell apart.
fn steps(player: &Player, width: u16) -> Vec<u64> {
    let spacing = f64::from(width) / f64::from(player.scene().header.steps.max(1));
    let steps = player.timeline().marks.iter().filter(|mark| mark.pass.is_none());
    steps.filter(|_| spacing >= 3.0).map(|mark| mark.at).collect()
}

/// Returns the share of planned steps that are done.
fn live_share(player: &Player) -> f64 {
    let done = player.steps_done().last().map_or(0.0, |record| f64::from(record.step) + 1.0);
    done / f64::from(player.scene().header.steps.max(1))
}
