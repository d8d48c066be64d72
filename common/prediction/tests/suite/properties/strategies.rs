//! FSDP's strategies, and secondary shards.

use super::*;

proptest! {
    #![proptest_config(config())]

    /// A unit that stays gathered is gathered once; before backward the whole model is gathered.
    #[test]
    fn shard_grad_op(job in jobs()) {
        let full = job.with_stage(Stage::Zero3);
        let kept = Job { strategy: Sharding::ShardGradOp, ..full.clone() };
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let sum: u64 = padded(&full).iter().sum();
        prop_assert_eq!(peak(&kept, Class::GatheredParameters), F32 * sum);
        for (kept, full) in ranks(&kept).iter().zip(ranks(&full)) {
            prop_assert_eq!(kept.traffic.step.bytes(Operation::AllGather), m * sum / n * (n - 1) * F32);
            prop_assert_eq!(kept.traffic.evaluation_batch, full.traffic.evaluation_batch);
            prop_assert_eq!(kept.to_neighbours.total(RunCounts { steps: 1, skipped: 1, fresh_starts: 1, evaluations: 1, evaluation_batches: 1, checkpoints: 1 }), 0);
        }
    }

    /// Hybrid sharding: every group behaves as a world of its own, except for the sums of shards
    /// across groups and the loss that all ranks exchange.
    #[test]
    fn hybrid_sharding(job in jobs(), groups in 1usize..5) {
        let alone = job.with_stage(Stage::Zero3);
        let n = alone.world_size;
        let (world_size, shard_group) = (n * groups, Some(n));
        let strategy = Sharding::HybridShard;
        let hybrid = Job { world_size, strategy, shard_group, ..alone.clone() };
        let (group, world) = (ranks(&alone), ranks(&hybrid));
        let norm = (4 + 16) * (n as u64 - 1);
        for (number, rank) in world.iter().enumerate() {
            let (within, step) = (&group[number % n], &rank.traffic.step);
            prop_assert_eq!(rank.memory, within.memory);
            for operation in [Operation::ReduceScatter, Operation::AllGather] {
                prop_assert_eq!(step.bytes(operation), within.traffic.step.bytes(operation));
            }
            prop_assert_eq!(step.bytes(Operation::Scalars), 16 * (world_size as u64 - 1) + norm);
            // The shards of one bucket form one bucket across groups.
            let all_reduces = step.calls(Operation::AllReduce) * job.micro_batches as u64;
            prop_assert_eq!(all_reduces, step.calls(Operation::ReduceScatter));
            let moved = step.bytes(Operation::ReduceScatter) + step.bytes(Operation::AllGather);
            prop_assert_eq!(rank.to_neighbours.step, moved + norm);
        }
        let across: u64 = world.iter().map(|rank| rank.traffic.step.bytes(Operation::AllReduce)).sum();
        let sum: u64 = padded(&hybrid).iter().sum();
        prop_assert_eq!(across, 2 * (groups as u64 - 1) * sum * F32, "once per step");
    }

    /// In 16 bits a group's sums are f32, in buffers of their own, and groups exchange them in f32.
    /// Where gradients are reduced as copies, a buffer of its own rounds the result before it is
    /// copied back.
    #[test]
    fn hybrid_sharding_in_16_bits(job in jobs(), groups in 1usize..5, copied in any::<bool>()) {
        let mut alone = job.with_stage(Stage::Zero3);
        (alone.recipe, alone.config.tied) = (Recipe::MIXED, false);
        (alone.reduce_bucket, alone.overlap, alone.converted_gradients) = (Some(1), false, copied.then_some(2));
        let (n, strategy) = (alone.world_size, Sharding::HybridShard);
        let hybrid = Job { world_size: n * groups, strategy, shard_group: Some(n), ..alone.clone() };
        let (group, world) = (ranks(&alone), ranks(&hybrid));
        for (number, rank) in world.iter().enumerate() {
            for operation in [Operation::ReduceScatter, Operation::AllGather] {
                let within = group[number % n].traffic.step.bytes(operation);
                prop_assert_eq!(rank.traffic.step.bytes(operation), within);
            }
        }
        let across: u64 = world.iter().map(|rank| rank.traffic.step.bytes(Operation::AllReduce)).sum();
        let units = padded(&hybrid);
        prop_assert_eq!(across, 2 * (groups as u64 - 1) * units.iter().sum::<u64>() * F32);
        let most = |unit: &u64| {
            let (full, sum) = (2 * unit, F32 * unit / n as u64);
            let reducing = full + sum;
            if copied { reducing.max(2 * full).max(sum + full / n as u64) } else { reducing }
        };
        let most = units.iter().map(most).max().unwrap();
        prop_assert_eq!(peak(&hybrid, Class::CommunicationBuckets), most);
    }

    /// Secondary shards: backward gathers among neighbours, from an additional slice of every unit.
    #[test]
    fn secondary_shards(job in jobs(), groups in 1usize..5) {
        let neighbours = job.world_size;
        let full = Job { world_size: neighbours * groups, ..job.with_stage(Stage::Zero3) };
        let secondary = Job { secondary_shards: Some(neighbours), ..full.clone() };
        let units = padded(&full);
        let sum: u64 = units.iter().sum();
        let kept = units[units.len() - 1] + if job.config.tied { units[0] } else { 0 };
        let (n, s, m) = (full.world_size as u64, neighbours as u64, job.micro_batches as u64);
        for class in Class::ALL {
            let more = if class == Class::Parameters { sum / s * F32 } else { 0 };
            prop_assert_eq!(peak(&secondary, class), peak(&full, class) + more, "{}", class);
        }
        let among = |elements: u64, ranks: u64| elements / ranks * (ranks - 1) * F32;
        for (with, without) in ranks(&secondary).iter().zip(ranks(&full)) {
            let (step, plain) = (&with.traffic.step, &without.traffic.step);
            let backward = m * among(sum - kept, s);
            prop_assert_eq!(step.bytes(Operation::AllGather), m * among(sum, n) + backward);
            prop_assert_eq!(step.calls(Operation::AllGather), plain.calls(Operation::AllGather));
            prop_assert_eq!(step.bytes(Operation::ReduceScatter), plain.bytes(Operation::ReduceScatter));
            prop_assert_eq!(with.to_neighbours.step, backward);
            prop_assert_eq!(with.traffic.evaluation_batch, without.traffic.evaluation_batch);
        }
    }

    /// A persistent unit is never gathered, so secondary shards hold no slice of it.
    #[test]
    fn secondary_shards_beside_persistent_tensors(job in jobs(), groups in 1usize..5, persistence_threshold in 0u64..2_000) {
        let neighbours = job.world_size;
        let full = Job { world_size: neighbours * groups, persistence_threshold, ..job.with_stage(Stage::Zero3) };
        let secondary = Job { secondary_shards: Some(neighbours), ..full.clone() };
        let units = Partition::of(&full).units;
        let gathered: u64 = units.iter().filter(|unit| !unit.persistent).map(|unit| unit.padded).sum();
        let more = gathered / neighbours as u64 * F32;
        prop_assert_eq!(peak(&secondary, Class::Parameters), peak(&full, Class::Parameters) + more);
    }
}
