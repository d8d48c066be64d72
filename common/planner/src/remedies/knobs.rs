//! The knobs: each way to change one setting of a job, with its flags.

use super::Room;
use crate::fit::largest_batch;
use crate::gathering::{BackwardPrefetch, Gathering};
use crate::job::Job;
use crate::placement::{Placement, place_word};
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::strategy::Strategy;
use events::Place;
use model::{Checkpointing, Wrap};

/// A knob: the cost of turning it, and the ways to turn it, each with its flags.
pub(super) struct Knob {
    pub(super) costs: &'static str,
    pub(super) turns: fn(&Job, Room) -> Vec<(String, Job)>,
}

/// Every knob. The knobs that change least about training come first: they are preferred where
/// several are enough.
pub(super) const KNOBS: &[Knob] = &[
    Knob { costs: "the same weights; other traffic", turns: stages },
    Knob { costs: "the same weights; more traffic", turns: full_shard },
    Knob { costs: "the same weights; more traffic between nodes", turns: shard_group },
    Knob { costs: "the same weights; more traffic between nodes", turns: secondary_shards },
    Knob { costs: "the same weights; more collectives", turns: wrapping },
    Knob { costs: "the same weights; more collectives", turns: buckets },
    Knob { costs: "the same weights; small tensors are gathered", turns: whole_tensors },
    Knob { costs: "the same weights; more gathers", turns: reuse },
    // Before the knobs that gather less ahead: without overlap, nothing is gathered ahead.
    Knob { costs: "the same weights; nothing hides traffic", turns: overlap },
    Knob { costs: "the same weights; nothing hides gathering", turns: prefetch },
    Knob { costs: "the same weights; less hides gathering", turns: in_flight },
    Knob { costs: "the same weights; less hides gathering", turns: backward_prefetch },
    Knob { costs: "the same weights; nothing gathered stays", turns: live },
    Knob { costs: "the same weights; no copies", turns: contiguous },
    Knob { costs: "the same weights; blocks computed again", turns: checkpointing },
    Knob { costs: "the same weights; more and shorter transfers", turns: staging },
    Knob { costs: "the same weights", turns: offload_optimizer },
    Knob { costs: "the same weights", turns: offload_parameters },
    Knob { costs: "the same weights", turns: offload_activations },
    Knob { costs: "the same global batch, in smaller pieces", turns: batch_size },
    Knob { costs: "gradients travel as they accumulate", turns: reduction },
    Knob { costs: "gradients accumulate in 16 bits", turns: gradients },
    Knob { costs: "computes in 16 bits", turns: precision },
    Knob { costs: "more devices; a larger global batch", turns: ranks },
    Knob { costs: "a shorter context", turns: tokens },
];

fn stages(job: &Job, _: Room) -> Vec<(String, Job)> {
    let others = Stage::ALL.into_iter().filter(|&stage| stage > job.stage);
    let without = if job.textbook_all_reduce { " without --grad-sync" } else { "" };
    let turned = |stage: Stage| {
        let how = format!("cargo run -p {}{without}", stage.package());
        (how, Job { textbook_all_reduce: false, ..job.with_stage(stage) })
    };
    others.map(turned).collect()
}

fn full_shard(job: &Job, _: Room) -> Vec<(String, Job)> {
    let without = if job.strategy.forms_groups() { " without --shard-group-size" } else { "" };
    let full = Job { strategy: Strategy::FullShard, shard_group: None, ..job.clone() };
    vec![(format!("--strategy full-shard{without}"), full)]
}

/// Returns the next larger size of groups that divides the number of ranks.
fn next_group(job: &Job, size: usize) -> Option<usize> {
    (size + 1..job.world_size)
        .find(|&larger| larger.is_multiple_of(size) && job.world_size.is_multiple_of(larger))
}

fn shard_group(job: &Job, _: Room) -> Vec<(String, Job)> {
    let larger = job.shard_group.and_then(|size| next_group(job, size));
    let turned =
        |size| (format!("--shard-group-size {size}"), Job { shard_group: Some(size), ..job.clone() });
    larger.map(turned).into_iter().collect()
}

fn secondary_shards(job: &Job, _: Room) -> Vec<(String, Job)> {
    let Some(size) = job.secondary_shards else { return Vec::new() };
    let turned = |(how, secondary_shards)| (how, Job { secondary_shards, ..job.clone() });
    let larger = next_group(job, size).map(|size| (format!("--secondary-shard-size {size}"), Some(size)));
    larger.into_iter().chain([("without --secondary-shard-size".into(), None)]).map(turned).collect()
}

fn wrapping(job: &Job, _: Room) -> Vec<(String, Job)> {
    let finer = |wrap: Wrap| (format!("--wrap {wrap}"), Job { wrap, ..job.clone() });
    [Wrap::Block, Wrap::Module, Wrap::Parameter].map(finer).into()
}

fn buckets(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![("--reduce-bucket 1".into(), Job { reduce_bucket: Some(1), ..job.clone() })]
}

fn whole_tensors(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![("--param-persistence-threshold 0".into(), Job { whole_tensor: 0, ..job.clone() })]
}

/// Returns `job` with other settings of gathering.
fn gathering(job: &Job, how: &str, gathering: Gathering) -> (String, Job) {
    (how.into(), Job { gathering, ..job.clone() })
}

/// Turns the flag that the job was given: `--max-reuse-distance` and `--reshard-last` exclude each
/// other.
fn reuse(job: &Job, _: Room) -> Vec<(String, Job)> {
    let how = if job.gathering.reuse > 1 { "--max-reuse-distance 0" } else { "--reshard-last" };
    vec![gathering(job, how, Gathering { reuse: 0, ..job.gathering })]
}

