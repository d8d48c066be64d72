//! A shard against the plain sum of its slice.

use super::*;
use crate::mesh::Mesh;
use collectives::local::{Options, World};
use device::{DType, Device, Ledger};
use events::Emitter;
use model::{Layout, ModelConfig, Wrap};
use offload::{Options as Ways, Transfers};

/// The shards of rank `number` of two, after `micros` micro-batches whose reduced gradients are
/// `value`'s.
fn accumulated(group: collectives::Group, micros: usize, value: fn(usize, usize) -> f32) -> Vec<Vec<f32>> {
    let emitter = Emitter::silent(group.rank());
    let device = Device::cpu(Ledger::new(emitter.clone(), None), 1);
    let transfers = Transfers::new(device.clone(), emitter.clone(), Ways::default()).unwrap();
    let rank = Rank { device, mesh: Mesh::World, group, transfers, emitter };
    let layout = Layout::new(&ModelConfig { layers: 1, ..ModelConfig::tiny() });
    let partition = Arc::new(Partition::new(&layout, Wrap::Block, 2));
    let units = 0..partition.units.len();
    let slice = |unit| partition.slice(unit, rank.shard());
    let shard = |unit: UnitId| {
        let buffer = rank.device.zeros(Class::Gradients, DType::F32, slice(unit).len()).unwrap();
        (buffer, slice(unit))
    };
    let shards = UnitBuffers::new(units.clone().map(shard).collect(), "gradients");
    let mut gradients = GradientShards::new(shards, partition.clone(), WithShards::Add);
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
    let read =
        |unit| rank.device.read::<f32>(gradients.shards().get(unit).unwrap().view()).unwrap().into_owned();
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
