//! Sharded gradients: what follows a reduction.

use crate::Result;
use crate::full::{FullGradients, Micro, UnitBuffers};
use crate::norm::{Measured, global_norm};
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
    ToHost(Box<Arrivals>),
}

/// Reduced slices that arrive in main memory.
pub struct Arrivals {
    on_its_way: Option<Arrival>,
    /// Micro-batches of a step.
    micro_batches: usize,
    /// Per unit: how many of them have arrived.
    arrived: Vec<usize>,
    /// What is measured of the shards that are complete.
    measured: Measured,
}

/// A reduced slice on its way to main memory.
struct Arrival {
    unit: UnitId,
    crossing: Crossing,
    /// Held until the copy is over, which may still read it; the planner counts it so long.
    sent: Buffer,
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
                WithShards::ToHost(arrivals) => {
                    arrivals.settle(rank, &mut self.shards)?;
                    let shard = self.shards.get_mut(unit)?;
                    arrivals.on_its_way = Some(Arrival::send(rank, unit, shard, (full, own))?);
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
        match &mut self.follows {
            WithShards::Add => {}
            WithShards::Replicas(replicas) => self.shards.put_all(replicas.finish(rank)?),
            WithShards::ToHost(arrivals) => arrivals.settle(rank, &mut self.shards)?,
        }
        Ok(())
    }

    /// Returns the norm of all ranks' shards. All ranks call it, once per step, after
    /// [`GradientShards::finish`].
    ///
    /// # Errors
    /// If a kernel or an exchange fails.
    pub fn norm(&mut self, rank: &Rank) -> Result<f64> {
        let GradientShards { shards, partition, follows } = self;
        let own = |unit| shards.slice(unit, partition.slice(unit, rank.shard()));
        let shards = (0..partition.units.len()).map(own).collect::<Result<Vec<_>>>()?;
        match follows {
            WithShards::ToHost(arrivals) => {
                debug_assert!(
                    arrivals.on_its_way.is_none() && arrivals.arrived.iter().all(|&count| count == 0)
                );
                arrivals.measured.norm(rank, &shards)
            }
            WithShards::Add | WithShards::Replicas(_) => global_norm(rank, &shards),
        }
    }

    /// Drops the gradients that are on their way to other replicas or to main memory: no update
    /// follows.
    ///
    /// # Errors
    /// If a transfer to main memory fails.
    pub fn stop(&mut self, rank: &Rank) -> Result<()> {
        match &mut self.follows {
            WithShards::Add => Ok(()),
            WithShards::Replicas(sum) => {
                sum.stop();
                Ok(())
            }
            WithShards::ToHost(arrivals) => {
                arrivals.arrived.fill(0);
                arrivals.measured.clear();
                let on_its_way = arrivals.on_its_way.take();
                Ok(on_its_way.map_or(Ok(()), |arrival| rank.transfers.wait(arrival.crossing))?)
            }
        }
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

impl Arrivals {
    /// Nothing of so many units has arrived yet, in steps of so many micro-batches.
    pub fn new(units: usize, micro_batches: usize) -> Self {
        Arrivals { on_its_way: None, micro_batches, arrived: vec![0; units], measured: Measured::default() }
    }

    /// Adds what is on its way to its shard, once it is there. A shard that is complete is measured
    /// at once, while it is in a cache and the device computes.
    fn settle(&mut self, rank: &Rank, shards: &mut UnitBuffers) -> Result<()> {
        let Some(Arrival { unit, crossing, sent, arrived }) = self.on_its_way.take() else { return Ok(()) };
        rank.transfers.wait(crossing)?;
        drop(sent);
        let shard = shards.get_mut(unit)?;
        if !rank.transfers.device_in_main_memory() {
            rank.kernels().add(shard.view_mut(), arrived.view())?;
        }
        self.arrived[unit] += 1;
        if self.arrived[unit] == self.micro_batches {
            self.arrived[unit] = 0;
            self.measured.add(rank, shard.view())?;
        }
        Ok(())
    }
}

impl Arrival {
    /// Sends elements `own` of `full`, which have just come back from a reduction, on their way to
    /// `shard`, and frees the rest. A device that lies in main memory adds them at once, and has both
    /// buffers without using them, so that every device takes the same room.
    fn send(
        rank: &Rank,
        unit: UnitId,
        shard: &mut Buffer,
        (full, own): (Buffer, Range<usize>),
    ) -> Result<Self> {
        let mut sent = rank.device.allocate(Class::Workspace, full.dtype(), own.len())?;
        match rank.transfers.device_in_main_memory() {
            true => rank.kernels().add(shard.view_mut(), full.slice(own))?,
            false => rank.kernels().copy(sent.view_mut(), full.slice(own))?,
        }
        drop(full);
        let mut arrived = rank.device.allocate_host(Class::Workspace, sent.dtype(), sent.len())?;
        let cargo = Cargo { class: Class::Gradients, unit };
        let complete = rank.shard_group().latest_complete();
        let crossing = rank.transfers.share_since(complete, cargo, arrived.view_mut(), sent.view())?;
        Ok(Arrival { unit, crossing, sent, arrived })
    }
}

#[cfg(test)]
mod tests;
