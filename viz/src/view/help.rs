//! What lies over a view: the list of keys, the end of a run.

use super::paint::{Paint, columns, fitted};
use crate::app::{App, Source};
use crate::input::BINDINGS;
use crate::theme::{ACCENT, ALARM, DIM, GOOD, bold, class_colour, class_glyph, ink};
use crate::words;
use events::{Class, Operation, RankSnapshot};
use ratatui::style::Color;

/// A box in the middle, cleared.
fn middle<'a>(paint: &'a mut Paint<'_>, width: u16, height: u16) -> Paint<'a> {
    let (width, height) = (width.min(paint.width()), height.min(paint.height()));
    let (x, y) = ((paint.width() - width) / 2, (paint.height() - height) / 2);
    let mut part = paint.part(x, y, width, height);
    part.clear();
    part
}

/// The list of keys, from the same table that acts on them.
pub(super) fn keys(paint: &mut Paint<'_>) {
    let half = BINDINGS.len().div_ceil(2) as u16;
    let two = paint.width() >= 136;
    let (width, rows) = if two { (134, half) } else { (72, BINDINGS.len() as u16) };
    let mut area = middle(paint, width, rows + 2);
    let mut inside = area.card(&[(" keys ", bold(ACCENT))], ink(ACCENT));
    for (number, binding) in (0u16..).zip(BINDINGS) {
        let (x, y) = if two { (number / half * 66, number % half) } else { (0, number) };
        inside.right(x + 11, y, binding.label, bold(Color::Reset));
        let room = inside.width().saturating_sub(x + 13).min(if two { 52 } else { 60 });
        inside.text(x + 13, y, fitted(binding.help, room), ink(DIM));
    }
}

/// What a closing run says, if it should be shown.
pub(super) fn closing(app: &App, paint: &mut Paint<'_>) {
    let alone = app.players.len() == 1 && app.source != Source::Recording;
    let wanted = alone && app.at_close() && !app.dismissed;
    let failure = app.player().scene().now.failure.as_ref().filter(|_| !app.dismissed);
    match failure {
        Some((_, message)) => failed(message, paint),
        None if wanted => finished(app, paint),
        None => {}
    }
}

fn failed(message: &str, paint: &mut Paint<'_>) {
    let width = paint.width().saturating_sub(4).min(116);
    let lines = wrapped(message, width.saturating_sub(4));
    let height = lines.len() as u16 + 4;
    let mut area = middle(paint, width, height);
    let mut inside = area.card(&[(" the run has failed ", bold(ALARM))], ink(ALARM));
    for (y, line) in (0u16..).zip(&lines) {
        inside.text(1, y, line, ink(Color::Reset));
    }
    let y = inside.height().saturating_sub(1);
    inside.text(1, y, "q leaves the screen · esc looks at where it happened", ink(DIM));
}

/// Lines of at most `width` columns, broken between words. A line that fits stays as it is, and one of a table is cut.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        if columns(paragraph) <= width {
            lines.push(paragraph.to_string());
            continue;
        }
        if paragraph.trim().contains("  ") {
            lines.push(fitted(paragraph, width));
            continue;
        }
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && columns(&line) + 1 + columns(word) > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
}

fn finished(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = &scene.now.ranks;
    let classes: Vec<Class> = Class::ALL.iter().copied().filter(|&c| peak(ranks, c) > 0).collect();
    let sent =
        |operation: Operation| ranks.iter().map(|r| r.sent.by_operation[operation.index()]).sum::<u64>();
    let operations: Vec<Operation> = Operation::ALL.iter().copied().filter(|&o| sent(o) > 0).collect();
    let rows = classes.len().max(operations.len()) as u16;
    let mut area = middle(paint, 78, rows + 9);
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
    inside.text(3, rows + 3, "together", bold(Color::Reset));
    inside.right(39, rows + 3, words::bytes(total), bold(Color::Reset));
    let all: u64 = operations.iter().map(|&operation| sent(operation)).sum();
    inside.text(45, rows + 3, "together", bold(Color::Reset));
    inside.right(74, rows + 3, words::bytes(all), bold(Color::Reset));
    inside.text(1, rows + 5, "q leaves the screen · esc looks back at the run", ink(DIM));
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
