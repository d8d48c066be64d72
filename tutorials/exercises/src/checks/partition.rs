//! Slices of a padded unit.

use crate::Verdict;
use std::ops::Range;

/// What is checked: (parameters, shards, rank) to the rank's slice.
pub(crate) type Slice = fn(usize, usize, usize) -> Range<usize>;

pub(crate) fn check(slice: Slice) -> Verdict {
    for (parameters, shards) in [(12, 4), (10, 4), (1, 3), (213_248, 3), (7, 8)] {
        run(slice, parameters, shards)?;
    }
    Ok("equal slices that cover each unit once, with less than a slice's ranks of padding".into())
}

fn run(slice: Slice, parameters: usize, shards: usize) -> Result<(), String> {
    let what = format!("{parameters} parameters over {shards} ranks");
    let slices: Vec<Range<usize>> = (0..shards).map(|rank| slice(parameters, shards, rank)).collect();
    let mut end = 0;
    for (rank, range) in slices.iter().enumerate() {
        if range.len() != slices[0].len() {
            return Err(format!(
                "{what}: rank {rank} owns {} elements and rank 0 {}",
                range.len(),
                slices[0].len()
            ));
        }
        if range.start != end {
            return Err(format!(
                "{what}: rank {rank}'s slice begins at {}, and the one before ends at {end}",
                range.start
            ));
        }
        end = range.end;
    }
    match end {
        end if end < parameters => Err(format!("{what}: nobody owns the last {}", parameters - end)),
        end if end >= parameters + shards => {
            Err(format!("{what}: {} elements of padding are too many", end - parameters))
        }
        _ => Ok(()),
    }
}
