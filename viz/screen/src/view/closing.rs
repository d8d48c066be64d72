//! The box over a run that has ended: its result, or its error.

use super::paint::{Anchor, Paint};
use super::progress;
use crate::app::App;
use crate::fit::{columns, fitted, fitting_or_cut};
use crate::player::Scene;
use crate::theme::{ALARM, GOOD, WAITING, bold, class_colour, class_glyph, class_name, ink};
use crate::timeline::Ending;
use crate::{failure, places, words};
use events::{Class, Operation, Place, amount};
use ratatui::style::Color;

/// Draws the result of a run that has ended, unless the box was dismissed.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    match failure::shown(&app.player().scene().now) {
        _ if !app.shows_ending() => {}
        Some(failure) => failed(failure.message, paint),
        None => finished(app, paint),
    }
}

/// The columns of the result.
struct ResultColumns {
    /// Where the bytes of the peaks end.
    peaks: u16,
    /// Where the operations begin and their bytes end; `None` if there is no room for them.
    sent: Option<(u16, u16)>,
    /// The rows of classes and operations, above the totals.
    rows: u16,
    /// Returns the name of a class.
    name: fn(Class) -> &'static str,
}

impl ResultColumns {
    /// Returns the columns of a box whose inside has `width` columns.
    fn new(width: u16, rows: u16) -> Self {
        match width {
            75.. => ResultColumns { peaks: 39, sent: Some((45, 74)), rows, name: Class::label },
            54.. => ResultColumns { peaks: 25, sent: Some((29, 53)), rows, name: class_name },
            _ => ResultColumns { peaks: width.saturating_sub(2).min(39), sent: None, rows, name: class_name },
        }
    }
}

fn finished(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let classes = Class::ALL.into_iter().map(|class| (class, scene.now.most(|rank| rank.peak_of(class))));
    let classes: Vec<(Class, u64)> = classes.filter(|(_, peak)| *peak > 0).collect();
    let operations = Operation::ALL
        .into_iter()
        .map(|operation| (operation, scene.now.sum(|rank| rank.sent.by_operation[operation.index()])));
    let operations: Vec<(Operation, u64)> = operations.filter(|(_, sent)| *sent > 0).collect();
    let rows = classes.len().max(operations.len()) as u16;
    let verdict = progress::verdict(scene);
    let more = u16::from(!places::used(&scene.header).is_empty());
    let mut area = paint.cleared(78, rows + more + 6 + 2 * u16::from(verdict.is_some()), Anchor::Middle);
    let (title, colour) = title(app);
    let mut inside = area.card(&[(&title, bold(colour))], ink(colour));
    let width = inside.width();
    let columns = ResultColumns::new(width, rows);
    inside.text(1, 0, fitted(&outline(app), width.saturating_sub(2)), ink(Color::Reset));
    peaks(scene, &classes, &columns, &mut inside.part(0, 2, width, rows + 3));
    traffic(scene, &operations, &columns, &mut inside.part(0, 2, width, rows + 3));
    if let Some((forms, colour)) = verdict {
        let text = fitting_or_cut(&forms, width.saturating_sub(2));
        inside.text(1, rows + more + 5, text, ink(colour));
    }
    let keys = [" q leaves the screen · esc looks back at the run ", " q leaves · esc looks back "];
    area.lower_edge(&keys);
}

/// Returns the box's title, which says how the run ended, and its colour.
fn title(app: &App) -> (String, Color) {
    let stage = &app.player().scene().header.stage;
    match app.player().timeline().ending() {
        Some(Ending::Lost) => (format!(" the connection to {stage} is lost "), ALARM),
        Some(Ending::Early) => (format!(" {stage} was ended early "), WAITING),
        _ => (format!(" {stage} is done "), GOOD),
    }
}

