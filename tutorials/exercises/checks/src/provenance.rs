//! Numbers that show which ranks they came from, exact in f32 for up to six ranks.
//!
//! Rank r contributes 16^r, so each hexadecimal digit of a sum counts how often a rank is included.
//! If the sums are correct, a second round checks the places: each rank contributes a different
//! number at each place.

use std::ops::Range;

/// Returns a buffer per rank, with that rank's number at each of `places`.
pub(crate) fn buffers(ranks: usize, places: usize, number: fn(usize, usize) -> f32) -> Vec<Vec<f32>> {
    (0..ranks).map(|rank| (0..places).map(|place| number(rank, place)).collect()).collect()
}

/// Returns the number that rank `rank` contributes.
pub(crate) fn contribution(rank: usize) -> f32 {
    16f32.powi(rank as i32)
}

/// Returns the fault of `value`, which should be the sum over all `ranks`. `None` if it is correct.
pub(crate) fn complaint(value: f32, ranks: usize) -> Option<String> {
    if value == (0..ranks).map(contribution).sum::<f32>() {
        return None;
    }
    let count = |rank: usize| (value / contribution(rank)) as u64 % 16;
    let wrong = (0..ranks).find(|&rank| count(rank) != 1)?;
    Some(match count(wrong) {
        0 => format!("rank {wrong}'s contribution is missing"),
        times => format!("rank {wrong}'s contribution is in it {times} times"),
    })
}

/// Returns the number that rank `rank` contributes at `place` of the second round.
pub(crate) fn placed(rank: usize, place: usize) -> f32 {
    ((rank + 1) * (place + 1)) as f32
}

/// Returns the first place of `own` that does not hold the sum over all `ranks` at that place.
/// `buffer` belongs to the second round.
pub(crate) fn misplaced(buffer: &[f32], own: Range<usize>, ranks: usize) -> Option<usize> {
    let sum = |place: usize| (0..ranks).map(|rank| placed(rank, place)).sum::<f32>();
    own.into_iter().find(|&place| buffer[place] != sum(place))
}
