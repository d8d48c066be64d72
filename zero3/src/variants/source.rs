//! Where a unit's shards come from.
//!
//! By default every rank contributes the slice that it owns. With secondary shards
//! ([`secondary`](super::secondary)) it keeps, when forward frees a unit, a slice of a second copy
//! that its neighbours share, and backward gathers from that copy.

use super::secondary::SecondaryShards;
use collectives::Group;
use device::Buffer;
use events::Pass;
use sharding::{FullParameters, Rank, Result, UnitBuffers, UnitId};
use trainer::Setup;

/// Where the shards come from that a pass gathers.
pub struct ShardSource {
    secondary: Option<SecondaryShards>,
}

impl ShardSource {
    /// Allocates secondary shards if the run has them.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn new(setup: &Setup) -> Result<Self> {
        let (rank, partition) = (&setup.rank, &setup.partition);
        let secondary = SecondaryShards::new(rank, partition, setup.precision.parameters)?;
        Ok(ShardSource { secondary })
    }

    /// The ranks among which `pass` gathers `unit`, and this rank's shard of it: one of
    /// `parameters`, its own slices, or a secondary one.
    ///
    /// # Errors
    /// If the shard is out.
    pub fn of<'a>(
        &'a self,
        unit: UnitId,
        pass: Pass,
        rank: &'a Rank,
        parameters: &'a UnitBuffers,
    ) -> Result<(&'a Group, &'a Buffer)> {
        match (&self.secondary, rank.secondary_group()) {
            (Some(secondary), Some(neighbours)) if pass == Pass::Backward => {
                Ok((neighbours, secondary.shard(unit)?))
            }
            _ => Ok((rank.shard_group(), parameters.get(unit)?)),
        }
    }

    /// Keeps the secondary shard of what forward is about to free.
    ///
    /// # Errors
    /// If a kernel fails.
    pub fn before_free(&mut self, rank: &Rank, full: &FullParameters, pass: Pass) -> Result<()> {
        match &mut self.secondary {
            Some(secondary) if pass == Pass::Forward => secondary.keep(rank, full),
            _ => Ok(()),
        }
    }
}
