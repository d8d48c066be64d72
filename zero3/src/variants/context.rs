//! The state that a shard source reads.

use sharding::{GatherWindow, Optimizer, Rank, UnitBuffers};

/// The state that a shard source reads.
pub struct ShardContext<'a> {
    /// This rank's device, groups and transfers.
    pub rank: &'a Rank,
    /// This rank's slices of the parameters.
    pub parameters: &'a UnitBuffers,
    /// The optimizer, whose update may still be in progress.
    pub optimizer: &'a mut Optimizer,
    /// The units that are gathered or in flight.
    pub window: &'a GatherWindow,
}
