//! Line charts in braille dots: two columns and four rows of dots in each cell.

use super::paint::Paint;
use crate::theme::{DIM, FAINT, ink};
use crate::words;
use ratatui::style::Color;

/// A chart's ranges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    /// Smallest and largest abscissa.
    pub x: (f64, f64),
    /// Smallest and largest ordinate.
    pub y: (f64, f64),
}

impl Range {
    /// The range that holds all `points`, never empty.
    pub(super) fn around(points: &[(f64, f64)]) -> Self {
        let fold = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
            if low > high {
                (0.0, 1.0)
            } else if high - low < 1e-9 {
                (low - 0.5, high + 0.5)
            } else {
                (low, high)
            }
        };
        let finite = || points.iter().filter(|point| point.1.is_finite());
        Range { x: fold(&mut finite().map(|point| point.0)), y: fold(&mut finite().map(|point| point.1)) }
    }
}

/// A line chart with its axis: labels of the range at the left, the line in the rest.
pub(super) fn chart(paint: &mut Paint<'_>, points: &[(f64, f64)], colour: Color) {
    let range = Range::around(points);
    let (width, height) = (paint.width(), paint.height());
    if width < 12 || height == 0 || points.is_empty() {
        return;
    }
    let axis = 6;
    paint.right(axis - 1, 0, words::digits(range.y.1), ink(DIM));
    if height > 1 {
        paint.right(axis - 1, height - 1, words::digits(range.y.0), ink(DIM));
    }
    if height > 6 {
        paint.right(axis - 1, height / 2, words::digits((range.y.0 + range.y.1) / 2.0), ink(DIM));
    }
    for y in 0..height {
        paint.put(axis, y, "│", ink(FAINT));
    }
    line(&mut paint.part(axis + 1, 0, width - axis - 1, height), points, range, colour);
}

/// The line through `points` (ascending abscissas).
pub(super) fn line(paint: &mut Paint<'_>, points: &[(f64, f64)], range: Range, colour: Color) {
    let (width, height) = (usize::from(paint.width()), usize::from(paint.height()));
    if width == 0 || height == 0 {
        return;
    }
    let mut dots = vec![0u8; width * height];
    let place = |(x, y): (f64, f64)| {
        let share = |value: f64, (low, high): (f64, f64)| ((value - low) / (high - low)).clamp(0.0, 1.0);
        let column = share(x, range.x) * (width * 2 - 1) as f64;
        let row = (1.0 - share(y, range.y)) * (height * 4 - 1) as f64;
        (column.round() as i64, row.round() as i64)
    };
    let finite: Vec<(i64, i64)> =
        points.iter().filter(|point| point.1.is_finite()).map(|&p| place(p)).collect();
    if let [only] = finite[..] {
        dot(&mut dots, width, only);
    }
    for pair in finite.windows(2) {
        connect(&mut dots, width, pair[0], pair[1]);
    }
    for (cell, &bits) in dots.iter().enumerate().filter(|(_, bits)| **bits != 0) {
        // The braille block is 256 characters from U+2800, so the sum is always a character.
        let symbol = char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ');
        paint.put_char((cell % width) as u16, (cell / width) as u16, symbol, ink(colour));
    }
}

fn connect(dots: &mut [u8], width: usize, from: (i64, i64), to: (i64, i64)) {
    let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
    for step in 0..=steps {
        let at = |a: i64, b: i64| a + ((b - a) as f64 * step as f64 / steps as f64).round() as i64;
        dot(dots, width, (at(from.0, to.0), at(from.1, to.1)));
    }
}

fn dot(dots: &mut [u8], width: usize, (x, y): (i64, i64)) {
    const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
    let cell = (y as usize / 4) * width + x as usize / 2;
    if let Some(cell) = dots.get_mut(cell) {
        *cell |= BITS[y as usize % 4][x as usize % 2];
    }
}
