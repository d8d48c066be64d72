//! A line that explains symbols and colours.

use super::paint::Paint;
use crate::fit::columns;
use crate::theme::{DIM, FAINT, ink};
use ratatui::style::Style;

/// A symbol and its meaning.
pub(super) struct Entry {
    /// Pieces of text, drawn one after the other.
    pieces: Vec<(String, Style)>,
    /// The entries with the lowest weight are left out first.
    weight: u64,
}

impl Entry {
    /// Returns the entry of `symbol`, drawn in `style`.
    pub(super) fn new(symbol: &str, style: Style, label: &str, weight: u64) -> Self {
        Entry { pieces: vec![(symbol.into(), style), (format!(" {label}"), ink(DIM))], weight }
    }

    /// Returns the entry with `text` after its label.
    pub(super) fn followed_by(mut self, text: &str, style: Style) -> Self {
        self.pieces.push((format!(" {text}"), style));
        self
    }

    fn columns(&self) -> u16 {
        self.pieces.iter().map(|(text, _)| columns(text)).sum()
    }
}

/// Returns the columns of `entries` with `gap` columns between two of them.
pub(super) fn length(entries: &[Entry], gap: u16) -> u16 {
    entries.iter().map(|entry| entry.columns() + gap).sum::<u16>().saturating_sub(gap)
}

/// Draws `entries` with `gap` columns between two of them. If they do not fit, leaves out whole
/// entries and ends with an ellipsis. Returns the column after them.
pub(super) fn draw(mut entries: Vec<Entry>, gap: u16, paint: &mut Paint<'_>) -> u16 {
    let all = entries.len();
    let room = |entries: &[Entry]| paint.width().saturating_sub(if entries.len() < all { 2 } else { 0 });
    while length(&entries, gap) > room(&entries) {
        let weights = entries.iter().enumerate().rev();
        let Some((lightest, _)) = weights.min_by_key(|(_, entry)| entry.weight) else { break };
        entries.remove(lightest);
    }
    let mut x = 0;
    for (number, entry) in entries.iter().enumerate() {
        x = paint.pieces(x + if number > 0 { gap } else { 0 }, 0, &entry.pieces);
    }
    if entries.len() < all { paint.text(x + 1, 0, "…", ink(FAINT)) } else { x }
}
