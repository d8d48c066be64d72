//! Sharded gradients: what a rank does with its slice of reduced gradients.

use crate::Result;
use crate::full::{FullGradients, MicroBatch, UnitBuffers};
use crate::norm::{PartialNorm, global_norm};
use crate::partition::{Partition, UnitId};
use crate::rank::Rank;
use crate::replicas::ReplicaSum;
use device::{Buffer, Class, View};
use events::Pass;
use offload::{Crossing, TransferLabel};
use std::ops::Range;
use std::sync::Arc;

/// This rank's gradient shard of every unit, accumulated over the micro-batches of a step.
pub struct GradientShards {
    shards: UnitBuffers,
    partition: Arc<Partition>,
    after_reduce: AfterReduce,
}

/// What to do with a reduced slice.
pub enum AfterReduce {
    /// Adds it to the rank's shard.
    Accumulate,
    /// Hybrid sharding: adds it to the rank's shard, and sums the shard with the ranks that own the
    /// same shard of other copies.
    SumOverReplicas(Box<ReplicaSum>),
    /// The shards are stored in main memory, where an offloaded optimizer reads them: copies the
    /// slice there while backward continues, and adds it to its shard on arrival. At most one slice
    /// is in flight.
    MoveToHost(Box<HostAccumulator>),
}

/// Adds reduced slices to shards in main memory.
pub struct HostAccumulator {
    in_flight: Option<InFlightSlice>,
    /// Micro-batches per step.
    micro_batches: usize,
    /// Per unit: micro-batches whose slice has arrived.
    arrived: Vec<usize>,
    /// The norm of the shards that are complete, as far as it is measured.
    measured: PartialNorm,
}

/// A reduced slice in flight to main memory.
struct InFlightSlice {
    unit: UnitId,
    crossing: Crossing,
    /// Held until the copy is done, since the copy may still read it; the planner counts it until
    /// then.
    sent: Buffer,
    arrived: Buffer,
}

impl GradientShards {
    /// Returns gradients in `shards`, one per unit of `partition`.
    pub fn new(shards: UnitBuffers, partition: Arc<Partition>, after_reduce: AfterReduce) -> Self {
        GradientShards { shards, partition, after_reduce }
    }

    /// Allocates a buffer for full gradients of `unit`. Zeroes its shard before the first
    /// micro-batch.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn acquire_full(&mut self, rank: &Rank, unit: UnitId, micro: MicroBatch) -> Result<FullGradients> {
        let shard = self.shards.get_mut(unit)?;
        if micro.is_first() {
            rank.kernels().fill(shard.view_mut(), 0.0)?;
        }
        FullGradients::fresh(unit, rank, &self.partition, shard.dtype())
    }

    /// Adds this rank's slice of each unit's `reduced` gradients to its shard, and frees the full
    /// gradients. Under hybrid sharding, queues the shard after the last micro-batch to be summed
    /// over the copies.
    ///
    /// # Errors
    /// If a kernel, a transfer or the collective among replicas fails.
    pub fn accumulate(&mut self, rank: &Rank, reduced: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in reduced {
            let own = self.own(unit, rank);
            match &mut self.after_reduce {
                AfterReduce::Accumulate => {
                    rank.kernels().add(self.shard_mut(unit)?.view_mut(), full.slice(own))?;
                }
                AfterReduce::SumOverReplicas(replicas) => {
                    let shard = self.shards.take(unit)?;
                    let summed = replicas.add(rank, unit, shard, (full, own))?;
                    self.shards.put_all(summed);
                }
                AfterReduce::MoveToHost(accumulator) => {
                    accumulator.wait(rank, &mut self.shards)?;
                    let shard = self.shards.get_mut(unit)?;
                    let part = (unit, accumulator.arrived[unit]);
                    accumulator.in_flight = Some(InFlightSlice::send(rank, part, shard, (full, own))?);
                }
            }
        }
        Ok(())
    }

    /// Accumulates the last reductions of a step, and waits for the sums over replicas or for the
    /// last slice to arrive in main memory. Shards then hold the sum over all ranks.
    ///
    /// # Errors
    /// As [`GradientShards::accumulate`].
    pub fn finish(&mut self, rank: &Rank, reduced: Vec<(UnitId, Buffer)>) -> Result<()> {
        self.accumulate(rank, reduced)?;
        match &mut self.after_reduce {
            AfterReduce::Accumulate => {}
            AfterReduce::SumOverReplicas(replicas) => self.shards.put_all(replicas.finish(rank)?),
            AfterReduce::MoveToHost(accumulator) => accumulator.wait(rank, &mut self.shards)?,
        }
        Ok(())
    }

    /// Returns the norm of all ranks' shards. All ranks call it, once per step, after
    /// [`GradientShards::finish`].
    ///
    /// # Errors
    /// If a kernel or an exchange fails.
    pub fn norm(&mut self, rank: &Rank) -> Result<f64> {
        let GradientShards { shards, partition, after_reduce } = self;
        let own = |unit| shards.slice(unit, partition.slice(unit, rank.shard()));
        let shards = (0..partition.units.len()).map(own).collect::<Result<Vec<_>>>()?;
        match after_reduce {
            AfterReduce::MoveToHost(accumulator) => {
                debug_assert!(
                    accumulator.in_flight.is_none() && accumulator.arrived.iter().all(|&count| count == 0)
                );
                accumulator.measured.take_norm(rank, &shards)
            }
            AfterReduce::Accumulate | AfterReduce::SumOverReplicas(_) => global_norm(rank, &shards),
        }
    }

    /// Aborts the step without an update: discards the gradients in flight to other replicas or to
    /// main memory.
    ///
    /// # Errors
    /// If a transfer to main memory fails.
    pub fn abort(&mut self, rank: &Rank) -> Result<()> {
        match &mut self.after_reduce {
            AfterReduce::Accumulate => Ok(()),
            AfterReduce::SumOverReplicas(sum) => {
                sum.abort();
                Ok(())
            }
            AfterReduce::MoveToHost(accumulator) => {
                accumulator.arrived.fill(0);
                accumulator.measured.clear();
                if let Some(slice) = accumulator.in_flight.take() {
                    rank.transfers.wait(slice.crossing)?;
                }
                Ok(())
            }
        }
    }

    /// Returns the elements of `unit` whose gradients this rank keeps.
    pub fn own(&self, unit: UnitId, rank: &Rank) -> Range<usize> {
        self.partition.slice(unit, rank.shard())
    }

    /// Returns `unit`'s shard, to write.
    ///
    /// # Errors
    /// If it is in flight through a collective.
    pub fn shard_mut(&mut self, unit: UnitId) -> Result<&mut Buffer> {
        self.shards.get_mut(unit)
    }

    /// Returns the shards, to read.
    pub fn shards(&self) -> &UnitBuffers {
        &self.shards
    }
}

