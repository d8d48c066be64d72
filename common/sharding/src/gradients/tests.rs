//! A shard against the plain sum of its slice.

use super::*;
use collectives::local::{Options, groups};
use device::DType;
use model::{Layout, ModelConfig, Wrap};

/// Of the steps that come before the last one, what the gradients are multiplied by: their largest
/// magnitude keeps its exponent, grows, shrinks, and vanishes.
const STEPS_BEFORE: [f32; 5] = [1.0, 1.0, 64.0, 0.25, 0.0];

/// The shards of a rank of two, after `micros` micro-batches whose reduced gradients are `value`'s,
/// and their norm, which must be [`global_norm`]'s; so must those of [`STEPS_BEFORE`]. Others of
/// half a step come first, and that step ends early.
fn accumulated(
    group: collectives::Group,
    (micros, after_reduce): (usize, fn(usize, usize) -> AfterReduce),
    value: fn(usize, usize) -> f32,
) -> (Vec<Vec<f32>>, f64) {
    let rank = Rank::for_tests(group);
    let layout = Layout::new(&ModelConfig { layers: 1, ..ModelConfig::tiny() });
    let partition = Arc::new(Partition::new(&layout, Wrap::Block, 2));
    let units = 0..partition.units.len();
    let slice = |unit| partition.slice(unit, rank.shard());
    let shard = |unit: UnitId| {
        let buffer = rank.device.zeros(Class::Gradients, DType::F32, slice(unit).len()).unwrap();
        (buffer, slice(unit))
    };
    let shards = UnitBuffers::new(units.clone().map(shard).collect(), "gradients");
    let mut gradients = GradientShards::new(shards, partition.clone(), after_reduce(units.len(), micros));
    let add = |gradients: &mut GradientShards, index: usize, factor: f32| {
        for unit in units.clone() {
            let micro = MicroBatch { index, count: micros };
            let mut full = gradients.acquire_full(&rank, unit, micro).unwrap();
            let values: Vec<f32> = (0..full.buffer.len()).map(|at| factor * value(index, at)).collect();
            rank.device.write(full.buffer.view_mut(), &values).unwrap();
            gradients.accumulate(&rank, vec![(unit, full.buffer)]).unwrap();
        }
    };
    add(&mut gradients, 0, 1.0);
    gradients.abort(&rank).unwrap();
    let mut norm = f64::NAN;
    for factor in STEPS_BEFORE.into_iter().chain([1.0]) {
        (0..micros).for_each(|index| add(&mut gradients, index, factor));
        gradients.finish(&rank, Vec::new()).unwrap();
        let all: Vec<_> = units.clone().map(|unit| gradients.shards().get(unit).unwrap().view()).collect();
        let expected = global_norm(&rank, &all).unwrap();
        norm = gradients.norm(&rank).unwrap();
        assert_eq!(norm.to_bits(), expected.to_bits(), "{norm} {expected}");
    }
    let read =
        |unit| rank.device.read::<f32>(gradients.shards().get(unit).unwrap().view()).unwrap().into_owned();
    (units.map(read).collect(), norm)
}

/// Runs `accumulated` on both ranks.
fn on_both_ranks(
    how: (usize, fn(usize, usize) -> AfterReduce),
    value: fn(usize, usize) -> f32,
) -> Vec<(Vec<Vec<f32>>, f64)> {
    let threads: Vec<_> = groups(2, Options::default())
        .into_iter()
        .map(|group| std::thread::spawn(move || accumulated(group, how, value)))
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

const ALTERNATIVES: [fn(usize, usize) -> AfterReduce; 2] = [
    |_, _| AfterReduce::Accumulate,
    |units, micros| AfterReduce::MoveToHost(Box::new(HostAccumulator::new(units, micros))),
];

/// The sums are exact in f32, so the expectation is one of integers.
#[test]
fn a_shard_is_the_sum_of_its_slice_over_micro_batches() {
    let value = |micro: usize, at: usize| ((micro + 1) * (at % 1000)) as f32;
    for after_reduce in ALTERNATIVES {
        for (rank, (shards, norm)) in on_both_ranks((3, after_reduce), value).into_iter().enumerate() {
            assert!(norm.is_finite());
            for shard in shards {
                let start = rank * shard.len();
                let expected = |at: usize| (6 * ((start + at) % 1000)) as f32;
                assert!(shard.iter().enumerate().all(|(at, &sum)| sum == expected(at)), "rank {rank}");
            }
        }
    }
}

/// An infinity that one micro-batch brings, and a sum of opposite ones, which is NaN.
#[test]
fn what_is_not_finite_reaches_the_norm() {
    for after_reduce in ALTERNATIVES {
        let infinite = |micro: usize, at: usize| if (micro, at) == (1, 7) { f32::INFINITY } else { 1.0 };
        assert!(on_both_ranks((3, after_reduce), infinite).iter().all(|(_, norm)| *norm == f64::INFINITY));
        let opposite = |micro: usize, at: usize| match (micro, at) {
            (0, 7) => f32::INFINITY,
            (2, 7) => f32::NEG_INFINITY,
            _ => 1.0,
        };
        assert!(on_both_ranks((3, after_reduce), opposite).iter().all(|(_, norm)| norm.is_nan()));
    }
}
