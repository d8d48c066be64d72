//! Validation is the same in every stage. It uses text that training does not see, and the model
//! that training has produced.

use events::Operation;
use prediction::Stage;
use std::path::Path;
use tests::{STAGES, fixture, losses, run};
use trainer::Report;

fn flags(world: usize, steps: u32) -> String {
    let model = fixture("odd.json");
    format!(
        "--model {model} --gpus {world} --batch-size 2 --seq-len 16 --steps {steps} --threads 1 --device cpu"
    )
}

/// Writes a file in which each part is repeated the given number of times, one part after another.
fn text(dir: &Path, parts: [(&str, usize); 2]) -> String {
    let path = dir.join("text");
    std::fs::write(&path, parts.map(|(part, times)| part.repeat(times)).concat()).unwrap();
    path.display().to_string()
}

#[test]
fn evaluation_is_the_same_in_every_stage_and_leaves_training_alone() {
    let evaluated = format!("{} --val-fraction 0.2", flags(3, 12));
    let with = format!("{evaluated} --eval-every 5 --eval-batches 3");
    let reports = STAGES.map(|stage| run(stage, &with));
    let learned = |report: &Report| (losses(report), report.weights_blake3.clone());
    for report in &reports {
        assert_eq!(learned(report), learned(&reports[0]), "{}", report.stage);
        assert_eq!(report.evaluations, reports[0].evaluations);
        assert_eq!(report.evaluations.iter().map(|e| e.step).collect::<Vec<_>>(), [5, 10, 12]);
    }
    assert_eq!(learned(&run(Stage::Ddp, &evaluated)), learned(&reports[0]));
}

/// A report's kernels and transfers of a step exclude validation.
#[test]
fn validation_is_no_part_of_a_steps_kernels_and_transfers() {
    let both = |offload: &str| {
        let flags = format!("{} --val-fraction 0.2 {offload}", flags(2, 5));
        ["", " --eval-every 1"].map(|more| run(Stage::Zero3, &(flags.clone() + more)))
    };
    let kernels = |report: &Report| -> Vec<_> {
        report.kernels.iter().map(|row| (row.rank, row.kind, row.calls, row.flops, row.bytes)).collect()
    };
    let [without, with] = both("");
    assert_eq!(kernels(&with), kernels(&without));
    let [without, with] = both("--offload-optimizer cpu --offload-parameters cpu");
    let of_steps = |report: &Report| -> Vec<_> {
        report.transfers.iter().map(|row| row.bytes - row.validation_bytes).collect()
    };
    assert_eq!(of_steps(&with), of_steps(&without));
    assert!(with.transfers.iter().any(|row| row.validation_bytes > 0));
}

#[test]
fn what_training_does_not_see_is_not_learned() {
    let dir = tempfile::tempdir().unwrap();
    let data = text(dir.path(), [("all ranks gather ", 400), ("0123456789abcdef!", 100)]);
    let flags = format!("{} --lr 1e-2 --data {data} --val-fraction 0.2 --eval-every 30", flags(2, 30));
    let report = run(Stage::Zero3, &flags);
    let (seen, unseen) = (report.steps[29].loss, report.evaluations[0].loss);
    // A model without any knowledge has the loss ln 257.
    let guess = 257f64.ln();
    assert!(seen < guess / 3.0 && unseen > guess, "what is seen costs {seen}, what is not {unseen}");
}

/// In a text that repeats itself every 16 tokens, all samples are alike. So validation after a step
/// measures the same loss as the next training step.
#[test]
fn the_loss_after_a_step_is_the_next_steps_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let period = "every rank waits";
    let data = text(dir.path(), [(period, 200), (period, 200)]);
    let flags = format!("{} --data {data} --val-fraction 0.5 --eval-every 1 --eval-batches 3", flags(3, 5));
    for stage in STAGES {
        let report = run(stage, &flags);
        for (evaluation, row) in report.evaluations.iter().zip(&report.steps[1..]) {
            assert_eq!(evaluation.step, row.step);
            let apart = (evaluation.loss - row.loss).abs();
            assert!(apart < 1e-9, "{stage}: {apart} apart before step {}", row.step);
        }
    }
}

#[test]
fn as_many_batches_are_evaluated_as_are_asked_for() {
    let gathers = |batches: u64| {
        let flags = format!("{} --val-fraction 0.2 --eval-every 1 --eval-batches {batches}", flags(2, 2));
        let report = run(Stage::Zero3, &flags);
        let row = report.traffic.iter().find(|row| row.operation == Operation::AllGather).unwrap();
        (row.calls, report.model.units as u64)
    };
    let ((one, units), (four, _)) = (gathers(1), gathers(4));
    assert_eq!(four - one, 3 * 2 * units, "two evaluations of three batches more");
}