impl HostAccumulator {
    /// Returns an accumulator for `units` units in steps of `micro_batches` micro-batches.
    pub fn new(units: usize, micro_batches: usize) -> Self {
        HostAccumulator {
            in_flight: None,
            micro_batches,
            arrived: vec![0; units],
            measured: PartialNorm::default(),
        }
    }

    /// Waits for the slice in flight and adds it to its shard. Measures a complete shard at once,
    /// while it is in a cache and the device computes.
    fn wait(&mut self, rank: &Rank, shards: &mut UnitBuffers) -> Result<()> {
        let Some(InFlightSlice { unit, crossing, sent, arrived }) = self.in_flight.take() else {
            return Ok(());
        };
        rank.transfers.wait(crossing)?;
        drop(sent);
        let shard = shards.get_mut(unit)?;
        if !rank.transfers.device_in_main_memory() {
            add(rank, unit, self.arrived[unit], shard, arrived.view())?;
        }
        self.arrived[unit] += 1;
        if self.arrived[unit] == self.micro_batches {
            self.arrived[unit] = 0;
            self.measured.add(rank, shard.view())?;
        }
        Ok(())
    }
}

/// Adds the `reduced` gradients of `unit` in micro-batch `micro` to their `shard` in main memory,
/// and emits when.
fn add(rank: &Rank, unit: UnitId, micro: usize, shard: &mut Buffer, reduced: View<'_>) -> Result<()> {
    let began = rank.emitter.begin();
    rank.kernels().add(shard.view_mut(), reduced)?;
    rank.emit_pass_on_cpu(Pass::Add, unit, micro, began);
    Ok(())
}

impl InFlightSlice {
    /// Starts to copy elements `own` of `full`, which has just been reduced, to main memory, and
    /// frees `full`. A CPU device adds them to `shard` at once and leaves both buffers unused; they
    /// are allocated anyway, so that every device needs the same memory.
    fn send(
        rank: &Rank,
        (unit, micro): (UnitId, usize),
        shard: &mut Buffer,
        (full, own): (Buffer, Range<usize>),
    ) -> Result<Self> {
        let mut sent = rank.device.allocate(Class::Workspace, full.dtype(), own.len())?;
        if rank.transfers.device_in_main_memory() {
            add(rank, unit, micro, shard, full.slice(own))?;
        } else {
            rank.kernels().copy(sent.view_mut(), full.slice(own))?;
        }
        drop(full);
        let mut arrived = rank.device.allocate_host(Class::Workspace, sent.dtype(), sent.len())?;
        let label = TransferLabel { class: Class::Gradients, unit };
        let complete = rank.shard_group().latest_complete();
        let crossing =
            rank.transfers.copy_or_borrow_since(complete, label, arrived.view_mut(), sent.view())?;
        Ok(InFlightSlice { unit, crossing, sent, arrived })
    }
}

#[cfg(test)]
mod tests;
