//! Wrapping and sharding strategies, as FSDP calls them. They determine how much is held, gathered
//! and sent, and do not affect what is learnt.

#![allow(clippy::unwrap_used, clippy::panic)]

use events::{Class, Operation};
use prediction::{Stage, Strategy};
use tests::{STAGES, assert_same, fixture, largest_difference, losses, run, train};
use trainer::Report;

fn flags(model: &str, world: usize, micro_batches: usize) -> String {
    format!(
        "--model {} --gpus {world} --batch-size 2 --grad-accum {micro_batches} --seq-len 16 --steps 5 --threads 1 \
         --device cpu --val-fraction 0.1 --eval-every 3 --eval-batches 2",
        fixture(model),
    )
}

fn peak(report: &Report, class: Class) -> u64 {
    report.memory.iter().filter(|row| row.class == class).map(|row| row.peak_bytes).max().unwrap()
}

fn calls(report: &Report, operation: Operation) -> u64 {
    report.traffic.iter().find(|row| row.operation == operation).unwrap().calls
}

const WRAPS: [&str; 6] = ["model", "size:30000", "block", "size:3000", "module", "parameter"];

#[test]
fn wrapping_changes_no_bit_in_any_stage() {
    for (model, world, micro_batches) in [("odd.json", 3, 1), ("odd-tied.json", 2, 2)] {
        let flags = flags(model, world, micro_batches);
        for stage in STAGES {
            let block = run(stage, &flags);
            for wrap in WRAPS {
                let other = run(stage, &format!("{flags} --wrap {wrap}"));
                assert_eq!(other.model.wrap, wrap);
                assert_same(&block, &other, &format!("{stage} {model} --wrap {wrap}"));
            }
        }
    }
}

#[test]
fn finer_units_gather_less_at_once_in_more_collectives() {
    let flags = flags("odd.json", 3, 1);
    let reports = ["model", "block", "module", "parameter"]
        .map(|wrap| run(Stage::Zero3, &format!("{flags} --wrap {wrap}")));
    for pair in reports.windows(2) {
        let [coarse, fine] = pair else { unreachable!() };
        assert!(coarse.model.units < fine.model.units);
        assert!(peak(coarse, Class::GatheredParameters) >= peak(fine, Class::GatheredParameters));
        assert!(calls(coarse, Operation::AllGather) < calls(fine, Operation::AllGather));
    }
    let [model, block, _, parameter] = reports;
    assert!(peak(&model, Class::GatheredParameters) > peak(&block, Class::GatheredParameters));
    assert!(peak(&block, Class::GatheredParameters) > peak(&parameter, Class::GatheredParameters));
}

/// Returns rank 0's payload, excluding scalars.
fn payload(report: &Report) -> u64 {
    let moves = |row: &&report::TrafficRow| row.rank == 0 && row.operation != Operation::Scalars;
    report.traffic.iter().filter(moves).map(|row| row.bytes_sent).sum()
}

#[test]
fn shard_grad_op_gathers_once_and_sends_as_much_as_zero2() {
    let plain = "--model tiny --gpus 3 --batch-size 1 --seq-len 16 --steps 4 --threads 1 --device cpu";
    let zero2 = run(Stage::Zero2, plain);
    let full = run(Stage::Zero3, plain);
    let kept = run(Stage::Zero3, &format!("{plain} --strategy shard-grad-op"));
    assert_same(&full, &kept, "shard-grad-op");
    assert_eq!((full.strategy, kept.strategy), (Some(Strategy::FullShard), Some(Strategy::ShardGradOp)));
    assert_eq!(payload(&kept), payload(&zero2));
    assert!(payload(&kept) < payload(&full));
    // Between steps it holds what full-shard does, and before backward the whole model.
    assert_eq!(peak(&kept, Class::Parameters), peak(&full, Class::Parameters));
    assert_eq!(peak(&kept, Class::GatheredParameters), peak(&zero2, Class::Parameters));
    assert_eq!(
        2 * calls(&kept, Operation::AllGather),
        calls(&full, Operation::AllGather) + 4,
        "one unit is kept in any case"
    );
}

