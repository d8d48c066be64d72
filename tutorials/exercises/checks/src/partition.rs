//! Slices of a padded unit.

use crate::{Figure, Score, Verdict};
use prediction::{Recipe, Stage};
use std::ops::Range;

/// The function under check: (parameters, shards, rank) to the rank's slice.
pub type Slice = fn(usize, usize, usize) -> Range<usize>;

/// Units of several sizes, each split for some number of ranks.
const UNITS: [(usize, usize); 5] = [(12, 4), (10, 4), (1, 3), (213_248, 3), (7, 8)];

/// Checks the slices of these units.
pub fn check(slice: Slice) -> Verdict {
    let mut padded = Figure::of("elements with padding");
    for (parameters, shards) in UNITS {
        let planned = Recipe::FP32.model_states(&[parameters as u64], shards, Stage::Zero1);
        padded.add(run(slice, parameters, shards)? as u64, planned.weights / Recipe::FP32.weights);
    }
    Ok(Score::right("equal slices that cover each unit once").with(padded))
}

/// Returns the total number of elements in all slices.
fn run(slice: Slice, parameters: usize, shards: usize) -> Result<usize, String> {
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
        end if end < parameters => Err(format!("{what}: no rank owns the last {}", parameters - end)),
        _ => Ok(end),
    }
}
