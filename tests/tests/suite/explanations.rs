//! What `explain` says of a run, held against other runs.

use planner::Stage;
use report::{Account, Report, remedies};
use tests::{STAGES, fixture, train};

/// Flags that every run has, and that a stage of its own has.
struct Flags {
    stage: Stage,
    common: &'static str,
    own: &'static str,
}

const RUNS: [Flags; 8] = [
    Flags { stage: Stage::Ddp, common: "", own: "" },
    Flags { stage: Stage::Zero1, common: "", own: "--grad-sync all-reduce" },
    Flags { stage: Stage::Zero2, common: "--grad-accum 3", own: "" },
    Flags { stage: Stage::Zero2, common: "--precision bf16 --reduce-dtype fp32", own: "" },
    Flags { stage: Stage::Zero3, common: "", own: "" },
    Flags { stage: Stage::Zero3, common: "--grad-accum 2", own: "--reshard-last" },
    Flags { stage: Stage::Zero3, common: "--grad-accum 2", own: "--strategy shard-grad-op" },
    Flags { stage: Stage::Zero3, common: "", own: "--strategy hybrid-shard --shard-group-size 2" },
];

fn run(stage: Stage, flags: &str) -> Report {
    let flags = format!(
        "--model {} --gpus 4 --batch-size 2 --seq-len 16 --steps 2 --threads 1 --device cpu {flags}",
        fixture("odd.json")
    );
    train(stage, &flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"))
}

/// Bytes that the rank which sends most sends per sequence.
fn sent(report: &Report) -> f64 {
    let of_rank = |rank| report.traffic.iter().filter(move |row| row.rank == rank).map(|row| row.bytes_sent);
    let most = (0..report.world_size).map(|rank| of_rank(rank).sum::<u64>()).max().unwrap();
    most as f64 / (report.steps.len() * report.model.micro_batches * report.model.batch_size) as f64
}

/// The run that does as `how` says, if that is about traffic.
fn other(flags: &Flags, how: &str) -> Option<Report> {
    let Flags { stage, common, own } = *flags;
    if let Some(package) = how.strip_prefix("cargo run -p ") {
        let other = STAGES.into_iter().find(|stage| stage.package() == package).unwrap();
        return (other < stage).then(|| run(other, common));
    }
    let own = match how.strip_prefix("without ") {
        Some(flag) => own.replace(flag, ""),
        None if how.starts_with("--strategy") => how.to_string(),
        None => own.to_string(),
    };
    let more = if how.starts_with("--") { how } else { "" };
    let about_traffic = ["--grad-accum", "--strategy", "--precision", "--reduce-dtype", "without "];
    about_traffic
        .iter()
        .any(|begins| how.starts_with(begins))
        .then(|| run(stage, &format!("{common} {own} {more}")))
}

#[test]
fn what_is_saved_of_communication_is_what_another_run_sends_less() {
    let mut promises = 0;
    for flags in RUNS {
        let report = run(flags.stage, &format!("{} {}", flags.common, flags.own));
        let exposed = Account::of(&report).exposed;
        assert!(exposed > 0.0, "ranks copy what they exchange");
        for remedy in remedies(&report) {
            let Some(other) = other(&flags, &remedy.how) else { continue };
            let (promised, kept) = (remedy.seconds / exposed, 1.0 - sent(&other) / sent(&report));
            // What is exchanged once, before the first step, is no part of a step.
            let what = format!("{} {} {}: {}", flags.stage, flags.common, flags.own, remedy.how);
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
