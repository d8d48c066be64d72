//! What finding a shard needs.

use sharding::{GatherWindow, Optimizer, Rank, UnitBuffers};

/// What finding a shard needs.
pub struct ShardContext<'a> {
    /// The worker.
    pub rank: &'a Rank,
    /// Its own slices.
    pub parameters: &'a UnitBuffers,
    /// Whose update may be under way.
    pub optimizer: &'a mut Optimizer,
    /// The units already gathered.
    pub window: &'a GatherWindow,
}
