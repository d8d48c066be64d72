//! Sharded gradients: what follows a reduction.

use crate::Result;
use crate::full::{FullGradients, Micro, UnitBuffers};
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use crate::replicas::ReplicaSum;
use device::Buffer;
use std::ops::Range;
use std::sync::Arc;

/// This rank's gradient shard of every unit, which add up over the micro-batches of a step.
pub struct GradientShards {
    shards: UnitBuffers,
    partition: Arc<Partition>,
    /// Hybrid sharding: the sum over the ranks that own the same shard of other copies.
    replicas: Option<ReplicaSum>,
}

impl GradientShards {
    /// `shards` of the units of `partition`; `replicas` if there are several copies of them.
    pub fn new(shards: UnitBuffers, partition: Arc<Partition>, replicas: Option<ReplicaSum>) -> Self {
        GradientShards { shards, partition, replicas }
    }

    /// A fresh place for full gradients of `unit`. Its shard is zeroed before the first micro-batch.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn full(&mut self, rank: &Rank, unit: UnitId, micro: Micro) -> Result<FullGradients> {
        let shard = self.shards.get_mut(unit)?;
        if micro.is_first() {
            rank.kernels().fill(shard.view_mut(), 0.0)?;
        }
        FullGradients::fresh(unit, rank, &self.partition, shard.dtype())
    }

    /// Adds this rank's slice of each unit's `reduced` gradients to its shard, and frees the full ones. Where there are
    /// several copies, the sum of the last micro-batch is queued to be summed over them.
    ///
    /// # Errors
    /// If a kernel or the collective among replicas fails.
    pub fn accumulate(&mut self, rank: &Rank, reduced: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in reduced {
            let own = self.own(unit, rank);
            let Some(replicas) = &mut self.replicas else {
                rank.kernels().add(self.shard_mut(unit)?.view_mut(), full.slice(own))?;
                continue;
            };
            let shard = self.shards.take(unit)?;
            let summed = replicas.add(rank, unit, shard, (full, own))?;
            self.shards.put_all(summed);
        }
        Ok(())
    }

    /// As [`GradientShards::accumulate`] with the last of a step. Shards then hold the sum over all ranks.
    ///
    /// # Errors
    /// As [`GradientShards::accumulate`].
    pub fn finish(&mut self, rank: &Rank, reduced: Vec<(UnitId, Buffer)>) -> Result<()> {
        self.accumulate(rank, reduced)?;
        if let Some(replicas) = &mut self.replicas {
            self.shards.put_all(replicas.finish(rank)?);
        }
        Ok(())
    }

    /// The elements of `unit` whose gradients this rank keeps.
    pub fn own(&self, unit: UnitId, rank: &Rank) -> Range<usize> {
        self.partition.slice(unit, rank.shard())
    }

    /// `unit`'s shard, to write.
    ///
    /// # Errors
    /// If it is on its way through a collective.
    pub fn shard_mut(&mut self, unit: UnitId) -> Result<&mut Buffer> {
        self.shards.get_mut(unit)
    }

    /// The shards, to read.
    pub fn shards(&self) -> &UnitBuffers {
        &self.shards
    }
}
