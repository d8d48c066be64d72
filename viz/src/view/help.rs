//! Boxes over a view: the list of keys, and the question whether a live run ends.

use super::paint::{Anchor, Paint, fitted};
use crate::input::{ANSWERS, Action, BINDINGS, Binding, View};
use crate::theme::{ACCENT, DIM, bold, ink};
use ratatui::style::Color;

pub(super) fn keys(paint: &mut Paint<'_>) {
    const COLUMN: u16 = 73;
    let mut listed: Vec<(&str, &str)> = listed().map(|binding| (binding.label, binding.help)).collect();
    let columns = if paint.width() >= 2 * COLUMN + 4 { 2 } else { 1 };
    if listed.len() as u16 > columns * paint.height().saturating_sub(2) {
        listed = shorter();
    }
    let rows = (listed.len() as u16).div_ceil(columns);
    let mut area = paint.cleared(columns * COLUMN + 2, rows + 2, Anchor::Middle);
    let (bottom, shown) = (area.height().saturating_sub(1), area.height().saturating_sub(2));
    let mut inside = area.card(&[(" keys ", bold(ACCENT))], ink(ACCENT));
    for (number, (label, help)) in (0u16..).zip(listed) {
        let (x, y) = (number / rows * COLUMN, number % rows);
        inside.right(x + 14, y, label, bold(Color::Reset));
        let room = inside.width().saturating_sub(x + 16);
        inside.text(x + 16, y, fitted(help, room), ink(DIM));
    }
    if shown < rows {
        area.text(2, bottom, format!(" {} more on a taller screen ", rows - shown), ink(DIM));
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
    let mut area = paint.cleared(60, ANSWERS.len() as u16 + 2, Anchor::Middle);
    let mut inside = area.card(&[(" the run is not over ", bold(ACCENT))], ink(ACCENT));
    for (y, answer) in (0u16..).zip(ANSWERS) {
        inside.text(1, y, answer.label, bold(Color::Reset));
        let help = fitted(answer.help, inside.width().saturating_sub(6));
        inside.text(6, y, help, ink(DIM));
    }
}
