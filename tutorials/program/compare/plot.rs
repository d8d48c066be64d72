//! Plots memory profiles: SVG, and characters for a terminal.

use super::profile::Profile;
use events::Class;
use events::say::time;
use screen::theme::{class_colour, class_glyph};
use settings::size::human;
use std::fmt::Write;
use viz::export::svg::css;

/// Classes from bottom to top; those that live longest come first.
const STACK: [Class; 7] = [
    Class::Parameters,
    Class::Gradients,
    Class::Optimizer,
    Class::GatheredParameters,
    Class::CommunicationBuckets,
    Class::Activations,
    Class::Workspace,
];
const _: () = assert!(STACK.len() == Class::ALL.len());

/// Columns and rows of a terminal plot, excluding the ten columns of its scale.
const TERMINAL: (usize, usize) = (70, 16);

/// Draws the plot for a terminal, with `top` bytes at its upper edge.
pub(crate) fn terminal(name: &str, profile: &Profile, top: u64) -> String {
    let (width, height) = TERMINAL;
    let columns = profile.columns(width);
    let mut text = format!("{name}: rank 0 in the last step, peak {}\n", human(profile.peak()));
    let columns: Vec<Vec<Class>> = columns.iter().map(|live| rows(live, top, height)).collect();
    for row in (0..height).rev() {
        let label = if row + 1 == height { human(top) } else { String::new() };
        let line: String =
            columns.iter().map(|column| column.get(row).map_or(" ", |&class| class_glyph(class))).collect();
        text.push_str(format!("{label:>8} │{}", line.trim_end()).trim_end());
        text.push('\n');
    }
    let _ = writeln!(text, "{:>8} └{}", 0, "─".repeat(width));
    let _ = writeln!(text, "{:>9} 0{:>right$}", "", time(profile.length as f64 * 1e-9), right = width - 1);
    text
}

/// Returns the class that fills each row of a column, from bottom to top. `height` rows represent
/// `top` bytes. A class with any live bytes gets at least one row.
fn rows(live: &[u64], top: u64, height: usize) -> Vec<Class> {
    let row = |bytes: u64| ((2 * bytes * height as u64 + top) / (2 * top.max(1))) as usize;
    let held: Vec<Class> = STACK.into_iter().filter(|class| live[class.index()] > 0).collect();
    let filled = row(live.iter().sum()).max(held.len());
    let (mut below, mut rows) = (0, Vec::new());
    for (above, class) in (0..held.len()).rev().zip(&held) {
        below += live[class.index()];
        let least = rows.len() + 1;
        rows.resize(row(below).clamp(least, filled - above), *class);
    }
    rows
}

pub(crate) fn key() -> String {
    let entries = STACK.map(|class| format!("{} {class}", class_glyph(class)));
    let (some, others) = (entries[..4].join("   "), entries[4..].join("   "));
    format!("{some}\n{others}\nA class that holds anything gets a row, however little it holds.\n")
}

const SIZE: (f64, f64) = (760.0, 300.0);
const LEFT: f64 = 70.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 56.0;
const COLUMNS: usize = 640;

/// Draws the plot as SVG, with `top` bytes at its upper edge.
pub(crate) fn svg(name: &str, profile: &Profile, top: u64) -> String {
    let (width, height) = SIZE;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{name}: memory of rank 0 in the last step, peak {}</text>\n",
        human(profile.peak())
    );
    let columns = profile.columns(COLUMNS);
    let mut below = vec![0; COLUMNS];
    for class in STACK {
        let above: Vec<u64> = below.iter().zip(&columns).map(|(b, live)| b + live[class.index()]).collect();
        if above != below {
            area(&mut out, class, &below, &above, top);
        }
        below = above;
    }
    axes(&mut out, profile, top);
    legend(&mut out, &columns);
    out + "</svg>\n"
}

fn plot_size() -> (f64, f64) {
    (SIZE.0 - LEFT - 20.0, SIZE.1 - TOP - BOTTOM)
}

