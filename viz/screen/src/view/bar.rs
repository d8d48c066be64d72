//! Bars, stacked by class. Their resolution is an eighth of a column; without colours they consist
//! of the classes' glyphs.

use super::paint::Paint;
use crate::theme::{self, class_colour, class_glyph, ink};
use events::Class;
use ratatui::style::{Color, Style};

const EIGHTHS: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

/// Bytes of each class, in [`Class::ALL`]'s order.
pub(super) type ByClass = [u64; Class::ALL.len()];

/// A horizontal bar, `width` columns for `scale` bytes.
pub(super) struct Bar {
    /// Bytes at the right end.
    pub scale: u64,
    /// Bytes that full replication would need, drawn as a ghost behind the bar.
    pub ghost: u64,
    /// The device's capacity, drawn as a line.
    pub capacity: Option<u64>,
}

impl Bar {
    /// Draws `parts` at row `y`, from column `x`.
    pub(super) fn draw(&self, paint: &mut Paint<'_>, (x, y, width): (u16, u16, u16), parts: &ByClass) {
        let ghost = eighths(self.ghost, self.scale, width).div_ceil(8) as u16;
        let fill = if paint.theme().colours() { "░" } else { "·" };
        paint.run(x, y, ghost.min(width), fill, ink(theme::FAINT));
        self.stack(paint, (x, y, width), parts, ghost);
        if let Some(capacity) = self.capacity.filter(|&capacity| capacity <= self.scale) {
            let column =
                (eighths(capacity, self.scale, width) / 8).min(u64::from(width.saturating_sub(1))) as u16;
            paint.put(x + column, y, "┃", ink(theme::ALARM));
        }
    }

    /// Draws the classes over a ghost of `ghost` columns.
    fn stack(&self, paint: &mut Paint<'_>, (x, y, width): (u16, u16, u16), parts: &ByClass, ghost: u16) {
        let ends = ends(*parts, self.scale, width);
        // A shorter bar needs every cell for the total.
        let held = parts.iter().filter(|&&bytes| bytes > 0).count();
        let roomy = usize::from(width) >= 2 * held;
        let ends = if roomy { visible(ends, parts) } else { ends };
        let end = ends[ends.len() - 1];
        for column in 0..(end.div_ceil(8) as u16).min(width) {
            let Some(mix) = Mix::of(&ends, column) else { break };
            let colour = |layer: usize| class_colour(Class::ALL[layer]);
            let style = ink(colour(mix.first));
            if !paint.theme().colours() {
                paint.put(x + column, y, class_glyph(Class::ALL[mix.first]), Style::new());
            } else {
                let behind = Some(theme::GHOST).filter(|_| column < ghost && mix.eighths < 8);
                let behind = mix.second.map(colour).or(behind);
                let style = behind.map_or(style, |ground| style.bg(ground));
                paint.put(x + column, y, EIGHTHS[usize::from(mix.eighths)], style);
            }
        }
    }
}

/// Returns the eighths of a cell that `bytes` fill, where `scale` bytes fill `cells` cells.
pub(super) fn eighths(bytes: u64, scale: u64, cells: u16) -> u64 {
    let eighths = u128::from(bytes) * u128::from(cells) * 8 / u128::from(scale.max(1));
    (eighths as u64).min(u64::from(cells) * 8)
}

/// Returns where the layers of a stack end, in eighths of a cell.
pub(super) fn ends<const LAYERS: usize>(layers: [u64; LAYERS], scale: u64, cells: u16) -> [u64; LAYERS] {
    let mut sum = 0u64;
    layers.map(|bytes| {
        sum = sum.saturating_add(bytes);
        eighths(sum, scale, cells)
    })
}

/// Returns `ends` of a stack in which each non-zero entry of `parts` fills at least a cell: a cell
/// shows two layers at most. The largest layers give up the space that the small ones need.
fn visible(ends: [u64; Class::ALL.len()], parts: &ByClass) -> [u64; Class::ALL.len()] {
    let mut start = 0;
    let mut widths = ends.map(|end| end - std::mem::replace(&mut start, end));
    for layer in (0..widths.len()).filter(|&layer| parts[layer] > 0) {
        while widths[layer] < 8 {
            let Some(largest) = (0..widths.len()).max_by_key(|&other| widths[other]) else { break };
            // If all layers are small, the stack grows.
            widths[largest] -= u64::from(widths[largest] > 8);
            widths[layer] += 1;
        }
    }
    let mut sum = 0;
    widths.map(|width| {
        sum += width;
        sum
    })
}

/// The content of one cell of a stack. A cell has two colours, so of three or more layers it shows
/// the two largest.
pub(super) struct Mix {
    /// The layer at the cell's beginning.
    pub(super) first: usize,
    /// Eighths of the cell that the first layer fills.
    pub(super) eighths: u8,
    /// The layer after it, or `None` where the stack ends.
    pub(super) second: Option<usize>,
}

impl Mix {
    /// Returns the cell of number `cell` in a stack whose layers end at `ends`; `None` beyond the
    /// stack's end.
    pub(super) fn of(ends: &[u64], cell: u16) -> Option<Mix> {
        let (from, to) = (u64::from(cell) * 8, u64::from(cell) * 8 + 8);
        let first = ends.iter().position(|&end| end > from)?;
        if ends[first] >= to {
            return Some(Mix { first, eighths: 8, second: None });
        }
        let mut start = 0;
        let mut shares: Vec<(u64, usize)> = Vec::with_capacity(4);
        for (layer, &end) in ends.iter().enumerate() {
            let share = end.min(to).saturating_sub(start.max(from));
            if share > 0 {
                shares.push((share, layer));
            }
            start = end;
        }
        let filled: u64 = shares.iter().map(|(share, _)| share).sum();
        if filled < 8 {
            // The stack ends in this cell: one layer, then the empty rest.
            let largest = shares.iter().max_by_key(|(share, _)| *share)?;
            return Some(Mix { first: largest.1, eighths: filled as u8, second: None });
        }
        while shares.len() > 2 {
            let smallest = shares.iter().enumerate().min_by_key(|(_, (share, _))| *share)?.0;
            let (share, _) = shares.remove(smallest);
            let heir = smallest.min(shares.len() - 1);
            shares[heir].0 += share;
        }
        let second = shares.get(1).map(|(_, layer)| *layer);
        Some(Mix { first: shares[0].1, eighths: shares[0].0 as u8, second })
    }
}

/// Draws a bar in one colour: `part` of `whole` over `width` columns.
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
