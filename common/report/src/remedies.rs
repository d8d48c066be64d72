//! Remedies for slow steps, each with the time that it saves at most.

use crate::account::Account;
use crate::report::Report;
use crate::rows::TimeRow;
use events::Operation;
use model::Checkpointing;
use places::resting_nearer;
use planned_run::{PlannedRun, stage};
use planner::{BackwardPrefetch, Job, Stage};
use traffic::{costs, sending_less};
use wire::Wire;

mod places;
mod planned_run;
mod traffic;
mod wire;

/// A change that makes steps shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    /// What to do: flags, another program, other machines.
    pub how: String,
    /// Why it works, or what it costs.
    pub why: String,
    /// Seconds of a step that it saves, at most.
    pub seconds: f64,
}

/// Returns a [`Remedy`].
pub(super) fn remedy(how: impl Into<String>, why: impl Into<String>, seconds: f64) -> Remedy {
    Remedy { how: how.into(), why: why.into(), seconds }
}

/// Lists the remedies for `report`'s run, each alone, the one that saves most first.
pub fn remedies(report: &Report) -> Vec<Remedy> {
    let account = Account::of(report);
    let mut remedies = vec![
        remedy("ranks equally fast, on cores of their own", "no rank waits", account.peers),
        remedy("data nearer by, or smaller", "fetched sooner", account.data),
    ];
    remedies.extend(link(report, &account));
    remedies.extend(update(report, &account));
    if let Some(run) = PlannedRun::of(report) {
        remedies.extend(hiding(report, &account, &run));
        remedies.extend(sending_less(report, &account, &run));
        remedies.extend(resting_nearer(report, &account, &run));
        let kept = Job { checkpointing: Checkpointing::None, ..run.job };
        let why = costs("nothing twice", &kept);
        remedies.push(remedy("--checkpoint-activations none", why, account.recompute));
    }
    remedies.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    remedies
}

/// Returns remedies for the simulated link: a faster one, or fewer calls.
fn link(report: &Report, account: &Account) -> Vec<Remedy> {
    let wire = Wire::of(report);
    let sent = report.traffic.iter().filter(|row| row.rank == 0);
    let (calls, bytes) = sent.fold((0.0, 0.0), |(calls, bytes), row| {
        (calls + wire.latency(row.operation) * row.calls as f64, bytes + wire.transfer(row.bytes_sent))
    });
    if report.link.is_none() {
        return Vec::new();
    }
    let latency = if calls > 0.0 { calls / (calls + bytes) } else { 0.0 };
    vec![
        remedy(
            "a link of twice the bandwidth",
            "half the time per byte",
            account.link * (1.0 - latency) / 2.0,
        ),
        remedy("--reduce-bucket, --prefetch-bucket, --wrap", "fewer calls", account.link * latency),
    ]
}

/// Suggests that each rank updates its share, if every rank updates everything.
fn update(report: &Report, account: &Account) -> Option<Remedy> {
    let others = 1.0 - 1.0 / report.world_size as f64;
    let why = "each rank updates its share alone";
    let how = format!("cargo run -p {}", Stage::SHARDS_OPTIMIZER.package());
    (report.stage == Stage::REPLICATED.label()).then(|| remedy(how, why, account.optimizer * others))
}

/// Returns the setting that keeps communication from hiding behind computation, if there is one.
fn hiding(report: &Report, account: &Account, run: &PlannedRun<'_>) -> Option<Remedy> {
    let each = (report.time.len().max(1) * report.steps.len().max(1)) as f64;
    let mean = |seconds: fn(&TimeRow) -> f64| report.time.iter().map(seconds).sum::<f64>() / each;
    // Copies on a rank's own thread take its time, wherever in the step they happen.
    let on_gpus = !report.gpu.is_empty();
    let [forward, backward] = match on_gpus {
        true => [
            mean(|row| row.waits.forward - row.for_peers.forward),
            mean(|row| row.waits.backward - row.for_peers.backward),
        ],
        false => [mean(|row| row.for_link.forward), mean(|row| row.for_link.backward)],
    };
    let computing = account.forward + account.backward + account.recompute;
    let communication = run.communication;
    if !communication.overlap {
        let hidden = (forward + backward).min(computing);
        return Some(remedy("without --no-overlap", "hidden behind computation", hidden));
    }
    if !stage(report)?.sharded().parameters {
        return None;
    }
    let gathers = gathering_share(report, on_gpus);
    if communication.prefetch_bucket == Some(0) {
        let hidden = (gathers * (forward + backward)).min(computing);
        return Some(remedy("without --prefetch-bucket 0", "units are gathered ahead", hidden));
    }
    let hidden = (gathers * backward).min(account.backward + account.recompute);
    (communication.backward_prefetch == BackwardPrefetch::None)
        .then(|| remedy("--backward-prefetch pre", "backward gathers ahead too", hidden))
}

