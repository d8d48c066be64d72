//! Line charts of braille dots. Each cell has two columns and four rows of dots.

use super::paint::Paint;
use crate::fit::columns;
use crate::theme::{ACCENT, DIM, FAINT, GOOD, ink};
use crate::words;
use ratatui::style::Color;

#[derive(Clone, Copy, Debug)]
struct Range {
    /// Smallest and largest abscissa.
    x: (f64, f64),
    /// Smallest and largest ordinate.
    y: (f64, f64),
}

impl Range {
    /// Returns the range that contains all `points`. It is never empty.
    fn around(points: &[(f64, f64)]) -> Self {
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

/// Maximum number of points that are marked one by one.
const FEW: usize = 24;

/// Draws a line chart with labels of its ranges at the left and, if there is room, below. The
/// points in `marks` have marks of their own.
pub(super) fn chart(paint: &mut Paint<'_>, points: &[(f64, f64)], marks: &[(f64, f64)]) {
    let all: Vec<(f64, f64)> = points.iter().chain(marks).copied().collect();
    let range = Range::around(&all);
    let (width, mut height) = (paint.width(), paint.height());
    let labels = [range.y.1, (range.y.0 + range.y.1) / 2.0, range.y.0].map(words::digits);
    let axis = labels.iter().map(|label| columns(label) + 1).max().unwrap_or(0).max(6);
    if width < axis + 6 || height == 0 || points.is_empty() {
        return;
    }
    if height >= 5 {
        height -= 1;
        abscissas(range, &mut paint.part(axis, height, width.saturating_sub(axis), 1));
    }
    let [highest, middle, lowest] = labels;
    paint.right(axis - 1, 0, highest, ink(DIM));
    if height > 1 {
        paint.right(axis - 1, height.saturating_sub(1), lowest, ink(DIM));
    }
    if height > 6 {
        paint.right(axis - 1, height / 2, middle, ink(DIM));
    }
    for y in 0..height {
        paint.put(axis, y, "│", ink(FAINT));
    }
    let mut inside = paint.part(axis + 1, 0, width.saturating_sub(axis + 1), height);
    line(&mut inside, points, range);
    for &point in points.iter().filter(|_| points.len() <= FEW) {
        mark(&mut inside, point, range, "•", ACCENT);
    }
    if let Some(&last) = points.last() {
        mark(&mut inside, last, range, "●", ACCENT);
    }
    for &point in marks {
        mark(&mut inside, point, range, "◆", GOOD);
    }
}

/// Draws the first and the last abscissa below a line.
fn abscissas(range: Range, paint: &mut Paint<'_>) {
    paint.run(0, 0, paint.width(), "─", ink(FAINT));
    paint.put(0, 0, "╰", ink(FAINT));
    let (first, last) = (format!(" step {} ", range.x.0), format!(" {} ", range.x.1));
    if range.x.1 - range.x.0 >= 1.0 && range.x.0.fract() == 0.0 {
        paint.text(1, 0, first, ink(DIM));
        paint.right(paint.width(), 0, last, ink(DIM));
    }
}

fn mark(paint: &mut Paint<'_>, point: (f64, f64), range: Range, symbol: &str, colour: Color) {
    let (width, height) = (usize::from(paint.width()), usize::from(paint.height()));
    if point.1.is_finite() && width > 0 && height > 0 {
        let (column, row) = place(point, range, (width, height));
        paint.put(column as u16 / 2, row as u16 / 4, symbol, ink(colour));
    }
}

/// Returns the dot of a point on `width` × `height` cells.
fn place((x, y): (f64, f64), range: Range, (width, height): (usize, usize)) -> (i64, i64) {
    let share = |value: f64, (low, high): (f64, f64)| ((value - low) / (high - low)).clamp(0.0, 1.0);
    let column = share(x, range.x) * (width * 2 - 1) as f64;
    let row = (1.0 - share(y, range.y)) * (height * 4 - 1) as f64;
    (column.round() as i64, row.round() as i64)
}

/// Draws the line through `points`, whose abscissas ascend.
fn line(paint: &mut Paint<'_>, points: &[(f64, f64)], range: Range) {
    let (width, height) = (usize::from(paint.width()), usize::from(paint.height()));
    if width == 0 || height == 0 {
        return;
    }
    let mut dots = vec![0u8; width * height];
    let finite = points.iter().filter(|point| point.1.is_finite());
    let finite: Vec<(i64, i64)> = finite.map(|&point| place(point, range, (width, height))).collect();
    if let [only] = finite[..] {
        dot(&mut dots, width, only);
    }
    for pair in finite.windows(2) {
        connect(&mut dots, width, pair[0], pair[1]);
    }
    for (cell, &bits) in dots.iter().enumerate().filter(|(_, bits)| **bits != 0) {
        // The braille block is 256 characters from U+2800, so the sum is always a character.
        let symbol = char::from_u32(0x2800 + u32::from(bits)).unwrap_or(' ');
        let (x, y) = ((cell % width) as u16, (cell / width) as u16);
        paint.put(x, y, symbol.encode_utf8(&mut [0; 4]), ink(ACCENT));
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
