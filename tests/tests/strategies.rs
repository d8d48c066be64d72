//! What FSDP calls wrapping: which tensors form a unit decides how much is gathered at once and how many collectives
//! there are, and nothing else.

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
