//! Chapter 4: who owns what.

use std::ops::Range;

/// The elements of a unit of `parameters` that rank `rank` of `shards` owns. Slices are equal; the unit is padded for that.
pub fn slice(parameters: usize, shards: usize, rank: usize) -> Range<usize> {
    // Your code here.
    0..0
}
