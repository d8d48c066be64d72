//! The order in which lists show ranks.

use crate::overlap;
use crate::player::Scene;
use std::cmp::Reverse;

/// The orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankOrder {
    /// By number.
    #[default]
    Number,
    /// By the time that the other ranks waited for a rank, the longest first.
    Slowest,
}

impl RankOrder {
    pub(crate) fn other(self) -> Self {
        match self {
            RankOrder::Number => RankOrder::Slowest,
            RankOrder::Slowest => RankOrder::Number,
        }
    }

    /// Returns all ranks of `scene` in this order.
    pub fn ranks(self, scene: &Scene) -> Vec<usize> {
        let mut ranks: Vec<usize> = (0..scene.now.ranks.len()).collect();
        if self == RankOrder::Slowest {
            let delays = delays(scene);
            ranks.sort_by_key(|&rank| Reverse(delays.get(rank).copied().unwrap_or(0)));
        }
        ranks
    }
}

/// Returns how long the other ranks waited for each rank, in nanoseconds: in the latest finished
/// step, so that the order changes once per step, or since the beginning if no step has finished.
pub fn delays(scene: &Scene) -> Vec<u64> {
    let steps = &scene.window.steps;
    let finished = steps.iter().rev().find_map(|step| Some((step.from, step.to?)));
    let measured = overlap::measure(&scene.window, finished.unwrap_or((0, scene.now.at)));
    let of = |rank: usize| measured.iter().map(|overlap| overlap.waited_for[rank]).sum();
    (0..measured.len()).map(of).collect()
}
