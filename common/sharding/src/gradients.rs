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

    /// Accumulates the last reductions of a step and waits for the sums over replicas. Shards then hold the sum over all
    /// ranks.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mesh::Mesh;
    use collectives::local::{Options, World};
    use device::{Class, DType, Device, Ledger};
    use events::Emitter;
    use model::{Layout, ModelConfig, Wrap};

    /// The shards of rank `number` of two, after `micros` micro-batches whose reduced gradients are `value`'s.
    fn accumulated(
        group: collectives::Group,
        micros: usize,
        value: fn(usize, usize) -> f32,
    ) -> Vec<Vec<f32>> {
        let emitter = Emitter::silent(group.rank());
        let device = Device::cpu(Ledger::new(emitter.clone(), None), 1);
        let rank = Rank { device, mesh: Mesh::World, group, emitter };
        let layout = Layout::new(&ModelConfig { layers: 1, ..ModelConfig::tiny() });
        let partition = Arc::new(Partition::new(&layout, Wrap::Block, 2));
        let units = 0..partition.units.len();
        let slice = |unit| partition.slice(unit, rank.shard());
        let shard = |unit: UnitId| {
            let buffer = rank.device.zeros(Class::Gradients, DType::F32, slice(unit).len()).unwrap();
            (buffer, slice(unit))
        };
        let shards = UnitBuffers::new(units.clone().map(shard).collect(), "gradients");
        let mut gradients = GradientShards::new(shards, partition.clone(), None);
        for index in 0..micros {
            let micro = Micro { index, count: micros };
            for unit in units.clone() {
                let mut full = gradients.full(&rank, unit, micro).unwrap();
                let values: Vec<f32> = (0..full.buffer.len()).map(|at| value(index, at)).collect();
                rank.device.write(full.buffer.view_mut(), &values).unwrap();
                gradients.accumulate(&rank, vec![(unit, full.buffer)]).unwrap();
            }
        }
        gradients.finish(&rank, Vec::new()).unwrap();
        let read = |unit| {
            rank.device.read::<f32>(gradients.shards().get(unit).unwrap().view()).unwrap().into_owned()
        };
        units.map(read).collect()
    }

    /// The sums are exact in f32, so the expectation is one of integers.
    #[test]
    fn a_shard_is_the_sum_of_its_slice_over_micro_batches() {
        let value = |micro: usize, at: usize| ((micro + 1) * (at % 1000)) as f32;
        let threads: Vec<_> = World::new(2, Options::default())
            .into_iter()
            .map(|group| std::thread::spawn(move || accumulated(group, 3, value)))
            .collect();
        for (rank, thread) in threads.into_iter().enumerate() {
            for shard in thread.join().unwrap() {
                let start = rank * shard.len();
                let expected = |at: usize| (6 * ((start + at) % 1000)) as f32;
                assert!(shard.iter().enumerate().all(|(at, &sum)| sum == expected(at)), "rank {rank}");
            }
        }
    }
}