/// Drops the flags about gathering ahead too, since they contradict `--no-overlap`.
fn overlap(job: &Job, _: Room) -> Vec<(String, Job)> {
    let (set, default) = (job.gathering, Gathering::default());
    let idle = [
        (set.ahead != default.ahead, "--prefetch-bucket"),
        (set.backward != default.backward, "--backward-prefetch"),
        (set.in_flight != default.in_flight, "--limit-all-gathers"),
    ];
    let idle: Vec<&str> = idle.iter().filter(|(given, _)| *given).map(|(_, flag)| *flag).collect();
    let without = if idle.is_empty() { "" } else { " without " };
    let how = format!("--no-overlap{without}{}", idle.join(" and "));
    vec![(how, Job { overlap: false, ..job.clone() })]
}

fn prefetch(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![gathering(job, "--prefetch-bucket 0", Gathering { ahead: 0, ..job.gathering })]
}

fn in_flight(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![gathering(job, "--limit-all-gathers 1", Gathering { in_flight: 1, ..job.gathering })]
}

fn backward_prefetch(job: &Job, _: Room) -> Vec<(String, Job)> {
    let post = Gathering { backward: BackwardPrefetch::Post, ..job.gathering };
    vec![gathering(job, "--backward-prefetch post", post)]
}

fn live(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![gathering(job, "--max-live-parameters 0", Gathering { live: 0, ..job.gathering })]
}

fn contiguous(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![("--contiguous-gradients true".into(), Job { copied_gradients: false, ..job.clone() })]
}

fn checkpointing(job: &Job, _: Room) -> Vec<(String, Job)> {
    let kept = |checkpointing: Checkpointing| {
        let how = format!("--checkpoint-activations {}", checkpointing.label());
        (how, Job { checkpointing, ..job.clone() })
    };
    Checkpointing::ALL.into_iter().map(kept).collect()
}

/// Elements of a smaller piece than the default.
const SMALL_PIECE: u64 = 1_000_000;

fn staging(job: &Job, _: Room) -> Vec<(String, Job)> {
    let now = job.placement;
    if [now.optimizer, now.parameters].iter().all(|place| *place == Place::Device) {
        return Vec::new();
    }
    let piece = Some(SMALL_PIECE.min(now.piece()));
    let turned = |how: String, placement| (how, Job { placement, ..job.clone() });
    vec![
        turned("--offload-buffers 1".into(), Placement { buffers: 1, ..now }),
        turned(format!("--sub-group-size {SMALL_PIECE}"), Placement { piece, ..now }),
    ]
}

/// Moves what rests at `now` to each other place: `flag` says so, and `placed` gives the placement.
fn moved(job: &Job, flag: &str, now: Place, placed: impl Fn(Place) -> Placement) -> Vec<(String, Job)> {
    let others = Place::ALL.iter().filter(|&&place| place != now);
    let turned = |&place: &Place| {
        let how = format!("{flag} {}", place_word(place));
        (how, Job { placement: placed(place), ..job.clone() })
    };
    others.map(turned).collect()
}

fn offload_optimizer(job: &Job, _: Room) -> Vec<(String, Job)> {
    let now = job.placement;
    moved(job, "--offload-optimizer", now.optimizer, |optimizer| Placement { optimizer, ..now })
}

fn offload_parameters(job: &Job, _: Room) -> Vec<(String, Job)> {
    let now = job.placement;
    moved(job, "--offload-parameters", now.parameters, |parameters| Placement { parameters, ..now })
}

fn offload_activations(job: &Job, _: Room) -> Vec<(String, Job)> {
    let now = job.placement;
    moved(job, "--offload-activations", now.activations, |activations| Placement { activations, ..now })
}

/// Cuts the micro-batch into the largest pieces that fit, or else into single sequences, and
/// accumulates over them.
fn batch_size(job: &Job, room: Room) -> Vec<(String, Job)> {
    let fits = largest_batch(job, |job| room.fits(job)).unwrap_or(1);
    let divides = |size: &usize| job.batch_size.is_multiple_of(*size);
    let batch_size = (1..job.batch_size.min(fits + 1)).rev().find(divides).unwrap_or(job.batch_size);
    let micro_batches = job.micro_batches.saturating_mul(job.batch_size / batch_size);
    let how = format!("--batch-size {batch_size} --grad-accum {micro_batches}");
    vec![(how, Job { batch_size, micro_batches, ..job.clone() })]
}

fn reduction(job: &Job, _: Room) -> Vec<(String, Job)> {
    vec![("without --reduce-dtype".into(), Job { converted_gradients: None, ..job.clone() })]
}

fn gradients(job: &Job, _: Room) -> Vec<(String, Job)> {
    let recipe = Recipe { gradients: job.recipe.gradients.min(job.recipe.weights), ..job.recipe };
    let how = "without --grad-dtype and --reduce-dtype".into();
    vec![(how, Job { recipe, converted_gradients: None, ..job.clone() })]
}

fn precision(job: &Job, _: Room) -> Vec<(String, Job)> {
    if job.recipe.weights <= Recipe::MIXED.weights {
        return Vec::new();
    }
    let mixed = Job { recipe: Recipe::MIXED, converted_gradients: None, ..job.clone() };
    vec![("--precision bf16".into(), mixed)]
}

fn ranks(job: &Job, _: Room) -> Vec<(String, Job)> {
    let world_size = job.world_size.saturating_mul(2);
    vec![(format!("--gpus {world_size}"), Job { world_size, ..job.clone() })]
}

fn tokens(job: &Job, _: Room) -> Vec<(String, Job)> {
    let tokens = (job.tokens / 2).max(1);
    vec![(format!("--seq-len {tokens}"), Job { tokens, ..job.clone() })]
}
