//! What would make a job fit, and what each remedy saves: one table of knobs, tried on the planner's walk.

use crate::fit::largest_batch;
use crate::gather::Gathering;
use crate::job::Job;
use crate::predict::total_peak;
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::strategy::Strategy;
use model::{Checkpointing, Wrap};

/// One change of flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// What to do: flags, or another program.
    pub how: String,
    /// What it costs, in a few words.
    pub costs: &'static str,
    /// Peak bytes per rank with it.
    pub total_peak: u64,
    /// Bytes per rank that it saves.
    pub saves: u64,
}

/// What helps a job that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedies {
    /// Bytes of a rank's device.
    pub capacity: u64,
    /// Each alone, the one that saves most first.
    pub alone: Vec<Remedy>,
    /// If none is enough alone: some that are together, and the peak with them.
    pub together: Option<(Vec<String>, u64)>,
}

/// A knob: what turning it costs, and the ways to turn it, each with the flags that do so.
struct Knob {
    costs: &'static str,
    turns: fn(&Job, u64) -> Vec<(String, Job)>,
}

/// Every knob. Those that change least about the training come first: they are preferred where several would do.
const KNOBS: &[Knob] = &[
    Knob { costs: "the same weights; other traffic", turns: stages },
    Knob { costs: "the same weights; more traffic", turns: full_shard },
    Knob { costs: "the same weights; more traffic between nodes", turns: secondary_shards },
    Knob { costs: "the same weights; more collectives", turns: wrapping },
    Knob { costs: "the same weights; more collectives", turns: buckets },
    Knob { costs: "the same weights; nothing hides gathering", turns: prefetch },
    Knob { costs: "the same weights; nothing hides traffic", turns: overlap },
    Knob { costs: "the same weights; a gather more", turns: reshard_last },
    Knob { costs: "the same weights; no copies", turns: contiguous },
    Knob { costs: "the same weights; blocks computed again", turns: checkpointing },
    Knob { costs: "the same global batch, in smaller pieces", turns: batch_size },
    Knob { costs: "gradients accumulate in 16 bits", turns: gradients },
    Knob { costs: "computes in 16 bits", turns: precision },
    Knob { costs: "more devices; a larger global batch", turns: ranks },
    Knob { costs: "a shorter context", turns: tokens },
];

fn stages(job: &Job, _: u64) -> Vec<(String, Job)> {
    let others = Stage::ALL.into_iter().filter(|&stage| stage > job.stage);
    others.map(|stage| (format!("cargo run -p {}", stage.package()), job.with_stage(stage))).collect()
}

fn full_shard(job: &Job, _: u64) -> Vec<(String, Job)> {
    let full = Job { strategy: Strategy::FullShard, shard_group: None, ..job.clone() };
    vec![("--strategy full-shard".into(), full)]
}

fn secondary_shards(job: &Job, _: u64) -> Vec<(String, Job)> {
    vec![("without --secondary-shard-size".into(), Job { secondary_shards: None, ..job.clone() })]
}

fn wrapping(job: &Job, _: u64) -> Vec<(String, Job)> {
    let finer = |wrap: Wrap| (format!("--wrap {wrap}"), Job { wrap, ..job.clone() });
    [Wrap::Block, Wrap::Module].map(finer).into()
}

fn buckets(job: &Job, _: u64) -> Vec<(String, Job)> {
    vec![("--reduce-bucket 1".into(), Job { reduce_bucket: Some(1), ..job.clone() })]
}

fn prefetch(job: &Job, _: u64) -> Vec<(String, Job)> {
    let gathering = Gathering { ahead: 0, ..job.gathering };
    vec![("--prefetch-bucket 0".into(), Job { gathering, ..job.clone() })]
}

fn overlap(job: &Job, _: u64) -> Vec<(String, Job)> {
    vec![("--no-overlap".into(), Job { overlap: false, ..job.clone() })]
}

fn reshard_last(job: &Job, _: u64) -> Vec<(String, Job)> {
    let gathering = Gathering { reuse: 0, ..job.gathering };
    vec![("--reshard-last".into(), Job { gathering, ..job.clone() })]
}

/// Gradients are copied on their way although their type stays.
fn copied(job: &Job) -> bool {
    job.converted_gradients == Some(job.recipe.gradients)
}

fn contiguous(job: &Job, _: u64) -> Vec<(String, Job)> {
    let reduced_in_place = Job { converted_gradients: None, ..job.clone() };
    let how = "--contiguous-gradients true".to_string();
    if copied(job) { vec![(how, reduced_in_place)] } else { Vec::new() }
}

fn checkpointing(job: &Job, _: u64) -> Vec<(String, Job)> {
    let kept = |checkpointing: Checkpointing| {
        let how = format!("--checkpoint-activations {}", checkpointing.label());
        (how, Job { checkpointing, ..job.clone() })
    };
    Checkpointing::ALL.into_iter().map(kept).collect()
}

