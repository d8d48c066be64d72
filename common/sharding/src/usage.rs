//! The traffic, transfers, processor time and kernels of a rank.

use crate::rank::Rank;
use collectives::Traffic;
use device::meter::{Kind, Spent};
use events::cpu;
use offload::TransferCounters;
use std::time::Duration;

/// The traffic of a rank with other ranks, its transfers between places, its processor time and its
/// kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// The traffic of all groups.
    pub traffic: Traffic,
    /// Bytes that stayed among neighbours; 0 if the ranks form no groups.
    pub to_neighbours: u64,
    /// The transfers between device, main memory and disk.
    pub transfers: TransferCounters,
    /// Processor time of the rank's thread.
    pub processor: Duration,
    /// Its kernels by kind, in [`Kind::ALL`]'s order; zeros on a GPU, whose times are read later.
    pub kernels: [Spent; Kind::ALL.len()],
}

impl Usage {
    /// Returns the usage of `rank`, whose thread calls this, so far.
    pub fn now(rank: &Rank) -> Self {
        Usage {
            traffic: rank.group.overall_traffic(),
            to_neighbours: rank.mesh.neighbours().map_or(0, |group| group.traffic().total()),
            transfers: rank.transfers.moved(),
            processor: cpu::of_thread(),
            kernels: rank.device.spent_now(),
        }
    }

    /// Returns the seconds in waits for transfers between places.
    pub fn seconds_for_places(&self) -> f64 {
        self.transfers.waited.iter().sum()
    }

    /// Returns the seconds of `elapsed`, over which `self` was measured, in which the thread
    /// neither ran nor waited for transfers or collectives.
    pub fn off_processor(&self, elapsed: Duration) -> f64 {
        let idle = elapsed.as_secs_f64() - self.processor.as_secs_f64();
        idle - self.traffic.seconds_off_processor() - self.seconds_for_places()
    }
}

events::counters! { Usage [kernels] traffic, to_neighbours, transfers, processor }