#[test]
fn a_strategy_of_another_crate_is_refused_by_that_crates_name() {
    let flags = flags("odd.json", 2, 1);
    for (stage, strategy, package) in [
        (Stage::Zero3, "no-shard", "zero0-ddp"),
        (Stage::Ddp, "full-shard", "zero3"),
        (Stage::Zero2, "shard-grad-op", "zero3"),
    ] {
        let failure = train(stage, &format!("{flags} --strategy {strategy}")).unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains(package), "{failure}");
    }
    let failure = train(Stage::Zero2, &format!("{flags} --secondary-shard-size 2")).unwrap_err();
    assert!(failure.to_string().contains("cargo run -p zero3"), "{failure}");
    assert_eq!(run(Stage::Ddp, &format!("{flags} --strategy no-shard")).strategy, Some(Strategy::NoShard));
    assert_eq!(run(Stage::Zero1, &flags).strategy, None);
}

/// Returns the bytes that rank 0 sent for `operation`.
fn sent(report: &Report, operation: Operation) -> u64 {
    report.traffic.iter().find(|row| row.rank == 0 && row.operation == operation).unwrap().bytes_sent
}

#[test]
fn hybrid_sharding_agrees_bit_for_bit_in_groups_of_a_power_of_two() {
    for (model, world, groups) in
        [("odd.json", 4, vec![1, 2, 4]), ("odd-tied.json", 6, vec![1, 2]), ("odd.json", 8, vec![2, 4])]
    {
        for precision in ["fp32", "bf16", "fp16"] {
            let flags = format!("{} --precision {precision}", flags(model, world, 1));
            let full = run(Stage::Zero3, &flags);
            for group in &groups {
                let hybrid =
                    run(Stage::Zero3, &format!("{flags} --strategy hybrid-shard --shard-group-size {group}"));
                let case = format!("{model}, {precision}, {world} ranks in groups of {group}");
                assert_same(&full, &hybrid, &case);
            }
        }
    }
}

/// Sums of three ranks and then of two round differently from sums of six.
#[test]
fn hybrid_sharding_in_other_groups_agrees_to_rounding() {
    for (world, group, micro_batches) in [(6, 3, 1), (6, 3, 2), (4, 2, 3)] {
        let flags = flags("odd.json", world, micro_batches);
        let full = run(Stage::Zero3, &flags);
        let hybrid =
            run(Stage::Zero3, &format!("{flags} --strategy hybrid-shard --shard-group-size {group}"));
        let apart = largest_difference(&losses(&full), &losses(&hybrid));
        assert!(apart < 1e-5, "{world} ranks in groups of {group}, {micro_batches} micro-batches: {apart}");
    }
}

/// Sums of earlier micro-batches travel between groups together with the last one's, in 16 bits
/// too.
#[test]
fn hybrid_sharding_in_16_bits_sums_all_micro_batches() {
    for precision in ["bf16", "fp16"] {
        let flags = format!("{} --precision {precision}", flags("odd.json", 4, 3));
        let full = run(Stage::Zero3, &flags);
        let hybrid = run(Stage::Zero3, &format!("{flags} --strategy hybrid-shard --shard-group-size 2"));
        for (full, hybrid) in full.steps.iter().zip(&hybrid.steps) {
            let ratio = hybrid.grad_norm / full.grad_norm;
            assert!((ratio - 1.0).abs() < 0.01, "{precision}, step {}: {ratio}", full.step);
        }
    }
}

/// A ring also rounds inside a group, and hands out its own slice of the sums.
#[test]
fn hybrid_sharding_around_a_ring_agrees_to_rounding() {
    for (precision, rounding) in [("fp32", 1e-5), ("bf16", 0.002), ("fp16", 0.002)] {
        let flags = format!("{} --precision {precision}", flags("odd.json", 4, 1));
        let full = run(Stage::Zero3, &flags);
        let ring = "--algorithm ring --strategy hybrid-shard --shard-group-size 2";
        let ring = run(Stage::Zero3, &format!("{flags} {ring}"));
        let apart = largest_difference(&losses(&full), &losses(&ring));
        assert!(apart < rounding, "{precision}: {apart}");
    }
}

