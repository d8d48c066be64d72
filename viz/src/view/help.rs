//! Boxes over a view: the list of keys, the end of a run.

use super::paint::{Paint, columns, fitted};
use super::progress;
use crate::app::{App, EventSource};
use crate::input::{ANSWERS, Action, BINDINGS, Binding, View};
use crate::player::Scene;
use crate::theme::{ACCENT, ALARM, DIM, GOOD, bold, class_colour, class_glyph, ink};
use crate::{places, words};
use events::{Class, Operation, Place, RankSnapshot, amount};
use ratatui::style::Color;

/// Where a box is drawn.
#[derive(Clone, Copy, PartialEq)]
enum Anchor {
    Middle,
    /// At the bottom, so that the upper part of the view stays visible.
    Bottom,
}

/// Clears a box, centred horizontally, with a margin around it. Returns the box.
fn cleared<'a>(paint: &'a mut Paint<'_>, width: u16, height: u16, at: Anchor) -> Paint<'a> {
    const MARGIN: (u16, u16) = (2, 1);
    let (width, height) = (width.min(paint.width().saturating_sub(2)), height.min(paint.height()));
    let below = paint.height() - height;
    let (x, y) = ((paint.width() - width) / 2, if at == Anchor::Middle { below / 2 } else { below });
    let (left, top) = (x.saturating_sub(MARGIN.0), y.saturating_sub(MARGIN.1));
    paint.part(left, top, x + width + MARGIN.0 - left, y + height + MARGIN.1 - top).clear();
    paint.part(x, y, width, height)
}

/// Draws the list of keys.
pub(super) fn keys(paint: &mut Paint<'_>) {
    const COLUMN: u16 = 73;
    let mut listed: Vec<(&str, &str)> = listed().map(|binding| (binding.label, binding.help)).collect();
    let columns = if paint.width() >= 2 * COLUMN + 4 { 2 } else { 1 };
    if listed.len() as u16 > columns * paint.height().saturating_sub(2) {
        listed = shorter();
    }
    let rows = (listed.len() as u16).div_ceil(columns);
    let mut area = cleared(paint, columns * COLUMN + 2, rows + 2, Anchor::Middle);
    let mut inside = area.card(&[(" keys ", bold(ACCENT))], ink(ACCENT));
    for (number, (label, help)) in (0u16..).zip(listed) {
        let (x, y) = (number / rows * COLUMN, number % rows);
        inside.right(x + 14, y, label, bold(Color::Reset));
        let room = inside.width().saturating_sub(x + 16);
        inside.text(x + 16, y, fitted(help, room), ink(DIM));
    }
}

fn listed() -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(|binding| !binding.label.is_empty())
}

/// Returns the rows of the list with one for all views.
fn shorter() -> Vec<(&'static str, &'static str)> {
    let row = |binding: &Binding| match binding.action {
        Action::Show(View::Overview) => Some(("1 to 6", "the views")),
        Action::Show(_) => None,
        _ => Some((binding.label, binding.help)),
    };
    listed().filter_map(row).collect()
}

/// Draws the question whether a live run ends or goes on.
pub(super) fn question(paint: &mut Paint<'_>) {
    let mut area = cleared(paint, 60, ANSWERS.len() as u16 + 2, Anchor::Middle);
    let mut inside = area.card(&[(" the run is not over ", bold(ACCENT))], ink(ACCENT));
    for (y, answer) in (0u16..).zip(ANSWERS) {
        inside.text(1, y, answer.label, bold(Color::Reset));
        inside.text(6, y, answer.help, ink(DIM));
    }
}

/// Draws the result of a run that has ended, unless the box was dismissed.
pub(super) fn closing(app: &App, paint: &mut Paint<'_>) {
    let alone = app.players.len() == 1 && app.source != EventSource::Recording;
    let wanted = alone && app.at_close() && !app.dismissed;
    let failure = app.player().scene().now.failure.as_ref().filter(|_| !app.dismissed);
    match failure {
        Some((_, message)) => failed(message, app.source == EventSource::Live, paint),
        None if wanted => finished(app, paint),
        None => {}
    }
}

/// Draws the run's error. `printed` tells whether the program prints it again after the screen is
/// left.
fn failed(message: &str, printed: bool, paint: &mut Paint<'_>) {
    let width = paint.width().saturating_sub(2).min(118);
    let lines =
        shortened(message, width.saturating_sub(4), usize::from(paint.height().saturating_sub(2)), printed);
    let mut area = cleared(paint, width, lines.len() as u16 + 2, Anchor::Bottom);
    let height = area.height();
    let mut inside = area.card(&[(" the run has failed ", bold(ALARM))], ink(ALARM));
    for (y, line) in (0u16..).zip(&lines) {
        inside.text(1, y, line, ink(Color::Reset));
    }
    area.text(2, height.saturating_sub(1), " q leaves the screen · esc shows where it happened ", ink(DIM));
}

