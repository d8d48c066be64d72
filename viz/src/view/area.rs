//! A stacked area over time, an eighth of a row fine.

use super::axis::Axis;
use super::bar::{ByClass, Mix};
use super::paint::Paint;
use crate::theme::{class_colour, class_glyph, ink};
use crate::window::Lane;
use events::Class;
use ratatui::style::Style;

const EIGHTHS: [&str; 8] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇"];

/// What is live during one column's time: the moment at which most is live, so that no peak is lost between columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Column {
    live: ByClass,
}

impl Column {
    /// Bytes, all classes together.
    pub(super) fn total(&self) -> u64 {
        self.live.iter().sum()
    }

    /// A rank's memory over `axis`, up to `now`.
    pub(super) fn fill(lane: &Lane, axis: Axis, now: u64) -> Vec<Column> {
        let mut columns = vec![Column::default(); usize::from(axis.width)];
        let last = axis.column(now).ceil().clamp(0.0, f64::from(axis.width)) as usize;
        let samples = &lane.memory;
        let mut next = samples.partition_point(|sample| sample.at < axis.from);
        let mut current =
            next.checked_sub(1).map_or(Column::default(), |before| Column { live: samples[before].live });
        for (number, column) in columns.iter_mut().enumerate().take(last) {
            let end = axis.from as f64 + axis.per_column() * (number + 1) as f64;
            *column = current;
            while let Some(sample) = samples.get(next).filter(|sample| (sample.at as f64) < end) {
                current = Column { live: sample.live };
                if current.total() >= column.total() {
                    *column = current;
                }
                next += 1;
            }
        }
        columns
    }
}

/// A stacked area with `top` bytes at its upper edge.
pub(super) struct Area {
    /// From left to right.
    pub columns: Vec<Column>,
    /// Bytes at the upper edge.
    pub top: u64,
}

impl Area {
    fn eighths(&self, bytes: u64, height: u16) -> u64 {
        let eighths = u128::from(bytes) * u128::from(height) * 8 / u128::from(self.top.max(1));
        (eighths as u64).min(u64::from(height) * 8)
    }

    /// The row in which the height of `bytes` is.
    pub(super) fn row(&self, bytes: u64, height: u16) -> u16 {
        let rows = self.eighths(bytes, height).div_ceil(8) as u16;
        height.saturating_sub(rows.max(1))
    }

    /// Draws it over the whole of `paint`.
    pub(super) fn draw(&self, paint: &mut Paint<'_>) {
        for (x, column) in (0u16..).zip(&self.columns) {
            self.column(paint, x, column);
        }
    }

    fn column(&self, paint: &mut Paint<'_>, x: u16, column: &Column) {
        let height = paint.height();
        let mut sum = 0;
        let mut ends = [(0, Class::Parameters); Class::ALL.len()];
        for (end, &class) in ends.iter_mut().zip(Class::ALL) {
            sum += column.live[class.index()];
            *end = (self.eighths(sum, height), class);
        }
        let top = ends[Class::ALL.len() - 1].0;
        for row in 0..top.div_ceil(8) as u16 {
            let (from, to) = (u64::from(row) * 8, u64::from(row) * 8 + 8);
            let Some(mix) = Mix::of(&ends, from, to) else { return };
            let y = height - 1 - row;
            let style = ink(class_colour(mix.first));
            if !paint.theme().colours() {
                paint.put(
                    x,
                    y,
                    class_glyph(if mix.eighths < 4 { mix.second.unwrap_or(mix.first) } else { mix.first }),
                    Style::new(),
                );
            } else if mix.eighths == 8 {
                paint.put(x, y, "█", style);
            } else {
                let style = mix.second.map_or(style, |class| style.bg(class_colour(class)));
                paint.put(x, y, EIGHTHS[usize::from(mix.eighths)], style);
            }
        }
    }
}
