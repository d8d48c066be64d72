//! The knobs: each way to change one setting of a job, with its flags.
//! [`change`](fn@super::change) adds the flags to leave out.

use super::Room;
use crate::fit::largest_batch;
use crate::gathering::BackwardPrefetch;
use crate::job::Job;
use crate::placement::{MOVABLE, Movable, Placement, Saving, place_word};
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

const fn knob(costs: &'static str, turns: fn(&Job, Room) -> Vec<(String, Job)>) -> Knob {
    Knob { costs, turns }
}

/// The added flags of a change that only leaves flags out: none.
const NOTHING: &str = "";

/// Every knob. The knobs that change least about training come first: they are preferred where
/// several are enough.
pub(super) const KNOBS: &[Knob] = &[
    knob("the same weights; different communication", stages),
    knob("the same weights; more traffic", full_shard),
    knob("the same weights; more traffic between nodes", shard_group),
    knob("the same weights; more traffic between nodes", secondary_shards),
    knob("the same weights; more collectives", wrapping),
    knob("the same weights; more collectives", |job, _| {
        set(job, "--reduce-bucket 1", |job| job.reduce_bucket = Some(1))
    }),
    knob("the same weights; small tensors are gathered", |job, _| {
        set(job, "--param-persistence-threshold 0", |job| job.persistence_threshold = 0)
    }),
    // A job with `--reshard-last`, which excludes this flag, keeps nothing already.
    knob("the same weights; more gathers", |job, _| {
        set(job, "--max-reuse-distance 0", |job| job.gathering.reuse = 0)
    }),
    // Before the knobs that gather less ahead: without overlap, nothing is gathered ahead.
    knob("the same weights; no traffic is hidden", |job, _| {
        set(job, "--no-overlap", |job| job.overlap = false)
    }),
    knob("the same weights; no unit is gathered ahead", |job, _| {
        set(job, "--prefetch-bucket 0", |job| job.gathering.ahead = 0)
    }),
    knob("the same weights; fewer units are gathered ahead", |job, _| {
        set(job, "--limit-all-gathers 1", |job| job.gathering.in_flight = 1)
    }),
    knob("the same weights; gathers of backward overlap less", |job, _| {
        set(job, "--backward-prefetch post", |job| job.gathering.backward = BackwardPrefetch::Post)
    }),
    knob("the same weights; units are freed sooner", |job, _| {
        set(job, "--max-live-parameters 0", |job| job.gathering.live = 0)
    }),
    knob("the same weights; no copies", |job, _| {
        set(job, "--contiguous-gradients true", |job| job.copied_gradients = false)
    }),
    knob("the same weights; activations recomputed", checkpointing),
    knob("the same weights; more and shorter transfers", staging),
    knob("the same weights; training waits for each save", saving),
    knob("the same weights", |job, _| moved(job, &MOVABLE[0])),
    knob("the same weights", |job, _| moved(job, &MOVABLE[1])),
    knob("the same weights", |job, _| moved(job, &MOVABLE[2])),
    knob("the same global batch, in smaller pieces", batch_size),
    knob("gradients are sent in the type in which they accumulate", |job, _| {
        set(job, NOTHING, |job| job.converted_gradients = None)
    }),
    knob("gradients accumulate in 16 bits", gradients),
    knob("computes in 16 bits", precision),
    knob("more devices; a larger global batch", ranks),
    knob("a shorter context", tokens),
];

/// Returns `job` with one setting changed, whatever its current value.
fn set(job: &Job, how: &str, change: fn(&mut Job)) -> Vec<(String, Job)> {
    let mut job = job.clone();
    change(&mut job);
    vec![(how.into(), job)]
}

fn stages(job: &Job, _: Room) -> Vec<(String, Job)> {
    let others = Stage::ALL.into_iter().filter(|&stage| stage > job.stage);
    others.map(|stage| (format!("cargo run -p {}", stage.package()), job.with_stage(stage))).collect()
}

