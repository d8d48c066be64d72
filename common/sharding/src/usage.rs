//! The traffic and transfers of a rank.

use crate::rank::Rank;
use collectives::Traffic;
use offload::Moved;

/// The traffic of a rank with other ranks, and its transfers between places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// The traffic of all groups.
    pub traffic: Traffic,
    /// Bytes that stayed among neighbours; 0 if the ranks form no groups.
    pub to_neighbours: u64,
    /// The transfers between device, main memory and disk.
    pub transfers: Moved,
}

impl Usage {
    /// Returns the usage of `rank` so far.
    pub fn now(rank: &Rank) -> Self {
        Usage {
            traffic: rank.group.overall_traffic(),
            to_neighbours: rank.mesh.neighbours().map_or(0, |group| group.traffic().total()),
            transfers: rank.transfers.moved(),
        }
    }

    /// Returns the seconds in waits: for all collectives, for peers, for a simulated link, and for
    /// transfers between places.
    pub fn waited(&self) -> [f64; 4] {
        let [all, peers, link] = self.traffic.seconds();
        [all, peers, link, self.transfers.waited.iter().sum()]
    }
}

events::counters! { Usage [] traffic, to_neighbours, transfers }
