//! The closed form of a step's collectives, against the bytes that the walk counts.

use super::*;

/// Returns `job` in every stage and strategy; there are `groups` groups, each as large as its
/// world.
fn variants(job: &Job, groups: usize) -> Vec<Job> {
    let neighbours = job.world_size;
    let job = Job { world_size: neighbours * groups, ..job.clone() };
    let full = job.with_stage(Stage::Zero3);
    let mut jobs: Vec<Job> = Stage::ALL.into_iter().map(|stage| job.with_stage(stage)).collect();
    jobs.push(Job { textbook_all_reduce: true, ..job.with_stage(Stage::Zero1) });
    jobs.push(Job { strategy: Sharding::ShardGradOp, ..full.clone() });
    jobs.push(Job { strategy: Sharding::HybridShard, shard_group: Some(neighbours), ..full.clone() });
    jobs.push(Job { secondary_shards: Some(neighbours), ..full });
    jobs
}

fn gatherings() -> impl Strategy<Value = Gathering> {
    let live = prop_oneof![Just(u64::MAX), 0u64..40_000];
    let reuse = prop_oneof![Just(0), Just(1), 0u64..40_000];
    (live, reuse).prop_map(|(live, reuse)| Gathering { live, reuse, ..Gathering::default() })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn theory_counts_what_is_sent(
        job in jobs(),
        groups in 1usize..4,
        gathering in gatherings(),
        (persistence_threshold, overlap) in (prop_oneof![Just(0), 0u64..2_000], any::<bool>()),
        (mixed, converted_gradients) in (any::<bool>(), proptest::option::of(proptest::sample::select(vec![2, 4]))),
    ) {
        let recipe = if mixed { Recipe::MIXED } else { Recipe::FP32 };
        let job = Job { gathering, persistence_threshold, overlap, recipe, converted_gradients, ..job };
        for job in variants(&job, groups) {
            let prediction = predict(&job).unwrap();
            for operation in [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather] {
                let sent: u64 = prediction.ranks.iter().map(|rank| rank.traffic.step.bytes(operation)).sum();
                let sweeps = prediction.theory.iter().filter(|sweep| sweep.operation == operation);
                let counted: u64 = sweeps.map(|sweep| sweep.bytes_sent(job.world_size as u32)).sum();
                prop_assert_eq!(counted, sent, "{} {:?} {}", job.stage, job.strategy, operation);
            }
        }
    }
}
