//! Substitutes for colours and symbols on terminals with fewer colours or without Unicode.

use super::{
    ACCENT, ACTIVATIONS, ALARM, BACKWARD, BUCKETS, DIM, FAINT, FORWARD, GATHERED, GHOST, GOOD, GRADIENTS,
    INK, OPTIMIZER, PARAMETERS, RECOMPUTE, WAITING, WORKSPACE,
};
use ratatui::style::Color;

/// Returns the nearest colour of the 6 × 6 × 6 cube or the grey ramp.
pub(super) fn indexed(r: u8, g: u8, b: u8) -> u8 {
    // The cube's levels are 0, 95, 135, … 255: the nearest one.
    let level = |v: u8| match v {
        0..48 => 0,
        48..115 => 1,
        _ => (v - 35) / 40,
    };
    let value = |level: u8| if level == 0 { 0i32 } else { 55 + 40 * i32::from(level) };
    let distance = |other| distance([r, g, b], other);
    let cube = [level(r), level(g), level(b)];
    let grey = ((u16::from(r) + u16::from(g) + u16::from(b)) / 3).saturating_sub(3) / 10;
    let grey = grey.min(23) as u8;
    let grey_value = 8 + 10 * i32::from(grey);
    if distance([grey_value; 3]) < distance(cube.map(value)) {
        232 + grey
    } else {
        16 + 36 * cube[0] + 6 * cube[1] + cube[2]
    }
}

/// Returns a colour's substitute among 16, chosen by hand so that classes can be told apart.
pub(super) fn named(colour: Color) -> Color {
    match colour {
        DIM | FAINT => Color::DarkGray,
        ACCENT => Color::LightCyan,
        ALARM => Color::LightRed,
        GOOD => Color::LightGreen,
        WAITING => Color::Yellow,
        INK => Color::Black,
        GHOST => Color::Reset,
        PARAMETERS => Color::Blue,
        GRADIENTS => Color::Red,
        OPTIMIZER => Color::Green,
        GATHERED => Color::LightBlue,
        ACTIVATIONS => Color::Magenta,
        BUCKETS => Color::LightYellow,
        WORKSPACE => Color::Gray,
        FORWARD => Color::Cyan,
        BACKWARD => Color::Yellow,
        RECOMPUTE => Color::LightMagenta,
        other => nearest(other),
    }
}

/// Returns the nearest bright colour, against which dark text is readable. Used for shades and for
/// the colours of stages.
fn nearest(colour: Color) -> Color {
    const BRIGHT: [(Color, [i32; 3]); 8] = [
        (Color::LightBlue, [92, 140, 255]),
        (Color::LightCyan, [97, 214, 214]),
        (Color::Cyan, [58, 150, 221]),
        (Color::LightGreen, [80, 200, 120]),
        (Color::Yellow, [190, 130, 50]),
        (Color::LightYellow, [249, 241, 165]),
        (Color::LightMagenta, [214, 150, 214]),
        (Color::Gray, [190, 190, 190]),
    ];
    let Color::Rgb(r, g, b) = colour else { return colour };
    let apart = |(_, other): &(Color, [i32; 3])| distance([r, g, b], *other);
    BRIGHT.into_iter().min_by_key(apart).map_or(Color::Gray, |(name, _)| name)
}

/// Returns the square of the distance of two colours.
fn distance(one: [u8; 3], other: [i32; 3]) -> i32 {
    one.into_iter().zip(other).map(|(one, other)| (i32::from(one) - other).pow(2)).sum()
}

/// Returns the ASCII substitute of a symbol.
pub(super) fn plain(symbol: char) -> char {
    match symbol {
        '■' | 'Ψ' => 'P',
        '▲' => 'G',
        '●' => 'O',
        '▪' => 'p',
        '□' => 'F',
        '◆' => 'A',
        '△' => 'B',
        '○' => 'w',
        '─' | '╌' | '┄' | '╴' | '╶' | '–' | '—' | '−' => '-',
        '│' | '┃' | '▏' | '▎' | '▍' | '▌' | '▐' | '▕' | '╎' => '|',
        '╭' | '╮' | '╰' | '╯' | '┼' | '┬' | '┴' | '├' | '┤' | '╪' => '+',
        '└' | '┘' | '┌' | '┐' | 'Σ' => '+',
        '▶' | '▸' | '→' | '›' => '>',
        '◀' | '◂' | '←' | '‹' => '<',
        '≤' => '~',
        '▼' | '↓' => 'v',
        '↑' => '^',
        '█' | '▉' | '▊' | '▋' | '▓' | '▇' => '#',
        '▒' | '▆' | '▅' | '▄' | '╍' | '‖' | '━' => '=',
        '░' | '▃' | '▂' | '▁' | '·' | '…' => '.',
        '•' => 'o',
        '×' | '✗' => 'x',
        'µ' => 'u',
        '✓' => '*',
        'α' => 'a',
        dots if ('\u{2800}'..='\u{28ff}').contains(&dots) => braille(dots),
        _ => '?',
    }
}

fn braille(dots: char) -> char {
    let dots = u32::from(dots) - 0x2800;
    let (top, bottom) = (dots & 0b0001_1011, dots & 0b1110_0100);
    match (top != 0, bottom != 0) {
        (false, false) => ' ',
        (true, false) => '\'',
        (false, true) => '.',
        (true, true) => ':',
    }
}
