//! The savings that each speedup promises.

use super::*;
use crate::diagnosis::diagnosis;
use crate::rows::OperationTime;
use crate::samples::waiting;
use events::Route;
use prediction::Strategy;

/// Returns the share of exposed communication that each change would save in a run of `stage` with
/// `flags`.
fn shares(stage: Stage, flags: &str) -> Vec<(String, f64)> {
    let mut report = waiting(&format!("--gpus 2 {flags}"));
    report.stage = stage;
    if !stage.sharded().parameters {
        report.strategy = None;
    } else if flags.contains("shard-grad-op") {
        report.strategy = Some(Strategy::ShardGradOp);
    }
    let exposed = Account::of(&report).exposed;
    speedups(&report).into_iter().map(|speedup| (speedup.how, speedup.seconds / exposed)).collect()
}

/// The change to 16 bits.
const BF16: &str = "--precision bf16 without --grad-dtype and --reduce-dtype";

fn share(shares: &[(String, f64)], how: &str) -> Option<f64> {
    shares.iter().find(|(found, _)| found == how).map(|(_, share)| *share)
}

/// True if the share is near `expected`. Scalars are sent in addition to parameters and gradients.
fn near(found: Option<f64>, expected: f64) -> bool {
    found.is_some_and(|found| (found - expected).abs() < 1e-3)
}

#[test]
fn what_less_traffic_saves_is_counted_with_the_runs_own_settings() {
    let whole = shares(Stage::Zero3, "--reshard-last");
    assert!(near(share(&whole, "cargo run -p zero2"), 1.0 / 3.0), "{whole:?}");
    assert!(near(share(&whole, "--strategy shard-grad-op"), 1.0 / 3.0), "{whole:?}");
    let last = share(&whole, "without --reshard-last and --max-reuse-distance");
    assert!(last.is_some_and(|last| (0.01..0.02).contains(&last)), "{whole:?}");

    let kept = shares(Stage::Zero3, "--strategy shard-grad-op");
    let zero2 = kept.iter().find(|(how, _)| how.starts_with("cargo run -p zero2"));
    assert_eq!(zero2, None, "it sends as little: {kept:?}");

    let textbook = shares(Stage::Zero1, "--grad-sync all-reduce");
    assert!(near(share(&textbook, "without --grad-sync"), 1.0 / 3.0), "{textbook:?}");
    assert!(near(share(&textbook, "cargo run -p zero0-ddp without --grad-sync"), 1.0 / 3.0), "{textbook:?}");
    assert!(near(share(&textbook, "--grad-accum 2"), 0.5), "{textbook:?}");

    let accumulated = shares(Stage::Zero2, "--grad-accum 4");
    assert!(near(share(&accumulated, "cargo run -p zero1"), 3.0 / 5.0), "{accumulated:?}");
    assert!(near(share(&accumulated, "--grad-accum 8"), 1.0 - 9.0 / 10.0), "{accumulated:?}");
    assert!(near(share(&accumulated, BF16), 0.5), "{accumulated:?}");

    let wide = shares(Stage::Zero2, "--precision bf16 --reduce-dtype fp32");
    assert!(near(share(&wide, "--reduce-dtype bf16"), 1.0 - 4.0 / 6.0), "{wide:?}");
}

#[test]
fn on_a_link_calls_count_beside_bytes() {
    // By parameter, nearly all of the time is latency: a gather of each in both passes, and a
    // reduction.
    let fine = shares(Stage::Zero3, "--reshard-last --wrap parameter --reduce-bucket 1 --link 1ms,100GB/s");
    let share = share(&fine, "--strategy shard-grad-op");
    assert!(share.is_some_and(|share| (0.3..0.34).contains(&share)), "{fine:?}");
    let [accumulated, bf16] = ["--grad-accum 2", BF16].map(|how| super::tests::share(&fine, how));
    assert!(bf16.is_some_and(|bf16| bf16 < 0.01), "bytes cost next to nothing: {bf16:?}");
    assert!(accumulated.is_some_and(|less| less < 0.02), "only scalars are fewer: {accumulated:?}");
}

/// Returns the seconds that `how` would save in a ZeRO-3 run with `flags`. A quarter of the run's
/// link time is all-gathers, and it copies for 0.05 s in forward.
fn hidden(flags: &str, how: &str) -> Option<f64> {
    let mut report = waiting(&format!("--gpus 2 --link 1ms,20MB/s {flags}"));
    for row in &mut report.time {
        row.clocks.waits.forward += 0.05;
        let operation = |operation: Operation, link_seconds: f64| OperationTime {
            operation,
            seconds: link_seconds,
            peers_seconds: 0.0,
            link_seconds,
        };
        row.operations = vec![operation(Operation::AllGather, 0.1), operation(Operation::ReduceScatter, 0.3)];
    }
    speedups(&report).into_iter().find(|speedup| speedup.how == how).map(|speedup| speedup.seconds)
}