/// The largest piece of the micro-batch that fits, or else a single sequence; accumulation makes up for it.
fn batch_size(job: &Job, capacity: u64) -> Vec<(String, Job)> {
    let fits = largest_batch(job, capacity).unwrap_or(1);
    let divides = |size: &usize| job.batch_size.is_multiple_of(*size);
    let batch_size = (1..job.batch_size.min(fits + 1)).rev().find(divides).unwrap_or(job.batch_size);
    let micro_batches = job.micro_batches.saturating_mul(job.batch_size / batch_size);
    let how = format!("--batch-size {batch_size} --grad-accum {micro_batches}");
    vec![(how, Job { batch_size, micro_batches, ..job.clone() })]
}

fn gradients(job: &Job, _: u64) -> Vec<(String, Job)> {
    let recipe = Recipe { gradients: job.recipe.gradients.min(job.recipe.weights), ..job.recipe };
    let converted_gradients = copied(job).then_some(recipe.gradients);
    vec![("without --grad-dtype".into(), Job { recipe, converted_gradients, ..job.clone() })]
}

fn precision(job: &Job, _: u64) -> Vec<(String, Job)> {
    if job.recipe.weights <= Recipe::MIXED.weights {
        return Vec::new();
    }
    let recipe = Recipe::MIXED;
    let converted_gradients = copied(job).then_some(recipe.gradients);
    vec![("--precision bf16".into(), Job { recipe, converted_gradients, ..job.clone() })]
}

fn ranks(job: &Job, _: u64) -> Vec<(String, Job)> {
    let world_size = job.world_size.saturating_mul(2);
    vec![(format!("--gpus {world_size}"), Job { world_size, ..job.clone() })]
}

fn tokens(job: &Job, _: u64) -> Vec<(String, Job)> {
    let tokens = (job.tokens / 2).max(1);
    vec![(format!("--seq-len {tokens}"), Job { tokens, ..job.clone() })]
}

/// A job with a knob turned.
struct Turned {
    /// The knob, by its place in [`KNOBS`].
    knob: usize,
    remedy: Remedy,
    job: Job,
}

/// What each knob would save of `job`'s peak on a device of `capacity` bytes.
pub fn remedies(job: &Job, capacity: u64) -> Remedies {
    let turned: Vec<Turned> = (0..KNOBS.len()).flat_map(|knob| turn(knob, job, capacity)).collect();
    let together = if turned.iter().any(|turned| turned.remedy.total_peak <= capacity) {
        None
    } else {
        pair(&turned, capacity).or_else(|| all(job, capacity))
    };
    let mut alone: Vec<Remedy> = turned.into_iter().map(|turned| turned.remedy).collect();
    alone.sort_by_key(|remedy| remedy.total_peak);
    Remedies { capacity, alone, together }
}

/// The ways to turn a knob that save something.
fn turn(knob: usize, job: &Job, capacity: u64) -> Vec<Turned> {
    let Ok(before) = total_peak(job) else { return Vec::new() };
    let saving = |(how, job): (String, Job)| {
        let total_peak = total_peak(&job).ok()?;
        let saves = before.checked_sub(total_peak).filter(|&saves| saves > 0)?;
        let remedy = Remedy { how, costs: KNOBS[knob].costs, total_peak, saves };
        Some(Turned { knob, remedy, job })
    };
    (KNOBS[knob].turns)(job, capacity).into_iter().filter_map(saving).collect()
}

/// The first two knobs that are enough together, in the order of [`KNOBS`].
fn pair(turned: &[Turned], capacity: u64) -> Option<(Vec<String>, u64)> {
    turned.iter().find_map(|first| {
        let others = (0..KNOBS.len()).filter(|&knob| knob != first.knob);
        let second = others.flat_map(|knob| turn(knob, &first.job, capacity));
        let enough = second.map(|second| second.remedy).find(|second| second.total_peak <= capacity)?;
        Some((vec![first.remedy.how.clone(), enough.how], enough.total_peak))
    })
}

/// One knob after another, each turned as far as it goes, until they are enough.
fn all(job: &Job, capacity: u64) -> Option<(Vec<String>, u64)> {
    let (mut job, mut how) = (job.clone(), Vec::new());
    for knob in 0..KNOBS.len() {
        let ways = turn(knob, &job, capacity);
        let Some(best) = ways.into_iter().min_by_key(|turned| turned.remedy.total_peak) else { continue };
        how.push(best.remedy.how);
        job = best.job;
        if best.remedy.total_peak <= capacity {
            return Some((how, best.remedy.total_peak));
        }
    }
    None
}