/// Draws one class as a band with steps, because memory changes instantly.
fn area(out: &mut String, class: Class, below: &[u64], above: &[u64], top: u64) {
    let (width, height) = plot_size();
    let x = |column: usize| LEFT + width * column as f64 / COLUMNS as f64;
    let y = |bytes: u64| TOP + height * (1.0 - bytes as f64 / top.max(1) as f64);
    let mut path = edge(above).map(|(column, bytes)| (x(column), y(bytes))).collect::<Vec<_>>();
    path.extend(edge(below).rev().map(|(column, bytes)| (x(column), y(bytes))));
    let path: Vec<String> = path.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(out, "<polygon fill=\"{}\" points=\"{}\"/>", colour(class), path.join(" "));
}

/// Returns the corners of a step line: where each height begins and ends.
fn edge(heights: &[u64]) -> impl DoubleEndedIterator<Item = (usize, u64)> {
    let begins = |column: usize| column == 0 || heights[column] != heights[column - 1];
    let starts: Vec<usize> = (0..heights.len()).filter(|&column| begins(column)).collect();
    let ends = starts[1..].iter().copied().chain([heights.len()]);
    let corners =
        starts.iter().zip(ends).flat_map(|(&from, to)| [(from, heights[from]), (to, heights[from])]);
    corners.collect::<Vec<_>>().into_iter()
}

fn axes(out: &mut String, profile: &Profile, top: u64) {
    let (width, height) = plot_size();
    for quarter in 0..=4 {
        let y = TOP + height * (1.0 - f64::from(quarter) / 4.0);
        let label = human(top * u64::from(quarter as u32) / 4);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#d0d4da\" stroke-width=\"0.6\"/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#505865\">{label}</text>",
            LEFT + width,
            LEFT - 6.0,
            y + 4.0
        );
    }
    let (y, end) = (TOP + height + 16.0, time(profile.length as f64 * 1e-9));
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{y:.1}\" fill=\"#505865\">0</text>\n\
         <text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\" fill=\"#505865\">{end}</text>",
        LEFT + width
    );
}

fn legend(out: &mut String, columns: &[[u64; Class::ALL.len()]]) {
    let used = |class: &Class| columns.iter().any(|live| live[class.index()] > 0);
    let (mut x, y) = (LEFT, SIZE.1 - 14.0);
    for class in STACK.into_iter().filter(used) {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n\
             <text x=\"{:.1}\" y=\"{y:.1}\" font-size=\"11\">{class}</text>",
            y - 9.0,
            colour(class),
            x + 14.0
        );
        x += 28.0 + 6.2 * class.label().len() as f64;
    }
}

fn colour(class: Class) -> String {
    css(class_colour(class)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::profile::tests::hill;
    use super::*;

    #[test]
    fn a_profile_for_a_terminal() {
        insta::assert_snapshot!(terminal("ZeRO-3", &hill(), 125) + &key());
    }

    #[test]
    fn what_is_held_has_a_row() {
        let live = |bytes: [u64; 7]| bytes;
        let count = |live: &[u64], class| rows(live, 100, 10).iter().filter(|&&row| row == class).count();
        let small = live([1, 1, 2, 0, 60, 0, 0]);
        let large = Class::ALL[4];
        assert_eq!(rows(&small, 100, 10).len(), 6);
        assert!(Class::ALL[..3].iter().all(|&class| count(&small, class) == 1) && count(&small, large) == 3);
        assert_eq!(rows(&live([100, 0, 0, 0, 0, 0, 0]), 100, 10).len(), 10);
        assert_eq!(rows(&live([0; 7]), 100, 10), []);
        assert_eq!(rows(&live([3, 3, 3, 3, 3, 3, 3]), 100, 10).len(), 7);
    }

    #[test]
    fn a_profile_as_svg() {
        let svg = svg("ZeRO-3", &hill(), 125);
        for part in ["peak 100 B", "activations", "workspace", "parameters", "0.100 µs"] {
            assert!(svg.contains(part), "{part} is missing in {svg}");
        }
        assert_eq!(svg.matches("<polygon").count(), 3, "one area per class that is used");
        assert!(!svg.contains("optimizer") && svg.ends_with("</svg>\n"));
    }
}