#[test]
fn hybrid_sharding_trades_memory_for_traffic_between_groups() {
    let plain =
        "--model tiny --gpus 4 --batch-size 1 --seq-len 16 --steps 2 --threads 1 --device cpu --grad-accum 2";
    let full = run(Stage::Zero3, plain);
    let hybrid = run(Stage::Zero3, &format!("{plain} --strategy hybrid-shard --shard-group-size 2"));
    for class in [Class::Parameters, Class::Gradients, Class::Optimizer] {
        assert_eq!(peak(&hybrid, class), 2 * peak(&full, class), "half the shards: {class}");
    }
    // A rank of two sends 1/2 of the model for every gather; one of four sends 3/4.
    assert_eq!(3 * sent(&hybrid, Operation::AllGather), 2 * sent(&full, Operation::AllGather));
    assert_eq!(3 * sent(&hybrid, Operation::ReduceScatter), 2 * sent(&full, Operation::ReduceScatter));
    // Between the groups, half of the model's gradients are sent once per step, whatever the number
    // of micro-batches.
    assert_eq!(sent(&hybrid, Operation::AllReduce), 2 * peak(&hybrid, Class::Gradients));
    assert_eq!(sent(&full, Operation::AllReduce), 0);
}

/// Partial sums of 16-bit gradients stay f32 until they are summed over groups, so between groups
/// they are twice as wide.
#[test]
fn partial_sums_travel_in_f32_between_groups_alone() {
    let plain = "--model tiny --gpus 4 --batch-size 1 --seq-len 16 --steps 2 --threads 1 --device cpu \
                 --strategy hybrid-shard --shard-group-size 2";
    let wide = run(Stage::Zero3, plain);
    for precision in ["bf16", "fp16 --initial-scale-power 8"] {
        let narrow = run(Stage::Zero3, &format!("{plain} --precision {precision}"));
        assert_eq!(sent(&narrow, Operation::AllReduce), sent(&wide, Operation::AllReduce), "{precision}");
        assert_eq!(
            2 * sent(&narrow, Operation::ReduceScatter),
            sent(&wide, Operation::ReduceScatter),
            "{precision}"
        );
    }
}

#[test]
fn secondary_shards_change_no_bit_and_keep_gathers_for_backward_among_neighbours() {
    let plain = "--model tiny --gpus 4 --batch-size 1 --seq-len 16 --steps 2 --threads 1 --device cpu";
    let full = run(Stage::Zero3, plain);
    let secondary = run(Stage::Zero3, &format!("{plain} --secondary-shard-size 2"));
    assert_same(&full, &secondary, "--secondary-shard-size 2");
    assert_eq!(
        peak(&secondary, Class::Parameters),
        3 * peak(&full, Class::Parameters),
        "1/4 and 1/2 of the model"
    );
    for class in [Class::Gradients, Class::Optimizer, Class::GatheredParameters] {
        assert_eq!(peak(&secondary, class), peak(&full, class), "{class}");
    }
    assert_eq!(calls(&secondary, Operation::AllGather), calls(&full, Operation::AllGather));
    // For backward's gather, a rank of two sends 1/2 of each unit, and one of four sends 3/4.
    let kept = run(Stage::Zero3, &format!("{plain} --strategy shard-grad-op"));
    let for_backward =
        |report: &Report| sent(report, Operation::AllGather) - sent(&kept, Operation::AllGather);
    assert_eq!(3 * for_backward(&secondary), 2 * for_backward(&full));
}

#[test]
fn strategies_agree_in_16_bits_and_with_everything_else() {
    let plain = format!(
        "--model {} --gpus 4 --batch-size 1 --seq-len 16 --steps 4 --threads 1 --device cpu",
        fixture("odd.json")
    );
    for types in [
        "--precision bf16",
        "--precision fp16 --inject overflow@rank1,step1",
        "--precision bf16 --grad-dtype fp32",
        "--precision bf16 --reduce-dtype fp32",
        "--precision fp16 --reduce-dtype fp32",
        "--precision bf16 --grad-dtype fp16 --reduce-dtype fp32 --contiguous-gradients false",
        "--precision bf16 --grad-dtype fp32 --reduce-dtype bf16",
        "--precision fp16 --reduce-dtype bf16 --no-overlap",
        "--precision fp32 --reduce-dtype fp16 --contiguous-gradients false",
    ] {
        let full = run(Stage::Zero3, &format!("{plain} {types}"));
        for strategy in [
            "--strategy shard-grad-op --wrap module",
            "--secondary-shard-size 2 --wrap size:3000",
            "--strategy hybrid-shard --shard-group-size 2",
        ] {
            let other = run(Stage::Zero3, &format!("{plain} {types} {strategy}"));
            assert_same(&full, &other, &format!("{types} {strategy}"));
        }
    }
}
