//! How a product is cut into pieces that fit a processor's caches.

use super::Product;
use super::operands::Panels;
use super::pack::{Groups, packed_row};
use super::unit::Unit;
use crate::cpu::workers::pieces;
use std::ops::Range;

/// Steps of the depth at a time: as many as a panel of the right operand has in the nearest cache.
const STEPS: usize = 256;

/// Steps of the depth at a time if the left operand is stored along the depth: its tiles reach the
/// loop faster than the panel does, and fewer parts move fewer sums.
const STEPS_ALONG: usize = 384;

/// Maximum number of units of a part of a strip of the right operand: 1 MiB.
const STRIP: usize = 1 << 18;

/// Maximum number of sums that wait: 4 MiB.
const WAITING: usize = 1 << 20;

/// Units of a block of the left operand: half a MiB.
const BLOCK: usize = 1 << 17;

/// Minimum and maximum number of tiles of a block.
const TILES: (usize, usize) = (4, 24);

/// Maximum number of tiles of a left operand that is stored across the depth: those that
/// [`Coming`](super::coming::Coming) prefetches of a row.
const TILES_ACROSS: usize = 18;

/// Sizes of the pieces of a product.
pub(super) struct Cut {
    /// Maximum depth of a part.
    pub(super) part: usize,
    /// Maximum number of rows of a block and of columns of a strip.
    pub(super) block: usize,
    pub(super) strip: usize,
    /// Units of a copy of a strip's part and of a block's.
    pub(super) right: usize,
    pub(super) left: usize,
    /// True if sums wait for the next part of the depth.
    pub(super) waits: bool,
    /// f32 of the sums that do not go to the output at once, and from one of their rows to the
    /// next.
    pub(super) sums: usize,
    pub(super) stride: usize,
}

impl Cut {
    pub(super) fn new(product: &Product<'_>) -> Self {
        let Product { instructions, unit, a, b, .. } = *product;
        let ((rows, depth), columns) = (a.shape(), b.shape().0);
        let (width, tile) = (instructions.columns(), instructions.rows());
        let steps = if a.is_transposed() { STEPS } else { STEPS_ALONG };
        let part = if unit == Unit::Pair { 2 * steps } else { steps };
        let (waits, steps) = (depth > part, unit.steps(part.min(depth)));
        let most = if waits { WAITING / rows } else { usize::MAX };
        let most = (STRIP / steps.max(1)).min(most).max(width);
        let strip = columns.div_ceil(columns.div_ceil(most)).next_multiple_of(width);
        let most_tiles = if a.is_transposed() { TILES_ACROSS } else { TILES.1 };
        let tiles = (BLOCK / steps.max(1) / tile).clamp(TILES.0, most_tiles);
        let block = rows.min(tiles * tile);
        let left = match (product.in_place(), a.is_transposed()) {
            (true, _) => 0,
            (false, true) => Groups::rows(block, tile, steps).len(),
            (false, false) => block * packed_row(steps),
        };
        let (sums, stride) = if waits { (rows * strip, strip) } else { (tile * width, width) };
        let right = Panels::len(instructions, strip, steps);
        Cut { part, block, strip, right, left, waits, sums, stride }
    }

    /// Cuts a depth into parts of even lengths; the last one may be odd.
    pub(super) fn parts(&self, depth: usize) -> impl Iterator<Item = Range<usize>> {
        let pairs = pieces(depth.div_ceil(2), self.part / 2);
        pairs.map(move |pairs| 2 * pairs.start..(2 * pairs.end).min(depth))
    }
}
