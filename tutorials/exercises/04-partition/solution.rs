//! The slice that a rank owns.

use std::ops::Range;

/// Returns the `rank`-th of the equal slices of the padded unit.
pub fn slice(parameters: usize, shards: usize, rank: usize) -> Range<usize> {
    let length = parameters.div_ceil(shards);
    rank * length..(rank + 1) * length
}
