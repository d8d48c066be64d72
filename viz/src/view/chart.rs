//! The surroundings of an area over time: the scale in bytes at its left, and lines for comparison.

use super::area::Area;
use super::axis::Axis;
use super::paint::{Paint, columns};
use crate::theme::{DIM, FAINT, ink};
use crate::words;
use ratatui::style::Style;

/// The width of the scale.
pub(super) const SCALE: u16 = 9;

/// Draws an area below a row for its heading, with its scale at the left, and the axis at the
/// bottom, below `between` other rows. Returns the area's rectangle.
pub(super) fn draw<'a>(area: &Area, axis: Axis, between: u16, paint: &'a mut Paint<'_>) -> Paint<'a> {
    let height = paint.height().saturating_sub(2 + between);
    scale(area, &mut paint.part(0, 1, SCALE, height + 1));
    axis.draw(paint, SCALE, height + 1 + between);
    let mut inside = paint.part(SCALE, 1, axis.width, height);
    area.draw(&mut inside);
    inside
}

/// Draws round numbers of bytes at the left edge of `paint`. The area covers all rows but the last,
/// which is the baseline.
fn scale(area: &Area, paint: &mut Paint<'_>) {
    let height = paint.height().saturating_sub(1);
    for y in 0..height {
        paint.put(SCALE - 1, y, "│", ink(FAINT));
    }
    let step = words::round_step(area.top as f64 / f64::from((height / 2).clamp(2, 8)));
    paint.right(SCALE - 2, height, "0", ink(DIM));
    paint.put(SCALE - 1, height, "└", ink(FAINT));
    let mut bytes = step;
    while bytes <= area.top as f64 {
        let y = area.row(bytes as u64, height);
        paint.right(SCALE - 2, y, words::round_bytes(bytes as u64), ink(DIM));
        paint.put(SCALE - 1, y, "┤", ink(FAINT));
        bytes += step;
    }
}

/// Draws a dashed line at `bytes`, over empty places only. The longest of `texts` that fits is
/// above it, next to the column where the area first reaches it.
pub(super) fn rule(area: &Area, bytes: u64, texts: &[&str], style: Style, paint: &mut Paint<'_>) {
    let y = area.row(bytes, paint.height());
    for (x, column) in (0u16..).zip(&area.columns) {
        if area.row(column.total(), paint.height()) > y || column.total() == 0 {
            paint.put(x, y, "╌", style);
        }
    }
    // The text leaves room for a mark at the area's peak, which may be in the same row.
    let peak = area.columns.iter().position(|column| column.total() >= bytes).unwrap_or(0) as u16;
    let (row, width) = (y.saturating_sub(u16::from(y > 0)), paint.width());
    let after = |text: &&&str| peak + 2 + columns(text) <= width;
    let before = |text: &&&str| columns(text) < peak;
    if let Some(text) = texts.iter().find(|text| after(text) || before(text)) {
        if after(&text) {
            paint.text(peak + 2, row, text, style);
        } else {
            paint.right(peak - 1, row, text, style);
        }
    }
}
