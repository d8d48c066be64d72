//! Draws a screen as an SVG picture: one rectangle per stretch of background, one text per stretch
//! of words or other symbol.

use ratatui::buffer::{Buffer, Cell};
use ratatui::style::{Color, Modifier};
use std::fmt::Write;
use std::ops::Range;

const CELL: (f64, f64) = (8.4, 17.0);
const GROUND: &str = "#14171e";
const TEXT: &str = "#d8dde6";

/// Returns the picture of `buffer`.
pub fn render(buffer: &Buffer) -> String {
    // A column at the sides and half a row above and below are the margin.
    let (left, top) = (-CELL.0, -CELL.1 / 2.0);
    let width = (f64::from(buffer.area.width) + 2.0) * CELL.0;
    let height = (f64::from(buffer.area.height) + 1.0) * CELL.1;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left:.1} {top:.1} {width:.1} {height:.1}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" \
         shape-rendering=\"crispEdges\">\n\
         <rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"100%\" height=\"100%\" fill=\"{GROUND}\"/>\n"
    );
    for y in 0..buffer.area.height {
        row(buffer, y, &mut svg);
    }
    svg.push_str("</svg>\n");
    svg
}

fn row(buffer: &Buffer, y: u16, svg: &mut String) {
    let mut x = 0;
    while x < buffer.area.width {
        let first = &buffer[(x, y)];
        let alike = |cell: &Cell| (cell.fg, cell.bg, cell.modifier) == (first.fg, first.bg, first.modifier);
        let end = (x..buffer.area.width).find(|&x| !alike(&buffer[(x, y)])).unwrap_or(buffer.area.width);
        ground(first, x, end, y, svg);
        while x < end {
            let words = words(buffer, y, x..end);
            if words.is_empty() {
                symbol(&buffer[(x, y)], x, y, svg)
            } else {
                text(&words, &buffer[(x, y)], x, y, svg)
            }
            x += (words.len() as u16).max(1);
        }
    }
}

/// Returns the words of ASCII that begin a stretch of cells, with a space between any two.
fn words(buffer: &Buffer, y: u16, mut columns: Range<u16>) -> String {
    let at = |x: u16| buffer[(x, y)].symbol();
    let is_part = |symbol: &str| symbol.len() == 1 && symbol.chars().all(|c| c.is_ascii_graphic());
    let end = columns.end;
    let goes_on = |&x: &u16| is_part(at(x)) || at(x) == " " && x + 1 < end && is_part(at(x + 1));
    if !is_part(at(columns.start)) {
        return String::new();
    }
    columns.by_ref().take_while(goes_on).map(at).collect()
}

fn colours(cell: &Cell) -> (String, Option<String>) {
    let fg = css(cell.fg).unwrap_or_else(|| TEXT.into());
    let bg = css(cell.bg);
    if cell.modifier.contains(Modifier::REVERSED) {
        (bg.unwrap_or_else(|| GROUND.into()), Some(fg))
    } else {
        (fg, bg)
    }
}

fn ground(cell: &Cell, from: u16, to: u16, y: u16, svg: &mut String) {
    if let (_, Some(colour)) = colours(cell) {
        let (x, y) = (f64::from(from) * CELL.0, f64::from(y) * CELL.1);
        let width = f64::from(to - from) * CELL.0 + 0.3;
        rectangle(x, y, width, CELL.1 + 0.3, &colour, svg);
    }
}

fn rectangle(x: f64, y: f64, width: f64, height: f64, colour: &str, svg: &mut String) {
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" fill=\"{colour}\"/>"
    );
}

/// Draws the symbol of one cell. Block characters become rectangles, since fonts leave gaps between
/// them.
fn symbol(cell: &Cell, x: u16, y: u16, svg: &mut String) {
    let Some(character) = cell.symbol().chars().next().filter(|c| *c != ' ') else { return };
    let (colour, _) = colours(cell);
    let (left, top) = (f64::from(x) * CELL.0, f64::from(y) * CELL.1);
    if let Some((width, height, from_top)) = block(character) {
        let (width, height) = (CELL.0 * width, CELL.1 * height);
        let top = if from_top { top } else { top + CELL.1 - height };
        return rectangle(left, top, width + 0.3, height + 0.3, &colour, svg);
    }
    text(cell.symbol(), cell, x, y, svg);
}

/// Draws symbols from cell `x`, `y` on, in that cell's style and as wide as their cells, whatever
/// the font.
fn text(symbols: &str, cell: &Cell, x: u16, y: u16, svg: &mut String) {
    let (colour, _) = colours(cell);
    let (left, baseline) = (f64::from(x) * CELL.0, f64::from(y) * CELL.1 + 13.0);
    let weight = if cell.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
    let width = match symbols.chars().count() {
        0 | 1 => String::new(),
        many => format!(" textLength=\"{:.2}\"", many as f64 * CELL.0),
    };
    let text: String = symbols.chars().map(escaped).collect();
    let _ = writeln!(
        svg,
        "<text x=\"{left:.2}\" y=\"{baseline:.2}\"{width} fill=\"{colour}\"{weight}>{text}</text>"
    );
}

/// Returns the part of a cell that a block character fills: width, height, whether it starts at the
/// top.
fn block(character: char) -> Option<(f64, f64, bool)> {
    let code = u32::from(character);
    match code {
        0x2581..=0x2588 => Some((1.0, f64::from(code - 0x2580) / 8.0, false)),
        0x2589..=0x258f => Some((f64::from(0x2590 - code) / 8.0, 1.0, true)),
        _ => None,
    }
}

fn escaped(character: char) -> String {
    match character {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        other => other.into(),
    }
}

/// Returns a colour in SVG's notation, or `None` for the terminal's default.
pub fn css(colour: Color) -> Option<String> {
    let named = |hex: &str| Some(hex.to_string());
    match colour {
        Color::Reset => None,
        Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
        Color::Indexed(index) => Some(indexed(index)),
        Color::Black => named("#10141c"),
        Color::Red => named("#c8503c"),
        Color::Green => named("#3c9a5c"),
        Color::Yellow => named("#b8963c"),
        Color::Blue => named("#3c6ec8"),
        Color::Magenta => named("#a05a9a"),
        Color::Cyan => named("#3c9aa0"),
        Color::Gray => named("#b0b6c0"),
        Color::DarkGray => named("#6a7180"),
        Color::LightRed => named("#ff6b5e"),
        Color::LightGreen => named("#4fc39a"),
        Color::LightYellow => named("#f2cf4a"),
        Color::LightBlue => named("#8cc4f2"),
        Color::LightMagenta => named("#d29ccc"),
        Color::LightCyan => named("#7ab8ff"),
        Color::White => named("#f0f2f5"),
    }
}

fn indexed(index: u8) -> String {
    let level = |v: u8| if v == 0 { 0 } else { 55 + 40 * v };
    match index {
        232.. => {
            let grey = 8 + 10 * (index - 232);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        }
        16.. => {
            let cube = index - 16;
            let (r, g, b) = (level(cube / 36), level(cube / 6 % 6), level(cube % 6));
            format!("#{r:02x}{g:02x}{b:02x}")
        }
        _ => TEXT.into(),
    }
}
