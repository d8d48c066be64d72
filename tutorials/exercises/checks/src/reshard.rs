//! Checks reads of some ranks' slices by another number of ranks.

use crate::{Figure, Score, Verdict};
use std::ops::Range;

/// Elements of a unit, ranks that wrote it, and ranks that read it: fewer, the same number, more;
/// with padding on both sides; so many that some own nothing.
const CASES: [(usize, usize, usize); 8] = [
    (12, 4, 3),
    (10, 4, 3),
    (213_248, 4, 3),
    (213_248, 3, 4),
    (7, 2, 2),
    (5, 1, 8),
    (5, 8, 1),
    (1_000, 8, 5),
];

/// A range of one file's elements, counted from its first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The rank that wrote the file.
    pub file: usize,
    /// The elements.
    pub range: Range<usize>,
}

/// The function under check: (elements, writers, readers, rank) to the rank's reads.
pub type Reads = fn(usize, usize, usize, usize) -> Vec<Read>;

/// Reads units that another number of ranks has written.
pub fn check(reads: Reads) -> Verdict {
    let [mut read, mut runs] = ["elements read", "runs of files"].map(Figure::of);
    for (elements, writers, readers) in CASES {
        let what = format!("{elements} elements, {writers} → {readers} ranks");
        for rank in 0..readers {
            let asked = reads(elements, writers, readers, rank);
            run(&asked, (elements, writers), owned(elements, readers, rank))
                .map_err(|problem| format!("{what}: rank {rank} {problem}"))?;
            read.own += asked.iter().map(|read| read.range.len() as u64).sum::<u64>();
            runs.own += asked.len() as u64;
        }
        read.target += elements as u64;
        runs.target += stretches(elements, writers, readers);
    }
    Ok(Score::right("every rank reads its slice, whoever has written it").with(read).with(runs))
}

/// Returns the elements that rank `rank` of `ranks` owns, without padding.
fn owned(elements: usize, ranks: usize, rank: usize) -> Range<usize> {
    let slice = elements.div_ceil(ranks);
    elements.min(rank * slice)..elements.min((rank + 1) * slice)
}

/// Returns the minimum number of reads that all readers need together: one for every stretch of the
/// unit between two boundaries of slices.
fn stretches(elements: usize, writers: usize, readers: usize) -> u64 {
    let is_border =
        |at: &usize| [writers, readers].iter().any(|ranks| at.is_multiple_of(elements.div_ceil(*ranks)));
    (0..elements).filter(is_border).count() as u64
}

/// Checks that `asked`, reads from the files of `writers` ranks for a unit of `elements` elements,
/// cover the elements `wanted`, in order.
fn run(asked: &[Read], (elements, writers): (usize, usize), wanted: Range<usize>) -> Result<(), String> {
    let mut next = wanted.start;
    for Read { file, range } in asked {
        if *file >= writers {
            return Err(format!("reads file {file}, and the files are 0 to {}", writers - 1));
        }
        let stored = owned(elements, writers, *file);
        if range.start > range.end || range.end > stored.len() {
            return Err(format!("reads {range:?} of file {file}, which has {} elements", stored.len()));
        }
        if !range.is_empty() && stored.start + range.start != next {
            return Err(format!("reads element {} where it needs {next}", stored.start + range.start));
        }
        next += range.len();
    }
    match next {
        end if end < wanted.end => Err(format!("does not read {end}..{} of its {wanted:?}", wanted.end)),
        end if end > wanted.end => Err(format!("owns {wanted:?} and reads on to {end}")),
        _ => Ok(()),
    }
}