#[test]
fn settings_that_keep_communication_from_hiding_are_named() {
    let near = |found: Option<f64>, expected: f64| found.is_some_and(|found| (found - expected).abs() < 1e-9);
    // Ranks wait for the link for 0.2 s in forward and 0.3 s in backward; computing takes 0.05 +
    // 0.175 s.
    let overlap = "without --no-overlap";
    assert!(near(hidden("--no-overlap", overlap), 0.225), "{:?}", hidden("--no-overlap", overlap));
    assert_eq!(hidden("", overlap), None);
    let prefetch = "without --prefetch-bucket 0";
    assert!(near(hidden("--prefetch-bucket 0", prefetch), 0.125));
    assert_eq!(hidden("--prefetch-bucket 5", prefetch), None);
    assert_eq!(hidden("", prefetch), None);
    let pre = "--backward-prefetch pre";
    assert!(near(hidden("--backward-prefetch none", pre), 0.075));
    assert_eq!(hidden("--backward-prefetch post", pre), None);
}

fn seconds(report: &Report, how: &str) -> f64 {
    speedups(report)
        .into_iter()
        .find(|speedup| speedup.how == how)
        .map_or(f64::NAN, |speedup| speedup.seconds)
}

#[test]
fn an_update_that_every_rank_does_alone_could_be_shared() {
    let mut report = waiting("--gpus 4");
    report.stage = Stage::Ddp;
    let saved = seconds(&report, "cargo run -p zero1");
    assert!((saved - 0.75 * Account::of(&report).optimizer).abs() < 1e-9, "three of four quarters: {saved}");
}

/// Each direction of a ring of four takes three rounds: six for an all-reduce of 1 ms each, and
/// 24 ms for its bytes.
#[test]
fn on_a_link_latency_is_saved_by_fewer_calls_and_the_rest_by_bandwidth() {
    for (algorithm, latency) in [("direct", 2.0), ("ring", 6.0)] {
        let mut report = waiting(&format!("--gpus 4 --link 1ms,1MB/s --algorithm {algorithm}"));
        for row in report.traffic.iter_mut().filter(|row| row.operation == Operation::AllReduce) {
            (row.calls, row.bytes_sent) = (1, 24_000);
        }
        let link = Account::of(&report).link;
        let fewer = seconds(&report, "--reduce-bucket, --wrap");
        let faster = seconds(&report, "a link of twice the bandwidth");
        let share = latency / (latency + 24.0);
        assert!((fewer / link - share).abs() < 1e-9, "{algorithm}: {fewer} of {link}");
        assert!((faster / link - (1.0 - share) / 2.0).abs() < 1e-9, "{algorithm}: {faster} of {link}");
    }
}

/// A collective of two takes one round on a ring, where one of eight takes seven.
#[test]
fn on_a_ring_small_groups_wait_less_often() {
    let flags = "--gpus 8 --link 10ms,1GB/s --algorithm ring --strategy hybrid-shard --shard-group-size 2";
    let mut groups = waiting(flags);
    groups.strategy = Some(Strategy::HybridShard);
    let all = "cargo run -p zero2 without --strategy and --shard-group-size";
    assert!(seconds(&groups, all) < 0.0, "{:?}", speedups(&groups));
}

/// Ranks wait 0.1 s for each direction to and from the disk, and 0.02 s to and from the device.
#[test]
fn states_that_rest_nearer_travel_less() {
    let mut report = waiting("--gpus 2 --offload-optimizer disk");
    for row in &mut report.transfers {
        row.waited_seconds =
            if matches!(row.route, Route::HostToDisk | Route::DiskToHost) { 0.1 } else { 0.02 };
    }
    report.time.iter_mut().for_each(|row| row.clocks.for_places.step = 0.24);
    for (how, saved) in [
        ("--offload-optimizer cpu without --offload-dir and --disk-link", 0.2),
        ("without --offload-optimizer, --offload-dir, --host-link and --disk-link", 0.24),
        ("--offload-buffers 12", 0.24),
    ] {
        assert!((seconds(&report, how) - saved).abs() < 1e-9, "{how}: {}", seconds(&report, how));
    }
    let near = speedups(&waiting("--gpus 2"));
    assert!(!near.iter().any(|speedup| speedup.how.contains("offload")), "{near:?}");
}

#[test]
fn a_report_without_settings_promises_no_traffic() {
    let mut report = waiting("--gpus 2");
    assert!(speedups(&report).iter().any(|speedup| speedup.how == BF16));
    report.communication = None;
    assert!(!speedups(&report).iter().any(|speedup| speedup.how == BF16));
    assert!(diagnosis(&report).contains("older than the settings"));
}
