//! The box with the error of a run that has failed.

use super::paint::{Paint, columns, fitted};
use super::popup::{Anchor, cleared, lower_edge};
use crate::theme::{ALARM, bold, ink};
use ratatui::style::Color;

/// Draws the run's error. `printed` tells whether the program prints it again after the screen is
/// left.
pub(super) fn draw(message: &str, printed: bool, paint: &mut Paint<'_>) {
    let width = paint.width().saturating_sub(2).min(118);
    let lines =
        shortened(message, width.saturating_sub(4), usize::from(paint.height().saturating_sub(2)), printed);
    let mut area = cleared(paint, width, lines.len() as u16 + 2, Anchor::Bottom);
    let mut inside = area.card(&[(" the run has failed ", bold(ALARM))], ink(ALARM));
    for (y, line) in (0u16..).zip(&lines) {
        inside.text(1, y, line, ink(Color::Reset));
    }
    let keys = [" q leaves the screen · esc shows where it happened ", " q leaves · esc shows where "];
    lower_edge(&mut area, &keys);
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