/// Returns `job` without the buffer for a copy of a rank's checkpoint.
fn saving(job: &Job, _: Room) -> Vec<(String, Job)> {
    let placement = Placement { saving: Saving::Streaming, ..job.placement };
    let waiting = Job { placement, ..job.clone() };
    let copies = job.placement.saving == Saving::Copying;
    copies.then(|| ("--checkpoint-wait".into(), waiting)).into_iter().collect()
}

fn full_shard(job: &Job, _: Room) -> Vec<(String, Job)> {
    let full = Job { strategy: Strategy::FullShard, shard_group: None, ..job.clone() };
    vec![("--strategy full-shard".into(), full)]
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
    larger.into_iter().chain([(NOTHING.into(), None)]).map(turned).collect()
}

fn wrapping(job: &Job, _: Room) -> Vec<(String, Job)> {
    let finer = |wrap: Wrap| (format!("--wrap {wrap}"), Job { wrap, ..job.clone() });
    [Wrap::Block, Wrap::Module, Wrap::Parameter].map(finer).into()
}

fn checkpointing(job: &Job, _: Room) -> Vec<(String, Job)> {
    let kept = |checkpointing: Checkpointing| {
        let how = format!("--checkpoint-activations {}", checkpointing.label());
        (how, Job { checkpointing, ..job.clone() })
    };
    Checkpointing::ALL.into_iter().map(kept).collect()
}

/// Elements of a smaller sub-group than the default.
const SMALL_SUB_GROUP: u64 = 1_000_000;

fn staging(job: &Job, _: Room) -> Vec<(String, Job)> {
    let now = job.placement;
    if !now.any_states() {
        return Vec::new();
    }
    let sub_group_size = Some(SMALL_SUB_GROUP.min(now.sub_group_size()));
    let turned = |how: String, placement| (how, Job { placement, ..job.clone() });
    vec![
        turned("--offload-buffers 1".into(), Placement { buffers: Some(1), ..now }),
        turned(format!("--sub-group-size {SMALL_SUB_GROUP}"), Placement { sub_group_size, ..now }),
    ]
}

/// Moves the state in the field `rests`, which is offloaded or can be, to each other place. A state
/// on disk is saved without a copy first.
fn moved(job: &Job, (flag, rests): &Movable) -> Vec<(String, Job)> {
    let mut job = job.clone();
    let now = *rests(&mut job.placement);
    let others = Place::ALL.iter().filter(|&&place| place != now);
    let turned = |&place: &Place| {
        let placement = &mut job.placement;
        *rests(placement) = place;
        if placement.saving == Saving::Copying && placement.states_on_disk() {
            placement.saving = Saving::Streaming;
        }
        (format!("{flag} {}", place_word(place)), job.clone())
    };
    others.map(turned).collect()
}

/// Cuts the micro-batch into the largest pieces that fit, or else into single sequences, and
/// accumulates gradients over them.
fn batch_size(job: &Job, room: Room) -> Vec<(String, Job)> {
    let most = largest_batch(job, |job| room.fits(job)).unwrap_or(1);
    let divides = |size: &usize| job.batch_size.is_multiple_of(*size);
    let cut = |batch_size| {
        let micro_batches = job.micro_batches.saturating_mul(job.batch_size / batch_size);
        let how = format!("--batch-size {batch_size} --grad-accum {micro_batches}");
        (how, Job { batch_size, micro_batches, ..job.clone() })
    };
    // Buffers in flight from one micro-batch to the next need room, too.
    let mut pieces = (1..job.batch_size.min(most + 1)).rev().filter(divides).map(cut);
    pieces.find(|(_, job)| job.batch_size == 1 || room.fits(job)).into_iter().collect()
}

/// Sets the gradients' type to the weights', their default, unless they have it already.
fn gradients(job: &Job, _: Room) -> Vec<(String, Job)> {
    let recipe = Recipe { gradients: job.recipe.weights, ..job.recipe };
    if recipe == job.recipe {
        return Vec::new();
    }
    vec![(NOTHING.into(), Job { recipe, converted_gradients: None, ..job.clone() })]
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
