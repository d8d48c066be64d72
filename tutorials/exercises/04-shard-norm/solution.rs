//! The norm of a gradient that is sharded over ranks.

include!(concat!(env!("OUT_DIR"), "/shard-norm.rs"));

/// Sums squares over the ranks, then takes the root: norms of slices do not add up.
pub fn norm(mine: &[f32], over_ranks: &mut dyn FnMut(f64) -> f64) -> f64 {
    let own: f64 = mine.iter().map(|&g| f64::from(g) * f64::from(g)).sum();
    over_ranks(own).sqrt()
}
