//! Compares `explain`'s statements about a run with other runs.

use crate::remedies::without;
use prediction::Stage;
use report::{Account, Report, speedups};
use tests::{STAGES, fixture, train};

const RUNS: [(Stage, &str); 13] = [
    (Stage::Ddp, ""),
    (Stage::Ddp, "--grad-dtype fp32 --reduce-dtype fp32"),
    (Stage::Zero1, "--grad-sync all-reduce"),
    (Stage::Zero2, "--grad-accum 3"),
    (Stage::Zero2, "--precision bf16 --reduce-dtype fp32"),
    (Stage::Zero3, ""),
    (Stage::Zero3, "--grad-accum 2 --reshard-last"),
    (Stage::Zero3, "--max-reuse-distance 0"),
    (Stage::Zero3, "--grad-accum 2 --strategy shard-grad-op"),
    (Stage::Zero3, "--strategy hybrid-shard --shard-group-size 2"),
    (Stage::Zero3, "--secondary-shard-size 2"),
    (
        Stage::Zero3,
        "--offload-optimizer disk --offload-parameters cpu --offload-dir /tmp --offload-buffers 2 \
         --disk-link 1us,9GB/s --host-link 1us,9GB/s",
    ),
    (Stage::Zero3, "--checkpoint-activations block --offload-activations disk --offload-dir /tmp"),
];

fn run(stage: Stage, flags: &str) -> Report {
    let flags = format!(
        "--model {} --gpus 4 --batch-size 2 --seq-len 16 --steps 2 --threads 1 --device cpu {flags}",
        fixture("odd.json")
    );
    train(stage, &flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"))
}

/// Returns the bytes per sequence that the rank with the most traffic sends.
fn sent(report: &Report) -> f64 {
    let of_rank = |rank| report.traffic.iter().filter(move |row| row.rank == rank).map(|row| row.bytes_sent);
    let most = (0..report.world_size).map(|rank| of_rank(rank).sum::<u64>()).max().unwrap();
    most as f64 / (report.steps.len() * report.model.micro_batches * report.model.batch_size) as f64
}

/// Runs the alternative that `how` names. `None` if it names neither flags nor a program.
fn other((stage, flags): (Stage, &str), how: &str) -> Option<Report> {
    let (add, take) = how.split_once("without ").unwrap_or((how, ""));
    let kept = without(flags, take);
    if let Some(package) = add.trim().strip_prefix("cargo run -p ") {
        let other = STAGES.into_iter().find(|stage| stage.package() == package).unwrap();
        return Some(run(other, &kept));
    }
    let names_flags = how.starts_with("without ") || how.starts_with("--");
    names_flags.then(|| run(stage, &format!("{kept} {add}")))
}

/// True if `how` saves `stage` traffic.
fn is_about_traffic(stage: Stage, how: &str) -> bool {
    let lower = STAGES.into_iter().filter(|&other| other < stage);
    let programs = lower.map(|lower| format!("cargo run -p {}", lower.package()));
    let flags = ["--grad-accum", "--strategy", "--precision", "--reduce-dtype", "without --grad-sync"];
    let flags = flags.into_iter().chain(["without --reshard-last"]).map(String::from);
    programs.chain(flags).any(|begin| how.starts_with(&begin))
}

#[test]
fn what_is_saved_of_communication_is_what_another_run_sends_less() {
    let mut promises = 0;
    for (stage, flags) in RUNS {
        let report = run(stage, flags);
        let exposed = Account::of(&report).exposed;
        assert!(exposed > 0.0, "ranks copy what they exchange");
        for speedup in speedups(&report) {
            // Every program accepts the suggested flags.
            let Some(other) = other((stage, flags), &speedup.how) else { continue };
            if !is_about_traffic(stage, &speedup.how) {
                continue;
            }
            let (promised, kept) = (speedup.seconds / exposed, 1.0 - sent(&other) / sent(&report));
            // Data that is exchanged once, before the first step, does not belong to a step.
            let what = format!("{stage} {flags}: {}", speedup.how);
            assert!((promised - kept).abs() < 2e-3, "{what}: {promised} promised, {kept} kept");
            promises += 1;
        }
    }
    assert!(promises >= 20, "{promises}");
}

#[test]
fn without_a_link_communication_is_exposed_too_and_nothing_waits_for_one() {
    let account = Account::of(&run(Stage::Zero3, ""));
    assert!(account.exposed > 0.0 && account.link == 0.0, "{account:?}");
}
