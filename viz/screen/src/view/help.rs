//! Boxes over a view: the list of keys, and the question whether to end a live run.

use super::paint::{Anchor, Paint, over};
use crate::fit::fitted;
use crate::input::{ANSWERS, Action, BINDINGS, Binding, View};
use crate::theme::{ACCENT, DIM, bold, ink};
use ratatui::layout::Rect;
use ratatui::style::Color;

/// The width of a column of the list of keys.
const COLUMN: u16 = 73;

/// Draws the list of keys.
pub(super) fn keys(paint: &mut Paint<'_>) {
    let (listed, rows, (width, height)) = layout((paint.width(), paint.height()));
    let mut area = paint.cleared(width, height, Anchor::Middle);
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

/// Returns the rectangle of the list of keys, on a screen of `size` columns and rows.
pub(super) fn area(size: (u16, u16)) -> Rect {
    let (_, _, needed) = layout(size);
    over(size, needed, Anchor::Middle)
}

/// Returns the keys and their descriptions, the rows of the list, and the columns and rows of its
/// box.
fn layout((width, height): (u16, u16)) -> (Vec<(&'static str, &'static str)>, u16, (u16, u16)) {
    let mut keys: Vec<_> = listed().map(|binding| (binding.label, binding.help)).collect();
    let columns = if width >= 2 * COLUMN + 4 { 2 } else { 1 };
    if keys.len() as u16 > columns * height.saturating_sub(2) {
        keys = shorter();
    }
    let rows = (keys.len() as u16).div_ceil(columns);
    (keys, rows, (columns * COLUMN + 2, rows + 2))
}

fn listed() -> impl Iterator<Item = &'static Binding> {
    BINDINGS.iter().filter(|binding| !binding.label.is_empty())
}

/// Returns the rows of the list with a single row for all views.
fn shorter() -> Vec<(&'static str, &'static str)> {
    let row = |binding: &Binding| match binding.action {
        Action::Show(View::Overview) => Some(("1 to 6", "the views")),
        Action::Show(_) => None,
        _ => Some((binding.label, binding.help)),
    };
    listed().filter_map(row).collect()
}

/// Draws the question whether a live run should end or continue.
pub(super) fn question(paint: &mut Paint<'_>) {
    let mut area = paint.cleared(60, ANSWERS.len() as u16 + 2, Anchor::Middle);
    let mut inside = area.card(&[(" the run is not over ", bold(ACCENT))], ink(ACCENT));
    for (y, answer) in (0u16..).zip(ANSWERS) {
        inside.text(1, y, answer.label, bold(Color::Reset));
        let help = fitted(answer.help, inside.width().saturating_sub(6));
        inside.text(6, y, help, ink(DIM));
    }
}