/// Draws the highest peak of any rank by class, the total below these, and the peaks in main memory
/// and on disk.
fn peaks(scene: &Scene, classes: &[(Class, u64)], columns: &ResultColumns, paint: &mut Paint<'_>) {
    let (end, rows) = (columns.peaks, columns.rows);
    paint.heading(1, 0, "Peak of any rank");
    for (y, &(class, peak)) in (1u16..).zip(classes) {
        paint.text(1, y, class_glyph(class), ink(class_colour(class)));
        paint.text(3, y, (columns.name)(class), ink(Color::Reset));
        paint.right(end, y, words::bytes(peak), bold(Color::Reset));
    }
    let total = scene.now.most(|rank| rank.total_peak);
    paint.text(3, rows + 1, "total", bold(Color::Reset));
    paint.right(end, rows + 1, words::bytes(total), bold(Color::Reset));
    let room = columns.sent.map_or(paint.width(), |(start, _)| start).saturating_sub(5);
    paint.text(3, rows + 2, fitted(&peaks_beside(scene).join(", "), room), ink(Color::Reset));
}

/// Draws the bytes that all ranks have sent by operation, the total below these, and the bytes
/// moved between places.
fn traffic(scene: &Scene, operations: &[(Operation, u64)], columns: &ResultColumns, paint: &mut Paint<'_>) {
    let Some((start, end)) = columns.sent else { return };
    paint.heading(start, 0, "Sent by all ranks");
    let mut row = |y: u16, label: &str, bytes: u64, style| {
        paint.text(start, y, label, style);
        paint.right(end, y, words::bytes(bytes), bold(Color::Reset));
    };
    for (y, &(operation, sent)) in (1u16..).zip(operations) {
        row(y, operation.label(), sent, ink(Color::Reset));
    }
    let all = amount::total(operations.iter().map(|(_, sent)| *sent));
    row(columns.rows + 1, "total", all, bold(Color::Reset));
    if !places::used(&scene.header).is_empty() {
        let moved = scene.now.sum(|rank| rank.transfers.moved.total());
        row(columns.rows + 2, "between places", moved, ink(Color::Reset));
    }
}

/// Returns the highest peak of any rank in main memory and on disk.
fn peaks_beside(scene: &Scene) -> Vec<String> {
    let peak = |&place: &Place| {
        let peak = scene.now.most(|rank| rank.peak_in(place));
        format!("{} {}", words::bytes(peak), places::within(place))
    };
    places::used(&scene.header).iter().map(peak).collect()
}

fn outline(app: &App) -> String {
    let (timeline, history) = (app.player().timeline(), &app.player().timeline().state.history);
    let learned = history.steps.last().filter(|_| !timeline.header.is_predicted());
    let loss = learned.map_or(String::new(), |record| format!(" · loss {:.4}", record.loss));
    let evaluation = history.evaluations.last();
    let evaluation = evaluation.map_or(String::new(), |(_, loss)| format!(" · validation {loss:.4}"));
    let dropped = timeline.state.dropped;
    let dropped = if dropped > 0 { format!(" · {dropped} events dropped") } else { String::new() };
    let steps = match (timeline.ending(), timeline.steps_done()) {
        (Some(Ending::Lost | Ending::Early), done) => {
            let [done, all] =
                [done.unwrap_or(0), timeline.header.steps].map(|steps| words::grouped(steps.into()));
            format!("{done} of {all}")
        }
        _ => words::grouped(history.finished()),
    };
    format!("{steps} steps{loss}{evaluation}{dropped}")
}

/// Draws the run's error, which the program prints again after the screen is left.
fn failed(message: &str, paint: &mut Paint<'_>) {
    let width = paint.width().saturating_sub(2).min(118);
    let lines = shortened(message, width.saturating_sub(4), usize::from(paint.height().saturating_sub(2)));
    let mut area = paint.cleared(width, lines.len() as u16 + 2, Anchor::Bottom);
    let mut inside = area.card(&[(" the run has failed ", bold(ALARM))], ink(ALARM));
    for (y, line) in (0u16..).zip(&lines) {
        inside.text(1, y, line, ink(Color::Reset));
    }
    let keys = [" q leaves the screen · esc shows where it happened ", " q leaves · esc shows where "];
    area.lower_edge(&keys);
}

/// Wraps `message` into at most `rows` lines. If it is longer, drops blank lines, then the end.
fn shortened(message: &str, width: u16, rows: usize) -> Vec<String> {
    let mut lines = wrapped(message, width);
    if lines.len() > rows {
        lines.retain(|line| !line.is_empty());
    }
    if lines.len() > rows {
        lines.truncate(rows.saturating_sub(1));
        lines.push(fitted("… the rest is printed when the screen is left", width));
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
