//! Who owns what.

use std::ops::Range;

/// The `rank`-th of equal slices of the padded unit.
pub fn slice(parameters: usize, shards: usize, rank: usize) -> Range<usize> {
    let length = parameters.div_ceil(shards);
    rank * length..(rank + 1) * length
}
