//! # Chapter 17: another number of ranks
//!
//! Goal: some ranks have saved a unit, each its slice in a file of its own. Another number of ranks
//! resumes. A rank reads its new slice from the old files, and no element more.
//!
//! Check: `cargo run -p tutorials -- check reshard`; hints: `--hints 1`, `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::reshard::Read;

/// Returns what rank `rank` of `readers` reads, in the order of its slice.
///
/// The unit has so many `elements`. Of N ranks each owns a slice of `elements.div_ceil(N)`: rank 0
/// the first, rank 1 the next. The last slices may reach beyond the unit. That is padding, which is
/// in no file and which no rank reads.
///
/// The file of rank k of the `writers` has the elements of its slice. `Read { file: k, range }`
/// reads some of them; `range` counts from the file's first element.
pub fn reads(elements: usize, writers: usize, readers: usize, rank: usize) -> Vec<Read> {
    // Your code here.
    Vec::new()
}
