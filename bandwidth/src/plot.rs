//! A plot of bus bandwidth over size, in letters.

use crate::row::Row;
use std::fmt::Write;

/// Lines of a plot.
const HEIGHT: usize = 10;
/// Columns per size.
const WIDTH: usize = 7;

/// Returns a plot of `rows`, each engine by the first letter of its name; sizes grow from left to
/// right. Where two engines share a cell, the one measured last is shown.
pub(crate) fn plot(title: &str, rows: &[&Row]) -> String {
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.size).collect();
    sizes.sort();
    sizes.dedup();
    let top = rows.iter().map(|row| row.bus_bandwidth()).fold(0.0, f64::max);
    if sizes.is_empty() || top <= 0.0 {
        return String::new();
    }
    let mut canvas = vec![vec![' '; sizes.len() * WIDTH]; HEIGHT];
    for row in rows {
        let column = sizes.iter().position(|size| *size == row.size).unwrap_or(0) * WIDTH + WIDTH / 2;
        let height = (row.bus_bandwidth() / top * (HEIGHT - 1) as f64).round() as usize;
        canvas[HEIGHT - 1 - height][column] = row.engine.label().chars().next().unwrap_or('?');
    }
    let mut text = format!("\n{title}: bus bandwidth in GB/s over the size of the buffer\n");
    for (line, cells) in canvas.iter().enumerate() {
        let value = top * (HEIGHT - 1 - line) as f64 / (HEIGHT - 1) as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{value:>8.2} │{}", cells.iter().collect::<String>().trim_end());
    }
    let _ = writeln!(text, "{:>8} └{}", "", "─".repeat(sizes.len() * WIDTH));
    let labels: String = sizes.iter().map(|&size| format!("{:^WIDTH$}", human(size))).collect();
    let _ = writeln!(text, "{:>8}  {}", "", labels.trim_end());
    let mut engines: Vec<&str> = rows.iter().map(|row| row.engine.label()).collect();
    engines.dedup();
    let legend: Vec<String> = engines.iter().map(|name| format!("{} {name}", &name[..1])).collect();
    let _ = writeln!(text, "{:>8}  {}", "", legend.join(", "));
    text
}

/// Returns bytes in powers of 1024: `16K`, `4M`, `1G`.
fn human(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 30 => format!("{}G", bytes >> 30),
        bytes if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        bytes => format!("{}K", bytes >> 10),
    }
}
