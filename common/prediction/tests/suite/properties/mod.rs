//! The walk against closed forms over models of all shapes.

use events::{Class, Operation};
use model::{Checkpointing, ModelConfig, Wrap};
use prediction::Strategy as Sharding;
use prediction::{
    BackwardPrefetch, Gathering, Job, Partition, RankPrediction, Recipe, RunCounts, Stage,
    largest_batch_within, predict,
};
use proptest::prelude::*;

mod gathering;
mod letters;
mod memory;
mod offload;
mod reducing;
mod strategies;
mod theory;
mod traffic;

use letters::Letters;

const F32: u64 = 4;

/// Returns a model of any shape, a batch and a world size.
fn jobs() -> impl Strategy<Value = Job> {
    let shape = (1usize..60, 1usize..40, 1usize..6, 1usize..4, 1usize..4, any::<bool>());
    let checkpointing = proptest::sample::select(Checkpointing::ALL.to_vec());
    let run = (1usize..4, 1usize..20, 1usize..4, 1usize..9, checkpointing);
    (shape, 1usize..9, 1usize..50, run).prop_map(|(shape, head_dim, feed_forward, run)| {
        let (vocabulary, width, layers, kv_heads, groups, tied) = shape;
        let (batch_size, tokens, micro_batches, world_size, checkpointing) = run;
        let config = ModelConfig {
            vocabulary,
            width,
            layers,
            heads: kv_heads * groups,
            kv_heads,
            head_dim,
            feed_forward,
            tied,
            ..ModelConfig::tiny()
        };
        Job { batch_size, tokens, micro_batches, checkpointing, ..Job::new(config, Stage::Ddp, world_size) }
    })
}

fn ranks(job: &Job) -> Vec<RankPrediction> {
    predict(job).unwrap().ranks
}

fn peak(job: &Job, class: Class) -> u64 {
    ranks(job)[0].memory.peak(class)
}

/// Returns the most elements at once of a unit of `padded` and those after it, as long as those
/// hold fewer than `ahead`.
fn largest_with_ahead(padded: &[u64], ahead: u64) -> u64 {
    let from = |first: usize| {
        let following = padded[first + 1..].iter().scan(0, |sum, &elements| {
            let more = *sum < ahead;
            *sum += elements;
            more.then_some(elements)
        });
        padded[first] + following.sum::<u64>()
    };
    (0..padded.len()).map(from).max().unwrap()
}

/// Returns the largest sum of `padded` over `count` units in a row.
fn largest_in_a_row(padded: &[u64], count: usize) -> u64 {
    padded.windows(count.min(padded.len())).map(|units| units.iter().sum()).max().unwrap()
}

fn padded(job: &Job) -> Vec<u64> {
    Partition::of(job).units.iter().map(|unit| unit.padded).collect()
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() }
}

/// One rank sends nothing, but issues the same collectives.
#[test]
fn alone() {
    for stage in Stage::ALL {
        let job = Job { micro_batches: 2, ..Job::new(ModelConfig::tiny(), stage, 1) };
        let rank = ranks(&job)[0];
        assert_eq!(
            rank.traffic
                .total(RunCounts {
                    steps: 3,
                    evaluations: 2,
                    evaluation_batches: 8,
                    checkpoints: 2,
                    ..RunCounts::default()
                })
                .total_bytes(),
            0
        );
        assert!(rank.traffic.step.calls(Operation::Scalars) > 0);
        let held =
            [Class::Parameters, Class::Gradients, Class::Optimizer].map(|class| rank.memory.peak(class));
        assert_eq!(held.iter().sum::<u64>(), 16 * 918_656);
    }
}

#[test]
fn groups_must_divide_the_world() {
    let job = Job::new(ModelConfig::tiny(), Stage::Zero3, 6);
    for size in [0, 4, 5, 12] {
        let hybrid = Job { strategy: Sharding::HybridShard, shard_group: Some(size), ..job.clone() };
        let secondary = Job { secondary_shards: Some(size), ..job.clone() };
        for job in [hybrid, secondary] {
            assert!(predict(&job).unwrap_err().to_string().contains("divides the 6 ranks"), "{size}");
        }
    }
    let hybrid = Job { strategy: Sharding::HybridShard, shard_group: Some(3), ..job };
    assert_eq!(hybrid.with_stage(Stage::Zero2), Job::new(ModelConfig::tiny(), Stage::Zero2, 6));
}

#[test]
fn impossible_jobs_are_refused() {
    let job = Job::new(ModelConfig::tiny(), Stage::Zero2, 4);
    let problem = |job: Job| predict(&job).unwrap_err().to_string();
    assert_eq!(problem(Job { world_size: 0, ..job.clone() }), "world size is 0: give at least 1");
    assert_eq!(problem(Job { tokens: 0, ..job.clone() }), "tokens per sequence is 0: give at least 1");
    assert!(problem(Job { batch_size: usize::MAX, ..job.clone() }).contains("beyond any machine"));
    assert!(predict(&Job { micro_batches: 0, ..job }).is_err());
}
