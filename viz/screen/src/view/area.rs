//! A stacked area over time, with its scale in bytes and lines for comparison. Its resolution is an
//! eighth of a row.

use super::axis::Axis;
use super::bar::{Mix, eighths, ends};
use super::paint::Paint;
use crate::fit::columns;
use crate::player::Player;
use crate::theme::{DIM, FAINT, class_colour, class_glyph, ink, operation_colour, operation_glyph};
use crate::window::{CollectiveSpan, MemorySample, Window};
use crate::words;
use events::{Class, Operation, amount};
use ratatui::style::{Color, Style};
use std::collections::VecDeque;
use std::ops::Range;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// The width of the scale.
pub(super) const SCALE: u16 = 9;
/// Maximum number of layers: enough for the classes and for the operations.
const LAYERS: usize = 8;
const _: () = assert!(Class::ALL.len() <= LAYERS && Operation::ALL.len() <= LAYERS);

/// One column of an area: bytes per layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Column {
    parts: [u64; LAYERS],
}

impl Column {
    fn of(parts: &[u64]) -> Self {
        let mut column = Column::default();
        column.parts[..parts.len()].copy_from_slice(parts);
        column
    }

    pub(super) fn total(&self) -> u64 {
        amount::total(self.parts.iter().copied())
    }

    /// Returns a rank's memory in one place over `axis` by class. A column shows the
    /// moment of its highest total, so that no peak is lost.
    pub(super) fn memory(samples: &VecDeque<MemorySample>, axis: Axis) -> Vec<Column> {
        let mut next = samples.partition_point(|sample| sample.at < axis.from);
        let mut current =
            next.checked_sub(1).map_or(Column::default(), |before| Column::of(&samples[before].live));
        axis.fill(|end| {
            let mut column = current;
            while let Some(sample) = samples.get(next).filter(|sample| (sample.at as f64) < end) {
                current = Column::of(&sample.live);
                if current.total() >= column.total() {
                    column = current;
                }
                next += 1;
            }
            column
        })
    }

    /// Returns a rank's memory over `axis` for `classes` only. A column shows the state that lasts
    /// longest in it, so that short-lived buffers appear and disappear.
    pub(super) fn longest_state(
        samples: &VecDeque<MemorySample>,
        axis: Axis,
        classes: &[Class],
    ) -> Vec<Column> {
        let mut start = axis.from as f64;
        let mut next = samples.partition_point(|sample| sample.at < axis.from);
        axis.fill(|end| {
            let mut longest = (-1.0, next.saturating_sub(1));
            let mut from = start;
            while from < end {
                let to = samples.get(next).map_or(end, |sample| (sample.at as f64).min(end));
                if to - from > longest.0 && next > 0 {
                    longest = (to - from, next - 1);
                }
                next += usize::from(to < end);
                from = to;
            }
            start = end;
            let mut column = Column::default();
            if let Some(sample) = samples.get(longest.1) {
                classes.iter().for_each(|class| column.parts[class.index()] = sample.live[class.index()]);
            }
            column
        })
    }

    /// Returns the bytes that all ranks together have sent since the step began, by operation,
    /// without bytes sent between two steps. A column shows its maximum.
    pub(super) fn traffic(window: &Window, axis: Axis) -> Vec<Column> {
        let landing = |span: &CollectiveSpan| {
            let counts = span.finished.filter(|&at| !window.is_between_steps(span.issued, at));
            Some((counts?, span.event.operation, span.sent))
        };
        let collectives = window.lanes.iter().flat_map(|lane| &lane.collectives);
        let mut landed: Vec<(u64, Operation, u64)> = collectives.filter_map(landing).collect();
        landed.sort_unstable_by_key(|landing| landing.0);
        let (mut landed, mut steps) = (landed.into_iter().peekable(), window.steps.iter().peekable());
        let mut sum = Column::default();
        axis.fill(|end| {
            let before = |at: u64| (at as f64) < end;
            let mut column = sum;
            loop {
                let landing = landed.peek().map_or(u64::MAX, |landing| landing.0);
                let step = steps.peek().map_or(u64::MAX, |step| step.from);
                if before(step) && step <= landing {
                    sum = Column::default();
                    steps.next();
                } else if let Some((_, operation, bytes)) = landed.next_if(|landing| before(landing.0)) {
                    let part = &mut sum.parts[operation.index()];
                    *part = part.saturating_add(bytes);
                    column = if sum.total() >= column.total() { sum } else { column };
                } else {
                    return column;
                }
            }
        })
    }
}

/// Returns the colour and the glyph of a layer that is a class.
pub(super) fn class(layer: usize) -> (Color, &'static str) {
    (class_colour(Class::ALL[layer]), class_glyph(Class::ALL[layer]))
}

/// Returns the colour and the glyph of a layer that is an operation.
pub(super) fn operation(layer: usize) -> (Color, &'static str) {
    (operation_colour(Operation::ALL[layer]), operation_glyph(Operation::ALL[layer]))
}

