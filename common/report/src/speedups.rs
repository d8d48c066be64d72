//! Changes that make steps shorter, each with the maximum time that it saves.

use crate::account::{Account, per_step, without_core_per_step};
use crate::report::Report;
use crate::rows::{Clocks, Times};
use events::{Operation, Place};
use model::Checkpointing;
use places::resting_nearer;
use planned_run::PlannedRun;
use prediction::{BackwardPrefetch, Job, Placement, Stage};
use traffic::{costs, sending_less};
use wire::Wire;

mod places;
mod planned_run;
mod traffic;
mod wire;

/// A change that makes steps shorter.
#[derive(Clone, Debug, PartialEq)]
pub struct Speedup {
    /// The action: flags, another program, other machines.
    pub how: String,
    /// The reason why it works, or its cost.
    pub why: String,
    /// Maximum number of seconds of a step that it saves.
    pub seconds: f64,
}

/// Returns a [`Speedup`].
pub(super) fn speedup(how: impl Into<String>, why: impl Into<String>, seconds: f64) -> Speedup {
    Speedup { how: how.into(), why: why.into(), seconds }
}

/// Lists the speedups of `report`'s run, each alone, the one that saves most first.
pub fn speedups(report: &Report) -> Vec<Speedup> {
    let account = Account::of(report);
    let mut speedups = vec![
        speedup(
            "ranks equally fast, on cores of their own",
            "no rank waits",
            account.peers + account.without_core,
        ),
        speedup("data nearer by, or smaller", "fetched sooner", account.data),
    ];
    let run = PlannedRun::of(report);
    speedups.extend(link(report, &account, run.as_ref()));
    if let Some(run) = run {
        speedups.extend(update(report, &account, &run));
        speedups.extend(hiding(report, &account, &run));
        speedups.extend(sending_less(report, &account, &run));
        speedups.extend(resting_nearer(report, &account, &run));
        let placement = Placement { activations: Place::Device, ..run.job.placement };
        let kept = Job { checkpointing: Checkpointing::None, placement, ..run.job.clone() };
        let how = prediction::change("--checkpoint-activations none", &run.job, &kept);
        speedups.push(speedup(how, costs("nothing twice", &kept), account.recompute));
    }
    speedups.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    speedups
}

/// Returns speedups of the simulated link: a faster one, or fewer calls.
fn link(report: &Report, account: &Account, run: Option<&PlannedRun<'_>>) -> Vec<Speedup> {
    if report.link.is_none() {
        return Vec::new();
    }
    let latency = Wire::of(report).share_of_latency(report, run);
    // Units are gathered one by one; only updated parameters are sent in buckets.
    let gathers = |stage: Stage| stage.sharded().optimizer && !stage.sharded().parameters;
    let fewer = if gathers(report.stage) {
        "--reduce-bucket, --allgather-bucket, --wrap"
    } else {
        "--reduce-bucket, --wrap"
    };
    vec![
        speedup(
            "a link of twice the bandwidth",
            "half the time per byte",
            account.link * (1.0 - latency) / 2.0,
        ),
        speedup(fewer, "fewer calls", account.link * latency),
    ]
}

/// Suggests that each rank updates only its share; `None` if it does so already.
fn update(report: &Report, account: &Account, run: &PlannedRun<'_>) -> Option<Speedup> {
    let others = 1.0 - 1.0 / report.world_size as f64;
    let why = "each rank updates its share alone";
    let sharding = Stage::SHARDS_OPTIMIZER;
    let how = format!("cargo run -p {}", sharding.package());
    let how = prediction::change(&how, &run.job, &run.job.with_stage(sharding));
    (report.stage == Stage::REPLICATED).then(|| speedup(how, why, account.optimizer * others))
}

/// Returns the setting that prevents computation from hiding communication; `None` if there is
/// none.
fn hiding(report: &Report, account: &Account, run: &PlannedRun<'_>) -> Option<Speedup> {
    let mean = |seconds: fn(&Clocks) -> f64| per_step(report, |row| seconds(&row.clocks));
    // Copies on a rank's own thread take its time, at any point of the step.
    let on_gpus = !report.gpu.is_empty();
    let [forward, backward, step] = if on_gpus {
        [
            mean(|of| of.waits.forward - of.for_peers.forward),
            mean(|of| of.waits.backward - of.for_peers.backward),
            mean(|of| of.waits.step - of.for_peers.step),
        ]
    } else {
        [mean(|of| of.for_link.forward), mean(|of| of.for_link.backward), mean(|of| of.for_link.step)]
    };
    // Data also move while a rank waits for a core.
    let waits = |phase: fn(&Times) -> f64| without_core_per_step(report, phase);
    let backward_computes = account.backward + account.recompute + waits(|of| of.backward);
    let computing = account.forward + waits(|of| of.forward) + backward_computes;
    let communication = run.communication;
    if !communication.overlap {
        // The next forward can hide the all-gathers of updated parameters.
        let sharded = report.stage.sharded();
        let gathers_updates = sharded.optimizer && !sharded.parameters;
        let hidden = (forward + backward + if gathers_updates { step } else { 0.0 }).min(computing);
        return Some(speedup("without --no-overlap", "hidden behind computation", hidden));
    }
    if !report.stage.sharded().parameters {
        return None;
    }
    let gathers = gathering_share(report, on_gpus);
    if communication.prefetch_bucket == Some(0) {
        let hidden = (gathers * (forward + backward)).min(computing);
        return Some(speedup("without --prefetch-bucket 0", "units are gathered ahead", hidden));
    }
    let hidden = (gathers * backward).min(backward_computes);
    (communication.backward_prefetch == BackwardPrefetch::None)
        .then(|| speedup("--backward-prefetch pre", "backward gathers ahead too", hidden))
}

/// Returns the share of all-gathers in the time that ranks wait for communication, peers aside.
fn gathering_share(report: &Report, on_gpus: bool) -> f64 {
    let rows = report.time.iter().flat_map(|row| &row.operations);
    let (gathers, all) = rows.fold((0.0, 0.0), |(gathers, all), row| {
        let seconds = if on_gpus { row.seconds - row.peers_seconds } else { row.link_seconds };
        let gather = if row.operation == Operation::AllGather { seconds } else { 0.0 };
        (gathers + gather, all + seconds)
    });
    if all > 0.0 { gathers / all } else { 0.0 }
}

#[cfg(test)]
mod tests;
