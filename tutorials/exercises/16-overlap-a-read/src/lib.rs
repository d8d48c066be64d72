//! # Chapter 16: a read behind computation
//!
//! Goal: a pass computes with units whose shards are stored on a disk. While it computes with one,
//! the next is read. With two staging buffers, at most two shards may be in main memory.
//!
//! Check: `cargo run -p tutorials -- check overlap-a-read`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use exercises::overlap_a_read::Disk;

/// Computes with each of the units of `order` once, in this order. Forward and backward have
/// different orders.
///
/// * `disk.start(unit)` issues the read of a unit into a free staging buffer, and returns at once.
///   Reads run one after another.
/// * `disk.compute(unit)` waits until the unit's read is done, computes with it, and frees its
///   buffer.
pub fn pass(order: &[usize], disk: &mut Disk) {
    // Your code here.
}
