//! Operands that are read next. While tiles are computed, their loops prefetch these operands.

use super::register_tile::{SOURCE_STEPS, Source};
use crate::cpu::tile::Tile;

/// Number of bytes that are prefetched of a row.
const BYTES: usize = 1024;

/// The part still to be prefetched of an operand that is stored across the depth, row by row.
#[derive(Clone, Copy)]
pub(super) struct Coming {
    first: *const u8,
    /// Bytes from a row to the next.
    row: usize,
    rows: usize,
}

impl Coming {
    /// Returns the rows of `tile` if they are short or follow each other, else none.
    pub(super) fn of(tile: Option<Tile<'_>>) -> Self {
        let Some(tile) = tile.filter(Tile::is_transposed) else { return Coming::nothing() };
        let ((lanes, depth), (source, stride)) = (tile.shape(), tile.stored());
        let (bytes, row) = (source.bytes(), stride * source.size());
        let first = bytes.as_ptr();
        match lanes * source.size() {
            used if used == row => Coming { first, row: BYTES, rows: (depth * row).div_ceil(BYTES) },
            used if used <= BYTES => Coming { first, row, rows: depth },
            _ => Coming::nothing(),
        }
    }

    /// Returns no rows.
    fn nothing() -> Self {
        Coming { first: std::ptr::null(), row: 0, rows: 0 }
    }

    /// Takes as many rows as `tiles` tiles of `steps` can prefetch. Returns the number of tiles
    /// that prefetch them; `None` if no rows remain.
    pub(super) fn take(&mut self, steps: usize, tiles: usize) -> Option<(usize, Source)> {
        let rows = steps.div_ceil(SOURCE_STEPS).min(self.rows);
        let tiles = tiles.min(self.rows.checked_div(rows)?);
        let taken = Source { first: self.first, row: self.row, tile: rows * self.row };
        self.first = self.first.wrapping_add(tiles * taken.tile);
        self.rows -= tiles * rows;
        Some((tiles, taken))
    }
}
