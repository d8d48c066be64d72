//! Numbers that say where they came from: rank r contributes 16^r, so each hexadecimal digit of a sum counts how often a
//! rank is in it. Exact in f32 for up to six ranks.

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
