//! Settings with which a run sends less.

use super::planned_run::PlannedRun;
use super::wire::Wire;
use super::{Speedup, speedup};
use crate::account::Account;
use crate::report::Report;
use device::DType;
use prediction::{Gathering, Job, Stage, Strategy};
use settings::size::human;
use sharding::Precision;

/// Returns settings with which ranks send less per token. The time saved is proportional to the
/// predicted traffic.
pub(super) fn sending_less(report: &Report, account: &Account, run: &PlannedRun<'_>) -> Vec<Speedup> {
    let wire = Wire::of(report);
    let Some(now) = wire.time(&run.job) else { return Vec::new() };
    let saved = |change: Change| {
        let share = 1.0 - wire.time(&change.job)? / now;
        Some(speedup(change.how, change.why, account.exposed * share))
    };
    changes(run).into_iter().filter_map(saved).collect()
}

/// A change of flags, and the job that results.
struct Change {
    how: String,
    why: String,
    job: Job,
}

impl Change {
    /// Returns the change from `run` to `job` by the flags `how`, with the flags that it drops.
    fn of(run: &PlannedRun<'_>, how: &str, why: impl Into<String>, job: Job) -> Self {
        Change { how: prediction::change(how, &run.job, &job), why: why.into(), job }
    }
}

fn changes(run: &PlannedRun<'_>) -> Vec<Change> {
    let PlannedRun { job, precision, .. } = run;
    let mut changes = lower_stages(run);
    let mut change = |how: &str, why: &str, job: Job| changes.push(Change::of(run, how, why, job));
    let micro_batches = 2 * job.micro_batches;
    let how = format!("--grad-accum {micro_batches}");
    change(&how, "less communication per token", Job { micro_batches, ..job.clone() });
    if job.stage.sharded().parameters && job.strategy == Strategy::FullShard {
        let kept = Job { strategy: Strategy::ShardGradOp, secondary_shards: None, ..job.clone() };
        change("--strategy shard-grad-op", &costs("gathers once", &kept), kept);
    }
    if job.gathering.reuse == 0 {
        let gathering = Gathering { reuse: 1, ..job.gathering };
        change(
            "without --reshard-last and --max-reuse-distance",
            "a gather less",
            Job { gathering, ..job.clone() },
        );
    }
    if job.textbook_all_reduce {
        change("", "a slice each is enough", Job { textbook_all_reduce: false, ..job.clone() });
    }
    let [bf16, narrow] = [DType::Bf16, precision.parameters].map(|reduce| Precision { reduce, ..*precision });
    if precision.parameters == DType::F32 {
        let all = Precision { parameters: DType::Bf16, gradients: DType::Bf16, ..bf16 };
        change("--precision bf16", "half the bytes", run.with_precision(all));
    } else if precision.reduce.size() > precision.parameters.size() {
        let how = format!("--reduce-dtype {}", settings::float_type::name(precision.parameters));
        change(&how, "half the bytes of gradients", run.with_precision(narrow));
    }
    changes
}

/// Returns the stages that shard less and send less than every stage between them and the run's.
fn lower_stages(run: &PlannedRun<'_>) -> Vec<Change> {
    let sent = |job: &Job| Wire::BYTES.time(job).unwrap_or(f64::INFINITY);
    let (mut least, mut lower) = (sent(&run.job), Vec::new());
    for stage in Stage::ALL.into_iter().rev().filter(|&other| other < run.job.stage) {
        let job = run.job.with_stage(stage);
        if sent(&job) < 0.99 * least {
            least = sent(&job);
            let how = format!("cargo run -p {}", stage.package());
            lower.push(Change::of(run, &how, costs("sends less", &job), job));
        }
    }
    lower
}

/// Adds to `why` the memory that `job` needs.
pub(super) fn costs(why: &str, job: &Job) -> String {
    match prediction::predict(job) {
        Ok(prediction) => format!("{why}, for {} a rank", human(prediction.peak.total())),
        Err(_) => why.into(),
    }
}
