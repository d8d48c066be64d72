//! # Chapter 2: a ring all-reduce
//!
//! Goal: every rank has the sum of all ranks' buffers. Each rank sends only to its right neighbour,
//! at most 2(N−1)/N of a buffer.
//!
//! Check: `cargo run -p tutorials -- check ring-all-reduce`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use exercises::ring_all_reduce::Wire;

/// Sums the ranks' buffers. `buffers[r]` belongs to rank r; all have the same length, a multiple of
/// the number of ranks. Afterwards every buffer holds the sum of all.
/// `wire.send(from, to, &values)` sends values to the right neighbour and returns the values
/// received there, a `Vec<f32>`.
pub fn all_reduce(buffers: &mut [Vec<f32>], wire: &mut Wire) {
    // Your code here.
}
