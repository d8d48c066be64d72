//! What a rank looks at when it looks for a shard.

use sharding::{GatherWindow, Optimizer, Rank, UnitBuffers};

/// What a rank holds while it looks for a shard.
pub struct Held<'a> {
    /// The worker.
    pub rank: &'a Rank,
    /// Its own slices.
    pub parameters: &'a UnitBuffers,
    /// Whose update may be under way.
    pub optimizer: &'a mut Optimizer,
    /// The units already gathered.
    pub window: &'a GatherWindow,
}
