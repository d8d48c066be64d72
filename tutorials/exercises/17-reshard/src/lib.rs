//! # Chapter 17: another number of ranks
//!
//! Goal: several ranks have saved a unit, each its slice in its own file. Another number of ranks
//! resumes. Each rank reads its new slice from the old files, and not a single element more.
//!
//! Check: `cargo run -p tutorials -- check reshard`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use exercises::reshard::Read;

/// Returns the reads of rank `rank` of `readers`, in the order of its slice.
///
/// The unit has `elements` elements. Each of N ranks owns a slice of `elements.div_ceil(N)`: rank 0
/// the first, rank 1 the next. The last slices may extend beyond the unit. That part is padding,
/// which is in no file and which no rank reads.
///
/// The file of rank k of the `writers` holds the elements of its slice. `Read { file: k, range }`
/// reads some of them; `range` counts from the file's first element.
pub fn reads(elements: usize, writers: usize, readers: usize, rank: usize) -> Vec<Read> {
    // Your code here.
    Vec::new()
}