/// Wraps `message` into at most `rows` lines. If it is longer, drops blank lines, then the end.
fn shortened(message: &str, width: u16, rows: usize, printed: bool) -> Vec<String> {
    let mut lines = wrapped(message, width);
    if lines.len() > rows {
        lines.retain(|line| !line.is_empty());
    }
    if lines.len() > rows {
        lines.truncate(rows.saturating_sub(1));
        lines.push(if printed { "… the rest is printed when the screen is left" } else { "…" }.into());
    }
    lines
}

/// Wraps `text` between words into lines of at most `width` columns, keeping the indent. A line
/// that ends with a comma is joined with the next. A line of a table loses the columns that do not
/// fit.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut list = String::new();
    for line in text.lines() {
        let joined = if list.is_empty() { line.to_string() } else { format!("{list} {}", line.trim_start()) };
        if joined.ends_with(',') {
            list = joined;
            continue;
        }
        list.clear();
        let paragraph = joined.as_str();
        if columns(paragraph) <= width {
            lines.push(paragraph.to_string());
        } else if paragraph.trim().contains("  ") {
            let kept = fitted(paragraph, width);
            lines.push(kept.rsplit_once("  ").map_or(kept.as_str(), |(whole, _)| whole.trim_end()).into());
        } else {
            let indent = &paragraph[..paragraph.len() - paragraph.trim_start().len()];
            let broken = events::say::wrapped(paragraph.trim_start(), width.into(), indent, indent);
            lines.extend(broken.lines().map(String::from));
        }
    }
    lines
}

fn finished(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = &scene.now.ranks;
    let classes: Vec<Class> = Class::ALL.iter().copied().filter(|&c| peak(ranks, c) > 0).collect();
    let sent = |operation: Operation| {
        amount::total(ranks.iter().map(|rank| rank.sent.by_operation[operation.index()]))
    };
    let operations: Vec<Operation> = Operation::ALL.iter().copied().filter(|&o| sent(o) > 0).collect();
    let rows = classes.len().max(operations.len()) as u16;
    let verdict = progress::verdict(scene);
    let beside = peaks_beside(scene);
    let more = u16::from(!beside.is_empty());
    let mut area = cleared(paint, 78, rows + more + 6 + 2 * u16::from(verdict.is_some()), Anchor::Middle);
    let height = area.height();
    let title = format!(" {} is done ", scene.header.stage);
    let mut inside = area.card(&[(&title, bold(GOOD))], ink(GOOD));
    inside.text(1, 0, outline(app), ink(Color::Reset));
    inside.heading(1, 2, "Peak of any rank");
    inside.heading(45, 2, "Sent by all ranks");
    for (y, &class) in (3u16..).zip(&classes) {
        inside.text(1, y, class_glyph(class), ink(class_colour(class)));
        inside.text(3, y, class.label(), ink(Color::Reset));
        inside.right(39, y, words::bytes(peak(ranks, class)), bold(Color::Reset));
    }
    for (y, &operation) in (3u16..).zip(&operations) {
        inside.text(45, y, operation.label(), ink(Color::Reset));
        inside.right(74, y, words::bytes(sent(operation)), bold(Color::Reset));
    }
    let total = ranks.iter().map(|rank| rank.total_peak).max().unwrap_or(0);
    let all = amount::total(operations.iter().map(|&operation| sent(operation)));
    for (x, end, bytes) in [(3, 39, total), (45, 74, all)] {
        inside.text(x, rows + 3, "total", bold(Color::Reset));
        inside.right(end, rows + 3, words::bytes(bytes), bold(Color::Reset));
    }
    if !beside.is_empty() {
        let moved = amount::total(ranks.iter().map(|rank| rank.transfers.moved.total()));
        inside.text(3, rows + 4, beside.join(", "), ink(Color::Reset));
        inside.text(45, rows + 4, "between places", ink(Color::Reset));
        inside.right(74, rows + 4, words::bytes(moved), bold(Color::Reset));
    }
    if let Some((text, colour)) = verdict {
        inside.text(1, rows + more + 5, text, ink(colour));
    }
    area.text(2, height.saturating_sub(1), " q leaves the screen · esc looks back at the run ", ink(DIM));
}

/// Returns the peak of any rank in each place beside the devices.
fn peaks_beside(scene: &Scene) -> Vec<String> {
    let peak = |&place: &Place| {
        let peak = scene.now.ranks.iter().map(|rank| rank.peak_in(place)).max().unwrap_or(0);
        format!("{} {}", words::bytes(peak), places::within(place))
    };
    places::used(&scene.header).iter().map(peak).collect()
}

fn peak(ranks: &[RankSnapshot], class: Class) -> u64 {
    ranks.iter().map(|rank| rank.peak_of(class)).max().unwrap_or(0)
}

fn outline(app: &App) -> String {
    let history = app.player().timeline().history();
    let steps = history.steps.len();
    let loss = history.steps.last().map_or(String::new(), |record| format!(" · loss {:.4}", record.loss));
    let evaluation = history.evaluations.last();
    let evaluation = evaluation.map_or(String::new(), |(_, loss)| format!(" · validation {loss:.4}"));
    let dropped = app.player().timeline().latest().dropped;
    let dropped = if dropped > 0 { format!(" · {dropped} events dropped") } else { String::new() };
    format!("{} steps{loss}{evaluation}{dropped}", words::grouped(steps as u64))
}
