//! The shards from which a pass gathers a unit.
//!
//! By default every rank contributes the slice that it owns. With secondary shards
//! ([`secondary`](super::secondary)) a rank stores, when forward frees a unit, its slice of a
//! second copy that its neighbours share, and backward gathers from that copy. Slices that are
//! stored beyond the device are fetched ([`fetch`](super::fetch)).

use super::context::ShardContext;
use super::fetch::ShardFetcher;
use super::secondary::SecondaryShards;
use collectives::Group;
use device::View;
use events::Pass;
use sharding::{FullParameters, Rank, Result, UnitId, UpdatedShardSink};
use trainer::Setup;

/// Provides the shards that a pass gathers.
pub struct ShardSource {
    secondary: Option<SecondaryShards>,
    fetcher: Option<ShardFetcher>,
}

impl ShardSource {
    /// Allocates secondary shards and slots for fetched shards, if the run has them.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn new(setup: &Setup) -> Result<Self> {
        let (rank, partition) = (&setup.rank, &setup.partition);
        let secondary = SecondaryShards::new(rank, partition, setup.precision.parameters)?;
        Ok(ShardSource { secondary, fetcher: ShardFetcher::new(setup)? })
    }

    /// Returns the receiver of updated shards; `None` if parameters are stored on the device.
    pub fn sink(&mut self) -> Option<&mut (dyn UpdatedShardSink + 'static)> {
        self.fetcher.as_mut().map(|fetcher| fetcher as _)
    }

    /// Returns the group in which `pass` gathers `unit`, and this rank's shard of it: its own
    /// slice, which is updated, or a secondary one. The caller issues the all-gather before the
    /// next call.
    ///
    /// # Errors
    /// If the shard is out, or cannot be fetched.
    pub fn shard<'a>(
        &'a mut self,
        unit: UnitId,
        pass: Pass,
        context: ShardContext<'a>,
    ) -> Result<(&'a Group, View<'a>)> {
        if let (Some(secondary), Some(neighbours), Pass::Backward) =
            (&self.secondary, context.rank.secondary_group(), pass)
        {
            return Ok((neighbours, secondary.shard(unit)?.view()));
        }
        let rank = context.rank;
        let shard = match &mut self.fetcher {
            Some(fetcher) => fetcher.shard(unit, pass, context)?,
            None => context.parameters.get(unit)?.view(),
        };
        Ok((rank.shard_group(), shard))
    }

    /// Starts to fetch the first shards of the next pass, if they are stored beyond the device and
    /// updated.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn after_update(&mut self, context: ShardContext<'_>) -> Result<()> {
        match &mut self.fetcher {
            Some(fetcher) => fetcher.prefetch_for_forward(context),
            None => Ok(()),
        }
    }

    /// Stores the secondary shard of `full`, which forward is about to free. Starts to fetch the
    /// next shards, since slots whose shards have been gathered are free.
    ///
    /// # Errors
    /// If a kernel or a transfer fails.
    pub fn before_free(
        &mut self,
        full: &FullParameters,
        pass: Pass,
        context: ShardContext<'_>,
    ) -> Result<()> {
        if let (Some(secondary), Pass::Forward) = (&mut self.secondary, pass) {
            secondary.keep(context.rank, full)?;
        }
        match &mut self.fetcher {
            Some(fetcher) if pass != Pass::Evaluate => fetcher.before_free(full.unit, pass, context),
            _ => Ok(()),
        }
    }

    /// Aborts the step without an update: discards shards that are being fetched.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn abort(&mut self, rank: &Rank) -> Result<()> {
        match &mut self.fetcher {
            Some(fetcher) => fetcher.abort(rank),
            None => Ok(()),
        }
    }
}
