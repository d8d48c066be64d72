//! Bars: stacked by class, an eighth of a column fine where there are colours, made of the classes' glyphs where not.

use super::paint::Paint;
use crate::theme::{self, class_colour, class_glyph, ink};
use events::Class;
use ratatui::style::{Color, Style};

const EIGHTHS: [&str; 8] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// Bytes of each class, in [`Class::ALL`]'s order.
pub(super) type ByClass = [u64; Class::ALL.len()];

/// A horizontal bar, `width` columns for `scale` bytes.
pub(super) struct Bar {
    /// Bytes at the right end.
    pub scale: u64,
    /// What the same would take if everything were replicated: drawn as a ghost behind the bar.
    pub ghost: u64,
    /// A line that must not be crossed.
    pub capacity: Option<u64>,
}

impl Bar {
    fn eighths(&self, bytes: u64, width: u16) -> u64 {
        let eighths = u128::from(bytes) * u128::from(width) * 8 / u128::from(self.scale.max(1));
        (eighths as u64).min(u64::from(width) * 8)
    }

    /// Draws `parts` at row `y`, from column `x`.
    pub(super) fn draw(&self, paint: &mut Paint<'_>, (x, y, width): (u16, u16, u16), parts: &ByClass) {
        let ghost = (self.eighths(self.ghost, width).div_ceil(8)) as u16;
        let fill = if paint.theme().colours() { "░" } else { "·" };
        paint.run(x, y, ghost.min(width), fill, ink(theme::FAINT));
        self.stack(paint, (x, y, width), parts);
        if let Some(capacity) = self.capacity.filter(|&capacity| capacity <= self.scale) {
            let column = (self.eighths(capacity, width) / 8).min(u64::from(width.saturating_sub(1))) as u16;
            paint.put(x + column, y, "┃", ink(theme::ALARM));
        }
    }

    fn stack(&self, paint: &mut Paint<'_>, (x, y, width): (u16, u16, u16), parts: &ByClass) {
        let mut ends = Vec::with_capacity(Class::ALL.len());
        let mut sum = 0;
        for &class in Class::ALL {
            sum += parts[class.index()];
            ends.push((self.eighths(sum, width), class));
        }
        let end = ends.last().map_or(0, |last| last.0);
        for column in 0..(end.div_ceil(8) as u16).min(width) {
            let (from, to) = (u64::from(column) * 8, u64::from(column) * 8 + 8);
            let at = |eighth: u64| ends.iter().find(|(end, _)| *end > eighth).copied();
            let Some((first_end, first)) = at(from) else { break };
            let next = at(to - 1).map(|(_, class)| class);
            let style = ink(class_colour(first));
            if !paint.theme().colours() {
                paint.put(x + column, y, class_glyph(first), Style::new());
            } else if first_end >= to {
                paint.put(x + column, y, "█", style);
            } else {
                let style = next.map_or(style, |class| style.bg(class_colour(class)));
                paint.put(x + column, y, EIGHTHS[(first_end - from) as usize], style);
            }
        }
    }
}

/// A plain bar in one colour: `part` of `whole` over `width` columns.
pub(super) fn plain(
    paint: &mut Paint<'_>,
    (x, y, width): (u16, u16, u16),
    part: f64,
    whole: f64,
    colour: Color,
) {
    let share = if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * f64::from(width) * 8.0).round() as u16;
    paint.run(x, y, eighths / 8, "█", ink(colour));
    if !eighths.is_multiple_of(8) {
        paint.put(x + eighths / 8, y, EIGHTHS[usize::from(eighths % 8)], ink(colour));
    }
}
