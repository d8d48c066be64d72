//! What FSDP calls wrapping and sharding strategies: they decide how much is held and gathered and what is sent, and
//! nothing about what is learnt.

#![allow(clippy::unwrap_used, clippy::panic)]

use planner::Stage;
use tests::{STAGES, fixture, losses, mispredictions, train};
use trainer::Report;

fn flags(model: &str, world: usize, micro_batches: usize) -> String {
    format!(
        "--model {} --gpus {world} --batch-size 2 --grad-accum {micro_batches} --seq-len 16 --steps 5 --threads 1 \
         --device cpu --val-fraction 0.1 --eval-every 3 --eval-batches 2",
        fixture(model),
    )
}

fn run(stage: Stage, flags: &str) -> Report {
    let report = train(stage, flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert_eq!(mispredictions(&report), Vec::<String>::new(), "{stage} {flags}");
    report
}

fn assert_same(a: &Report, b: &Report, case: &str) {
    assert_eq!(losses(a), losses(b), "losses of {case}");
    assert_eq!(a.weights_blake3, b.weights_blake3, "weights of {case}");
    assert_eq!(a.evaluations, b.evaluations, "evaluations of {case}");
}

fn peak(report: &Report, class: &str) -> u64 {
    report.memory.iter().filter(|row| row.class == class).map(|row| row.peak_bytes).max().unwrap()
}

fn calls(report: &Report, operation: &str) -> u64 {
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
        assert!(peak(coarse, "gathered parameters") >= peak(fine, "gathered parameters"));
        assert!(calls(coarse, "all-gather") < calls(fine, "all-gather"));
    }
    let [model, block, _, parameter] = reports;
    assert!(peak(&model, "gathered parameters") > peak(&block, "gathered parameters"));
    assert!(peak(&block, "gathered parameters") > peak(&parameter, "gathered parameters"));
}

/// Payload of rank 0, scalars aside.
fn payload(report: &Report) -> u64 {
    let moves = |row: &&trainer::report::TrafficRow| row.rank == 0 && row.operation != "scalars";
    report.traffic.iter().filter(moves).map(|row| row.bytes_sent).sum()
}

#[test]
fn shard_grad_op_gathers_once_and_sends_as_much_as_zero2() {
    let plain = "--model tiny --gpus 3 --batch-size 1 --seq-len 16 --steps 4 --threads 1 --device cpu";
    let zero2 = run(Stage::Zero2, plain);
    let full = run(Stage::Zero3, plain);
    let kept = run(Stage::Zero3, &format!("{plain} --strategy shard-grad-op"));
    assert_same(&full, &kept, "shard-grad-op");
    assert_eq!((full.strategy, kept.strategy), (Some("full-shard"), Some("shard-grad-op")));
    assert_eq!(payload(&kept), payload(&zero2));
    assert!(payload(&kept) < payload(&full));
    // Between steps it holds what full-shard does; before backward, the whole model.
    assert_eq!(peak(&kept, "parameters"), peak(&full, "parameters"));
    assert_eq!(peak(&kept, "gathered parameters"), peak(&zero2, "parameters"));
    assert_eq!(
        2 * calls(&kept, "all-gather"),
        calls(&full, "all-gather") + 4,
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
    assert_eq!(run(Stage::Ddp, &format!("{flags} --strategy no-shard")).strategy, Some("no-shard"));
    assert_eq!(run(Stage::Zero1, &flags).strategy, None);
}
