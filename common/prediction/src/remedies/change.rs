//! Describes a change of flags in words: the flags to add, and those to remove because they
//! contradict it.

use crate::job::Job;
use crate::placement::Placement;
use events::Place;

/// A flag, and whether it must be left out of a run that changes from one job to another.
type Dropped = (&'static str, fn(&Job, &Job) -> bool);

/// Every flag that some change contradicts. A job does not record whether a default was typed, nor
/// the links and the directory of a run: their flags are always named.
const DROPPED: [Dropped; 16] = [
    ("--strategy", |before, after| before.stage != after.stage && before.strategy != after.strategy),
    ("--shard-group-size", |before, after| before.shard_group.is_some() && after.shard_group.is_none()),
    ("--secondary-shard-size", |before, after| {
        before.secondary_shards.is_some() && after.secondary_shards.is_none()
    }),
    ("--grad-sync", |before, after| before.textbook_all_reduce && !after.textbook_all_reduce),
    ("--grad-dtype", |before, after| before.recipe != after.recipe),
    ("--reduce-dtype", |before, after| {
        before.recipe != after.recipe
            || before.converted_gradients.is_some() && after.converted_gradients.is_none()
    }),
    ("--prefetch-bucket", stops_overlapping),
    ("--backward-prefetch", stops_overlapping),
    ("--limit-all-gathers", stops_overlapping),
    ("--offload-optimizer", |before, after| returns(before, after, |placement| placement.optimizer)),
    ("--offload-parameters", |before, after| returns(before, after, |placement| placement.parameters)),
    ("--offload-activations", |before, after| returns(before, after, |placement| placement.activations)),
    ("--offload-buffers", |before, after| {
        before.placement.buffers.is_some() && before.placement.any_states() && !after.placement.any_states()
    }),
    ("--offload-dir", leaves_disk),
    ("--host-link", |before, after| before.placement.any() && !after.placement.any()),
    ("--disk-link", leaves_disk),
];

fn stops_overlapping(before: &Job, after: &Job) -> bool {
    before.overlap && !after.overlap
}

/// True if the state in the field `rests` was offloaded before and is kept on the device after.
fn returns(before: &Job, after: &Job, rests: fn(&Placement) -> Place) -> bool {
    rests(&before.placement) != Place::Device && rests(&after.placement) == Place::Device
}

/// True if `before` stores something on disk, and `after` nothing.
fn leaves_disk(before: &Job, after: &Job) -> bool {
    before.placement.uses_disk() && !after.placement.uses_disk()
}

/// Returns `how` a run of `before` becomes one of `after`, and the flags to leave out: `--precision
/// bf16 without --grad-dtype and --reduce-dtype`. Names only the latter if `how` is empty.
pub fn change(how: &str, before: &Job, after: &Job) -> String {
    let named = |flag: &str| how.split_whitespace().any(|word| word == flag);
    let dropped = DROPPED.iter().filter(|(flag, drops)| !named(flag) && drops(before, after));
    let dropped: Vec<&str> = dropped.map(|(flag, _)| *flag).collect();
    let Some((last, others)) = dropped.split_last() else { return how.into() };
    let others = others.join(", ");
    let and = if others.is_empty() { "" } else { " and " };
    format!("{how} without {others}{and}{last}").trim_start().into()
}
