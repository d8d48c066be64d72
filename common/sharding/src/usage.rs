//! What a rank has sent and moved.

use crate::rank::Rank;
use collectives::Traffic;
use offload::Moved;

/// What a rank has sent to others and moved between its places.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Of all groups.
    pub traffic: Traffic,
    /// Bytes that stayed among neighbours; 0 if the ranks form no groups.
    pub to_neighbours: u64,
    /// Between device, main memory and disk.
    pub transfers: Moved,
}

impl Usage {
    /// All that `rank` has done so far.
    pub fn now(rank: &Rank) -> Self {
        Usage {
            traffic: rank.group.overall_traffic(),
            to_neighbours: rank.mesh.neighbours().map_or(0, |group| group.traffic().total()),
            transfers: rank.transfers.moved(),
        }
    }

    /// Seconds in waits: for collectives in all, for peers, for a simulated link; and for transfers
    /// between places.
    pub fn waited(&self) -> [f64; 4] {
        let [all, peers, link] = self.traffic.seconds();
        [all, peers, link, self.transfers.waited.iter().sum()]
    }
}

events::counters! { Usage [] traffic, to_neighbours, transfers }
