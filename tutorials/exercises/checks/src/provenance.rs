//! Numbers that say where they came from, exact in f32 for up to six ranks.
//!
//! Rank r contributes 16^r, so each hexadecimal digit of a sum counts how often a rank is in it. Where that is right, a
//! second round asks for the places: each rank contributes another number everywhere.

use std::ops::Range;

/// What rank `rank` contributes.
pub(crate) fn contribution(rank: usize) -> f32 {
    16f32.powi(rank as i32)
}

/// The sum of all ranks' contributions.
pub(crate) fn everybody(ranks: usize) -> f32 {
    (0..ranks).map(contribution).sum()
}

/// What is wrong with `value` where the sum of all `ranks` should be.
pub(crate) fn complaint(value: f32, ranks: usize) -> Option<String> {
    if value == everybody(ranks) {
        return None;
    }
    let count = |rank: usize| (value / contribution(rank)) as u64 % 16;
    let wrong = (0..ranks).find(|&rank| count(rank) != 1)?;
    Some(match count(wrong) {
        0 => format!("rank {wrong}'s contribution is missing"),
        times => format!("rank {wrong}'s contribution is in it {times} times"),
    })
}

/// What rank `rank` contributes at `place` of the second round.
pub(crate) fn placed(rank: usize, place: usize) -> f32 {
    ((rank + 1) * (place + 1)) as f32
}

/// The first place of `own`, as the second round's buffers have them, that does not hold the sum of all `ranks` there.
pub(crate) fn misplaced(buffer: &[f32], own: Range<usize>, ranks: usize) -> Option<usize> {
    let sum = |place: usize| (0..ranks).map(|rank| placed(rank, place)).sum::<f32>();
    own.into_iter().find(|&place| buffer[place] != sum(place))
}