/// A stacked area with `top` bytes at its upper edge.
pub(super) struct Area {
    pub columns: Vec<Column>,
    pub top: u64,
    /// Returns the colour and the glyph of a layer.
    pub look: fn(usize) -> (Color, &'static str),
}

impl Area {
    /// Draws a rank's memory over the last two steps, with `top` bytes at the upper edge.
    pub(super) fn draw_memory(player: &Player, rank: usize, top: u64, paint: &mut Paint<'_>) {
        let axis = Axis::last_steps(player, 2, paint.width());
        let columns = Column::memory(player.scene().window.lanes[rank].on_device(), axis);
        Area { columns, top, look: class }.draw(paint);
    }

    /// Returns the row that a height of `bytes` reaches.
    pub(super) fn row(&self, bytes: u64, height: u16) -> u16 {
        let rows = eighths(bytes, self.top, height).div_ceil(8) as u16;
        height.saturating_sub(rows.max(1))
    }

    pub(super) fn draw(&self, paint: &mut Paint<'_>) {
        for (x, column) in (0u16..).zip(&self.columns) {
            self.column(paint, x, column);
        }
    }

    fn column(&self, paint: &mut Paint<'_>, x: u16, column: &Column) {
        let height = paint.height();
        let ends = ends(column.parts, self.top, height);
        for row in 0..ends[LAYERS - 1].div_ceil(8) as u16 {
            let Some(mix) = Mix::of(&ends, row) else { return };
            self.cell(paint, (x, height - 1 - row), &mix);
        }
    }

    fn cell(&self, paint: &mut Paint<'_>, (x, y): (u16, u16), mix: &Mix) {
        let style = ink((self.look)(mix.first).0);
        if !paint.theme().colours() {
            let shown = if mix.eighths < 4 { mix.second.unwrap_or(mix.first) } else { mix.first };
            paint.put(x, y, (self.look)(shown).1, Style::new());
        } else {
            let style = mix.second.map_or(style, |layer| style.bg((self.look)(layer).0));
            paint.put(x, y, EIGHTHS[usize::from(mix.eighths)], style);
        }
    }

    /// Draws the area below a row for its heading, with its scale at the left, and the axis at the
    /// bottom, below `between` other rows. Returns the area's rectangle.
    pub(super) fn chart<'a>(&self, axis: Axis, between: u16, paint: &'a mut Paint<'_>) -> Paint<'a> {
        let height = paint.height().saturating_sub(2 + between);
        self.scale(&mut paint.part(0, 1, SCALE, height + 1));
        axis.draw(paint, SCALE, height + 1 + between);
        let mut inside = paint.part(SCALE, 1, axis.width, height);
        self.draw(&mut inside);
        inside
    }

    /// Draws round numbers of bytes at the left edge of `paint`. The area covers all rows but the
    /// last, which is the baseline.
    fn scale(&self, paint: &mut Paint<'_>) {
        let height = paint.height().saturating_sub(1);
        for y in 0..height {
            paint.put(SCALE - 1, y, "│", ink(FAINT));
        }
        let step = words::round_step(self.top as f64 / f64::from((height / 2).clamp(2, 8)));
        paint.right(SCALE - 2, height, "0", ink(DIM));
        paint.put(SCALE - 1, height, "└", ink(FAINT));
        let mut bytes = step;
        while bytes <= self.top as f64 {
            let y = self.row(bytes as u64, height);
            paint.right(SCALE - 2, y, words::round_bytes(bytes as u64), ink(DIM));
            paint.put(SCALE - 1, y, "┤", ink(FAINT));
            bytes += step;
        }
    }

    /// Draws a dashed line at `bytes`, over empty places only. The longest of `texts` that fits is
    /// above it, next to the column where the area first reaches it, or next to another text. Adds
    /// it to those `written`.
    pub(super) fn rule(
        &self,
        bytes: u64,
        (texts, style): (&[&str], Style),
        written: &mut Vec<Written>,
        paint: &mut Paint<'_>,
    ) {
        let (y, width) = (self.row(bytes, paint.height()), paint.width());
        for (x, column) in (0u16..).zip(&self.columns) {
            let is_low = self.row(column.total(), paint.height()) > y || column.total() == 0;
            if is_low && !written.iter().any(|(row, taken)| *row == y && taken.contains(&x)) {
                paint.put(x, y, "╌", style);
            }
        }
        // The text leaves room for a mark at the area's peak, which may be in the same row.
        let peak = self.columns.iter().position(|column| column.total() >= bytes).unwrap_or(0) as u16;
        let row = y.saturating_sub(u16::from(y > 0));
        let place = |text: &&str| {
            let length = columns(text);
            let beside = written.iter().filter(|other| other.0 == row).map(|other| other.1.end + 2);
            let starts = [Some(peak + 2), peak.checked_sub(1 + length)].into_iter().flatten().chain(beside);
            let mut free = starts.filter(|&x| x + length <= width && is_free(written, row, x..x + length));
            free.next().map(|x| (x, text.to_string()))
        };
        let found = texts.iter().find_map(place);
        if let Some((x, text)) = found {
            written.push((row, x..paint.text(x, row, text, style)));
        }
    }
}

/// The row and the columns of a text in a chart.
pub(super) type Written = (u16, Range<u16>);

/// True if a text at `place` of `row` is at least one column away from all that are `written`.
fn is_free(written: &[Written], row: u16, place: Range<u16>) -> bool {
    written.iter().all(|(other, taken)| *other != row || place.end < taken.start || taken.end < place.start)
}
