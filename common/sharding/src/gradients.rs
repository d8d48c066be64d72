//! Sharded gradients: what follows a reduction.

use crate::Result;
use crate::full::{FullGradients, Micro, UnitBuffers};
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use crate::replicas::ReplicaSum;
use device::{Buffer, Class};
use offload::{Cargo, Crossing};
use std::ops::Range;
use std::sync::Arc;

/// This rank's gradient shard of every unit, which add up over the micro-batches of a step.
pub struct GradientShards {
    shards: UnitBuffers,
    partition: Arc<Partition>,
    follows: WithShards,
}

/// What follows when a rank's slice of a unit's gradients is reduced.
pub enum WithShards {
    /// It is added to the rank's shard.
    Add,
    /// Hybrid sharding: the sum over the ranks that own the same shard of other copies.
    Replicas(Box<ReplicaSum>),
    /// The shards rest in main memory, where an offloaded optimizer reads them: the slice travels
    /// there while backward continues, and is added on arrival. At most one is on its way.
    ToHost(Option<Box<Arrival>>),
}

/// A reduced slice on its way to main memory.
pub struct Arrival {
    unit: UnitId,
    crossing: Crossing,
    /// Held until the copy is over, which may still read it; the planner counts it so long.
    _sent: Buffer,
    arrived: Buffer,
}

impl GradientShards {
    /// `shards` of the units of `partition`, and what `follows` a reduction.
    pub fn new(shards: UnitBuffers, partition: Arc<Partition>, follows: WithShards) -> Self {
        GradientShards { shards, partition, follows }
    }

    /// A fresh place for full gradients of `unit`. Its shard is zeroed before the first
    /// micro-batch.
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

    /// Adds this rank's slice of each unit's `reduced` gradients to its shard, and frees the full
    /// ones. Where there are several copies, the sum of the last micro-batch is queued to be summed
    /// over them.
    ///
    /// # Errors
    /// If a kernel, a transfer or the collective among replicas fails.
    pub fn accumulate(&mut self, rank: &Rank, reduced: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in reduced {
            let own = self.own(unit, rank);
            match &mut self.follows {
                WithShards::Add => {
                    rank.kernels().add(self.shard_mut(unit)?.view_mut(), full.slice(own))?;
                }
                WithShards::Replicas(replicas) => {
                    let shard = self.shards.take(unit)?;
                    let summed = replicas.add(rank, unit, shard, (full, own))?;
                    self.shards.put_all(summed);
                }
                WithShards::ToHost(_) => {
                    self.settle(rank)?;
                    self.follows = WithShards::ToHost(Some(Box::new(Arrival::send(rank, unit, full, own)?)));
                }
            }
        }
        Ok(())
    }

    /// Accumulates the last reductions of a step and waits for the sums over replicas, or for the
    /// last arrival in main memory. Shards then hold the sum over all ranks.
    ///
    /// # Errors
    /// As [`GradientShards::accumulate`].
    pub fn finish(&mut self, rank: &Rank, reduced: Vec<(UnitId, Buffer)>) -> Result<()> {
        self.accumulate(rank, reduced)?;
        if let WithShards::Replicas(replicas) = &mut self.follows {
            self.shards.put_all(replicas.finish(rank)?);
        }
        self.settle(rank)
    }

    /// Drops the gradients that are on their way to main memory: no update follows.
    ///
    /// # Errors
    /// If the transfer fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        let WithShards::ToHost(arrival) = &mut self.follows else { return Ok(()) };
        Ok(arrival.take().map_or(Ok(()), |arrival| rank.transfers.wait(arrival.crossing))?)
    }

    /// Adds what is on its way to main memory to its shard, once it is there.
    fn settle(&mut self, rank: &Rank) -> Result<()> {
        let WithShards::ToHost(arrival) = &mut self.follows else { return Ok(()) };
        let Some(arrival) = arrival.take() else { return Ok(()) };
        let Arrival { unit, crossing, arrived, _sent } = *arrival;
        rank.transfers.wait(crossing)?;
        Ok(rank.kernels().add(self.shard_mut(unit)?.view_mut(), arrived.view())?)
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

impl Arrival {
    /// Sends elements `own` of `full` on their way, and frees the rest.
    fn send(rank: &Rank, unit: UnitId, full: Buffer, own: Range<usize>) -> Result<Self> {
        let mut sent = rank.device.allocate(Class::Workspace, full.dtype(), own.len())?;
        rank.kernels().copy(sent.view_mut(), full.slice(own))?;
        drop(full);
        let mut arrived = rank.device.allocate_host(Class::Workspace, sent.dtype(), sent.len())?;
        let cargo = Cargo { class: Class::Gradients, unit };
        let crossing = rank.transfers.copy(cargo, arrived.view_mut(), sent.view())?;
        Ok(Arrival { unit, crossing, _sent: sent, arrived })
    }
}

#[cfg(test)]
mod tests;
