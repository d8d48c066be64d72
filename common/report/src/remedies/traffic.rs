//! Settings with which a run sends less.

use super::planned_run::PlannedRun;
use super::wire::Wire;
use super::{Remedy, remedy};
use crate::account::Account;
use crate::report::Report;
use device::DType;
use planner::{Gathering, Job, Stage, Strategy};
use settings::size::human;
use sharding::Precision;

/// Returns settings with which ranks send less per token. The time saved is in proportion to the
/// planner's traffic.
pub(super) fn sending_less(report: &Report, account: &Account, run: &PlannedRun<'_>) -> Vec<Remedy> {
    let wire = Wire::of(report);
    let Some(now) = wire.time(&run.job) else { return Vec::new() };
    let saved = |change: Change| {
        let share = 1.0 - wire.time(&change.job)? / now;
        Some(remedy(change.how, change.why, account.exposed * share))
    };
    changes(run).into_iter().filter_map(saved).collect()
}

/// Other flags, and the job that they lead to.
struct Change {
    how: String,
    why: String,
    job: Job,
}

fn changes(run: &PlannedRun<'_>) -> Vec<Change> {
    let change = |how: &str, why: &str, job: Job| Change { how: how.into(), why: why.into(), job };
    let PlannedRun { job, precision, .. } = run;
    let mut changes = lower_stages(job);
    let micro_batches = 2 * job.micro_batches;
    let how = format!("--grad-accum {micro_batches}");
    changes.push(change(&how, "less communication per token", Job { micro_batches, ..job.clone() }));
    if job.stage.sharded().parameters && job.strategy == Strategy::FullShard {
        let kept = Job { strategy: Strategy::ShardGradOp, secondary_shards: None, ..job.clone() };
        changes.push(change("--strategy shard-grad-op", &costs("gathers once", &kept), kept));
    }
    if job.gathering.reuse == 0 {
        let gathering = Gathering { reuse: 1, ..job.gathering };
        let kept = Job { gathering, ..job.clone() };
        changes.push(change("without --reshard-last", "a gather less", kept));
    }
    if job.textbook_all_reduce {
        let scattered = Job { textbook_all_reduce: false, ..job.clone() };
        changes.push(change("without --grad-sync all-reduce", "a slice each is enough", scattered));
    }
    let [bf16, narrow] = [DType::Bf16, precision.parameters].map(|reduce| Precision { reduce, ..*precision });
    if precision.parameters == DType::F32 {
        let all = Precision { parameters: DType::Bf16, gradients: DType::Bf16, ..bf16 };
        changes.push(change("--precision bf16", "half the bytes", run.with_precision(all)));
    } else if precision.reduce.size() > precision.parameters.size() {
        let how = format!("--reduce-dtype {}", settings::float_type::name(precision.parameters));
        changes.push(change(&how, "half the bytes of gradients", run.with_precision(narrow)));
    }
    changes
}

/// Returns the stages that shard less and send less than every stage between them and the job's.
fn lower_stages(job: &Job) -> Vec<Change> {
    let sent = |job: &Job| Wire::BYTES.time(job).unwrap_or(f64::INFINITY);
    let (mut least, mut lower) = (sent(job), Vec::new());
    for stage in Stage::ALL.into_iter().rev().filter(|&other| other < job.stage) {
        let job = job.with_stage(stage);
        if sent(&job) < 0.99 * least {
            least = sent(&job);
            let how = format!("cargo run -p {}", stage.package());
            lower.push(Change { how, why: costs("sends less", &job), job });
        }
    }
    lower
}

/// Adds to `why` the memory that `job` needs.
pub(super) fn costs(why: &str, job: &Job) -> String {
    match planner::predict(job) {
        Ok(prediction) => format!("{why}, for {} a rank", human(prediction.peak.total())),
        Err(_) => why.into(),
    }
}
