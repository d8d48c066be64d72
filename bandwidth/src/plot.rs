//! A plot of bus bandwidth over size, in letters. Both axes are logarithmic.

use crate::row::Row;
use std::fmt::Write;

/// Lines of a plot.
const HEIGHT: usize = 12;
/// Columns of a plot.
const WIDTH: usize = 64;
/// Columns of a size's label.
const LABEL: usize = 5;
/// Marks a cell in which several engines meet.
const SEVERAL: char = '*';

/// A logarithmic axis: values from `low` to `high` on `cells` cells.
struct Axis {
    low: f64,
    high: f64,
    cells: usize,
}

impl Axis {
    /// Returns the cell nearest to `value`.
    fn cell(&self, value: f64) -> usize {
        let part = (value / self.low).ln() / (self.high / self.low).ln();
        (part.clamp(0.0, 1.0) * (self.cells - 1) as f64).round() as usize
    }
}

/// Returns a plot of `rows`, each engine by the first letter of its name; sizes grow from left to
/// right.
pub(crate) fn plot(title: &str, rows: &[&Row]) -> String {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.size).collect();
    sizes.sort();
    sizes.dedup();
    let speeds: Vec<f64> = rows.iter().map(|row| row.bus_bandwidth()).filter(|speed| *speed > 0.0).collect();
    let Some(ticks) = ticks(&speeds) else { return String::new() };
    let up = Axis { low: ticks[0], high: ticks[ticks.len() - 1], cells: HEIGHT };
    // Twice the largest size, lest a single size leave the axis without a length.
    let end = if sizes.len() > 1 { sizes[sizes.len() - 1] } else { 2 * sizes[0] };
    let across = Axis { low: sizes[0] as f64, high: end as f64, cells: WIDTH };
    let canvas = draw(rows, &across, &up);
    let mut text =
        format!("\n{title}: bus bandwidth in GB/s over the size of the buffer, both logarithmic\n");
    let mut names = vec![String::new(); HEIGHT];
    ticks.iter().for_each(|&tick| names[up.cell(tick)] = format!("{tick}"));
    for (name, cells) in names.iter().zip(&canvas).rev() {
        let edge = if name.is_empty() { '│' } else { '┤' };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:>8} {edge}{}", cells.iter().collect::<String>().trim_end());
    }
    let _ = writeln!(text, "{:>8} └{}", "", "─".repeat(WIDTH + LABEL / 2));
    let _ = writeln!(text, "{:>8} {}", "", labels(&sizes, &across));
    let _ = writeln!(text, "{:>8}  {}", "", legend(rows, &canvas));
    text
}

/// Returns the cells, the lowest line first.
fn draw(rows: &[&Row], across: &Axis, up: &Axis) -> Vec<Vec<char>> {
    let mut canvas = vec![vec![' '; WIDTH]; HEIGHT];
    for row in rows.iter().filter(|row| row.bus_bandwidth() > 0.0) {
        let letter = row.engine.label().chars().next().unwrap_or('?');
        let cell = &mut canvas[up.cell(row.bus_bandwidth())][across.cell(row.size as f64)];
        *cell = if *cell == ' ' || *cell == letter { letter } else { SEVERAL };
    }
    canvas
}

/// Returns the powers of ten around `speeds`, and within three decades also their doubles and
/// fives; at least two. `None` if there are no speeds.
fn ticks(speeds: &[f64]) -> Option<Vec<f64>> {
    let start = speeds.iter().copied().reduce(f64::min)?;
    let end = speeds.iter().copied().fold(start, f64::max);
    let decades = (start.log10().floor() as i32)..=(end.log10().ceil() as i32);
    let digits = if end / start > 1e3 { &[1.0][..] } else { &[1.0, 2.0, 5.0] };
    // Divided, not multiplied: 1/1000 prints as 0.001.
    let power = |exponent: i32, digit: f64| {
        if exponent < 0 { digit / 10f64.powi(-exponent) } else { digit * 10f64.powi(exponent) }
    };
    let all: Vec<f64> = decades.flat_map(|e| digits.iter().map(move |&digit| power(e, digit))).collect();
    let first = all.iter().rposition(|tick| *tick <= start)?;
    let last = all.iter().position(|tick| *tick >= end)?.max(first + 1);
    all.get(first..=last).map(<[f64]>::to_vec)
}

/// Returns the sizes' names under their columns; a name without room is left out.
fn labels(sizes: &[usize], across: &Axis) -> String {
    let mut line = String::new();
    for &size in sizes {
        let name = human(size);
        // The axis begins one column after the line of labels.
        let begin = (across.cell(size as f64) + 1).saturating_sub(name.len() / 2);
        if line.is_empty() || line.len() < begin {
            line = format!("{line:begin$}{name}");
        }
    }
    line
}

/// Returns the legend: each engine with its letter.
fn legend(rows: &[&Row], canvas: &[Vec<char>]) -> String {
    let mut engines: Vec<String> = rows.iter().map(|row| row.engine.label()).collect();
    engines.dedup();
    let mut parts: Vec<String> = engines.iter().map(|name| format!("{} {name}", &name[..1])).collect();
    if canvas.iter().flatten().any(|cell| *cell == SEVERAL) {
        parts.push(format!("{SEVERAL} several"));
    }
    parts.join(", ")
}

/// Returns bytes in powers of 1024: `16K`, `4M`, `1G`.
fn human(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{}G", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use events::Operation;
    use std::time::Duration;

    fn row(engine: Engine, size: usize, gigabytes_per_second: f64) -> Row {
        let median = Duration::from_secs_f64(size as f64 / gigabytes_per_second / 1e9);
        Row { operation: Operation::Broadcast, engine, size, ranks: 4, calls: 5, median, best: median }
    }

    #[test]
    fn equal_ratios_are_equal_distances() {
        let sizes = [1 << 10, 1 << 14, 1 << 18, 1 << 22, 50 << 20];
        let mut rows: Vec<Row> =
            sizes.iter().map(|&size| row(Engine::Local, size, size as f64 / 1e6)).collect();
        rows.extend(sizes.map(|size| row(Engine::Tcp, size, 4.0)));
        insta::assert_snapshot!(plot("broadcast", &rows.iter().collect::<Vec<_>>()));
    }

    #[test]
    fn one_size_and_no_time_are_drawn_too() {
        let one = row(Engine::Ring, 1 << 20, 2.0);
        let text = plot("broadcast", &[&one]);
        assert!(text.lines().any(|line| line == "       2 ┤r") && text.contains("1M"), "{text}");
        assert_eq!(plot("broadcast", &[&Row { operation: Operation::AllReduce, ranks: 1, ..one }]), "");
    }
}
