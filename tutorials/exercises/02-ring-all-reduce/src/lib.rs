//! # Chapter 2: a ring all-reduce
//!
//! Goal: every rank has the sum of all ranks' buffers, and each has sent to its right neighbour alone, no more than
//! 2(N−1)/N of a buffer.
//!
//! Check: `cargo run -p tutorials -- check ring-all-reduce`; a hint: `--hints 1`, another: `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::ring_all_reduce::Wire;

/// `buffers[r]` is rank r's, all of the same length, a multiple of the number of ranks. Afterwards every rank has the sum of
/// all. `wire.send(from, to, &values)` moves values to the right neighbour and returns what arrives there, a `Vec<f32>`.
pub fn all_reduce(buffers: &mut [Vec<f32>], wire: &mut Wire) {
    // Your code here.
}
