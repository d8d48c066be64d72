//! Chapter 2: a ring all-reduce.

use crate::checks::ring_all_reduce::Wire;

/// `buffers[r]` is rank r's, all of the same length, a multiple of the number of ranks. Afterwards every rank has the sum of
/// all. `wire.send(from, to, values)` moves values to the right neighbour and returns what arrives there.
pub fn all_reduce(buffers: &mut [Vec<f32>], wire: &mut Wire) {
    // Your code here.
}