/// Returns the share of all-gathers in the time that ranks wait for communication, peers aside.
fn gathering_share(report: &Report, on_gpus: bool) -> f64 {
    let rows = report.time.iter().flat_map(|row| &row.operations);
    let (gathers, all) = rows.fold((0.0, 0.0), |(gathers, all), row| {
        let seconds = if on_gpus { row.seconds - row.peers_seconds } else { row.link_seconds };
        let gather = if row.operation == Operation::AllGather.label() { seconds } else { 0.0 };
        (gathers + gather, all + seconds)
    });
    if all > 0.0 { gathers / all } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::diagnosis;
    use crate::rows::OperationTime;
    use crate::samples::waiting;

    /// How much of exposed communication each change would save of a run of `stage` with `flags`.
    fn shares(stage: Stage, flags: &str) -> Vec<(String, f64)> {
        let mut report = waiting(&format!("--gpus 2 {flags}"));
        report.stage = stage.label();
        if !stage.sharded().parameters {
            report.strategy = None;
        } else if flags.contains("shard-grad-op") {
            report.strategy = Some("shard-grad-op");
        }
        let exposed = Account::of(&report).exposed;
        remedies(&report).into_iter().map(|remedy| (remedy.how, remedy.seconds / exposed)).collect()
    }

    fn share(shares: &[(String, f64)], how: &str) -> Option<f64> {
        shares.iter().find(|(found, _)| found == how).map(|(_, share)| *share)
    }

    /// Scalars travel in addition to parameters and gradients.
    fn near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 1e-3)
    }

    #[test]
    fn what_less_traffic_saves_is_counted_with_the_runs_own_settings() {
        let whole = shares(Stage::Zero3, "--reshard-last");
        assert!(near(share(&whole, "cargo run -p zero2"), 1.0 / 3.0), "{whole:?}");
        assert!(near(share(&whole, "--strategy shard-grad-op"), 1.0 / 3.0), "{whole:?}");
        let last = share(&whole, "without --reshard-last");
        assert!(last.is_some_and(|last| (0.01..0.02).contains(&last)), "{whole:?}");

        let kept = shares(Stage::Zero3, "--strategy shard-grad-op");
        assert_eq!(share(&kept, "cargo run -p zero2"), None, "it sends as little: {kept:?}");

        let textbook = shares(Stage::Zero1, "--grad-sync all-reduce");
        assert!(near(share(&textbook, "without --grad-sync all-reduce"), 1.0 / 3.0), "{textbook:?}");
        assert!(near(share(&textbook, "cargo run -p zero0-ddp"), 1.0 / 3.0), "{textbook:?}");
        assert!(near(share(&textbook, "--grad-accum 2"), 0.5), "{textbook:?}");

        let accumulated = shares(Stage::Zero2, "--grad-accum 4");
        assert!(near(share(&accumulated, "cargo run -p zero1"), 3.0 / 5.0), "{accumulated:?}");
        assert!(near(share(&accumulated, "--grad-accum 8"), 1.0 - 9.0 / 10.0), "{accumulated:?}");
        assert!(near(share(&accumulated, "--precision bf16"), 0.5), "{accumulated:?}");

        let wide = shares(Stage::Zero2, "--precision bf16 --reduce-dtype fp32");
        assert!(near(share(&wide, "--reduce-dtype bf16"), 1.0 - 4.0 / 6.0), "{wide:?}");
    }

    #[test]
    fn on_a_link_calls_count_beside_bytes() {
        // By parameter, nearly all of the time is latency: a gather of each in both passes, and a
        // reduction.
        let fine =
            shares(Stage::Zero3, "--reshard-last --wrap parameter --reduce-bucket 1 --link 1ms,100GB/s");
        let share = share(&fine, "--strategy shard-grad-op");
        assert!(share.is_some_and(|share| (0.3..0.34).contains(&share)), "{fine:?}");
        let [accumulated, bf16] =
            ["--grad-accum 2", "--precision bf16"].map(|how| super::tests::share(&fine, how));
        assert!(bf16.is_some_and(|bf16| bf16 < 0.01), "bytes cost next to nothing: {bf16:?}");
        assert!(accumulated.is_some_and(|less| less < 0.02), "only scalars are fewer: {accumulated:?}");
    }

    /// Seconds that `how` would save of a ZeRO-3 run with `flags`, a quarter of whose link time are
    /// all-gathers, and which copies for 0.05 s in forward.
    fn hidden(flags: &str, how: &str) -> Option<f64> {
        let mut report = waiting(&format!("--gpus 2 --link 1ms,20MB/s {flags}"));
        for row in &mut report.time {
            row.waits.forward += 0.05;
            let operation = |operation: Operation, link_seconds: f64| OperationTime {
                operation: operation.label(),
                seconds: link_seconds,
                peers_seconds: 0.0,
                link_seconds,
            };
            row.operations =
                vec![operation(Operation::AllGather, 0.1), operation(Operation::ReduceScatter, 0.3)];
        }
        remedies(&report).into_iter().find(|remedy| remedy.how == how).map(|remedy| remedy.seconds)
    }

    #[test]
    fn settings_that_keep_communication_from_hiding_are_named() {
        let near =
            |found: Option<f64>, expected: f64| found.is_some_and(|found| (found - expected).abs() < 1e-9);
        // The link is waited for 0.2 s in forward and 0.3 s in backward; computing takes 0.05 +
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
        remedies(report)
            .into_iter()
            .find(|remedy| remedy.how == how)
            .map_or(f64::NAN, |remedy| remedy.seconds)
    }

    #[test]
    fn an_update_that_every_rank_does_alone_could_be_shared() {
        let mut report = waiting("--gpus 4");
        report.stage = Stage::Ddp.label();
        let saved = seconds(&report, "cargo run -p zero1");
        assert!(
            (saved - 0.75 * Account::of(&report).optimizer).abs() < 1e-9,
            "three of four quarters: {saved}"
        );
    }

    /// Each direction of a ring of four takes three rounds: six for an all-reduce of 1 ms each, and
    /// 24 ms for its bytes.
    #[test]
    fn on_a_link_latency_is_saved_by_fewer_calls_and_the_rest_by_bandwidth() {
        for (algorithm, latency) in [("direct", 2.0), ("ring", 6.0)] {
            let mut report = waiting(&format!("--gpus 4 --link 1ms,1MB/s --algorithm {algorithm}"));
            for row in report.traffic.iter_mut().filter(|row| row.operation == Operation::AllReduce.label()) {
                (row.calls, row.bytes_sent) = (1, 24_000);
            }
            let link = Account::of(&report).link;
            let fewer = seconds(&report, "--reduce-bucket, --prefetch-bucket, --wrap");
            let faster = seconds(&report, "a link of twice the bandwidth");
            let share = latency / (latency + 24.0);
            assert!((fewer / link - share).abs() < 1e-9, "{algorithm}: {fewer} of {link}");
            assert!((faster / link - (1.0 - share) / 2.0).abs() < 1e-9, "{algorithm}: {faster} of {link}");
        }
    }

    /// Ranks wait 0.1 s for each way to and from the disk, and 0.02 s to and from the device.
    #[test]
    fn states_that_rest_nearer_travel_less() {
        let mut report = waiting("--gpus 2 --offload-optimizer disk");
        for row in &mut report.transfers {
            row.waited_seconds = if row.route.contains("disk") { 0.1 } else { 0.02 };
        }
        report.time.iter_mut().for_each(|row| row.for_places.step = 0.24);
        for (how, saved) in [
            ("--offload-optimizer cpu", 0.2),
            ("without --offload-optimizer", 0.24),
            ("--offload-buffers 6", 0.24),
        ] {
            assert!((seconds(&report, how) - saved).abs() < 1e-9, "{how}: {}", seconds(&report, how));
        }
        let near = remedies(&waiting("--gpus 2"));
        assert!(!near.iter().any(|remedy| remedy.how.contains("offload")), "{near:?}");
    }

    #[test]
    fn a_report_without_settings_promises_no_traffic() {
        let mut report = waiting("--gpus 2");
        assert!(remedies(&report).iter().any(|remedy| remedy.how == "--precision bf16"));
        report.communication = None;
        assert!(!remedies(&report).iter().any(|remedy| remedy.how == "--precision bf16"));
        assert!(diagnosis(&report).contains("older than the settings"));
    }
}
