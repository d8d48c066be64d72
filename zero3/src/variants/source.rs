//! Where a unit's shards come from.
//!
//! By default every rank contributes the slice that it owns. With secondary shards
//! ([`secondary`](super::secondary)) it keeps, when forward frees a unit, a slice of a second copy
//! that its neighbours share, and backward gathers from that copy. Slices that rest beyond the
//! device are fetched ([`fetch`](super::fetch)).

use super::context::ShardContext;
use super::fetch::Fetch;
use super::secondary::SecondaryShards;
use collectives::Group;
use device::View;
use events::Pass;
use sharding::{FullParameters, Rank, Result, TakeUpdated, UnitId};
use std::ops::Range;
use trainer::Setup;

/// Where the shards come from that a pass gathers.
pub struct ShardSource {
    secondary: Option<SecondaryShards>,
    fetch: Option<Fetch>,
}

impl TakeUpdated for ShardSource {
    fn has_room(&self, unit: UnitId) -> bool {
        self.fetch.as_ref().is_none_or(|fetch| fetch.has_room(unit))
    }

    fn makes_wait(&self, rank: &Rank, unit: UnitId) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.makes_wait(rank, unit))
    }

    fn take(&mut self, rank: &Rank, unit: UnitId, range: Range<usize>, parameters: View<'_>) -> Result<()> {
        self.fetch.as_mut().map_or(Ok(()), |fetch| fetch.take(rank, unit, range, parameters))
    }
}

impl ShardSource {
    /// Allocates secondary shards, and room for fetched ones, if the run has them.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn new(setup: &Setup) -> Result<Self> {
        let (rank, partition) = (&setup.rank, &setup.partition);
        let secondary = SecondaryShards::new(rank, partition, setup.precision.parameters)?;
        Ok(ShardSource { secondary, fetch: Fetch::new(setup)? })
    }

    /// The ranks among which `pass` gathers `unit`, and this rank's shard of it: its own slice,
    /// which is updated, or a secondary one. The caller issues its all-gather before the next call.
    ///
    /// # Errors
    /// If the shard is out, or cannot be fetched.
    pub fn of<'a>(
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
        let shard = match &mut self.fetch {
            Some(fetch) => fetch.shard(unit, pass, context)?,
            None => context.parameters.get(unit)?.view(),
        };
        Ok((rank.shard_group(), shard))
    }

    /// Fetches the first shards of the next pass, if they rest beyond the device and are updated.
    ///
    /// # Errors
    /// If a transfer fails.
    pub fn after_update(&mut self, context: ShardContext<'_>) -> Result<()> {
        self.fetch.as_mut().map_or(Ok(()), |fetch| fetch.ahead(context))
    }

    /// Keeps the secondary shard of what forward is about to free. Fetches on, since slots are free
    /// whose shards have been gathered.
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
        match &mut self.fetch {
            Some(fetch) if pass != Pass::Evaluate => fetch.before_free(full.unit, pass, context),
            _ => Ok(()),
        }
    }

    /// Drops what is being fetched: the step ends without an update.
    ///
    /// # Errors
    /// If the disk fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        self.fetch.as_mut().map_or(Ok(()), |fetch| fetch.stop(rank))
    }
}
