//! Remedies for a job that does not fit, and the bytes that each saves: one table of knobs, tried
//! on the walk.

mod change;
mod knobs;

use crate::job::Job;
use crate::placement::Limits;
use crate::predict::{Requirements, requirements};
use crate::traffic::Algorithm;
use events::Place;
use knobs::KNOBS;

pub use change::change;

/// One change of flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedy {
    /// The change: flags, or another program.
    pub how: String,
    /// Its cost, in a few words.
    pub costs: String,
    /// Peak bytes per rank with this change, where memory is short.
    pub total_peak: u64,
    /// Bytes per rank that the change saves there.
    pub saves: u64,
    /// Additional bytes that a rank moves between device, main memory and disk per step.
    pub moves: u64,
}

/// The remedies for a job that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remedies {
    /// Bytes per rank where memory is short.
    pub capacity: u64,
    /// Each remedy alone, the one that saves most first.
    pub alone: Vec<Remedy>,
    /// If no remedy alone is enough: remedies that are enough together, and the peak with them.
    /// `None` if there are none.
    pub together: Option<(Vec<String>, u64)>,
}

/// The memory that a job must fit into, per rank.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The place where memory is short; `None` if device and main memory are one.
    pub place: Option<Place>,
    capacity: u64,
    limits: Limits,
}

impl Room {
    /// Returns the room of a rank whose `place` has only `capacity` bytes. `limits` bound the other
    /// places.
    pub fn of(place: Place, capacity: u64, limits: Limits) -> Self {
        Room { place: Some(place), capacity, limits }
    }

    /// Returns the room of a rank that shares one memory with all others, with `capacity` bytes for
    /// its device and its main memory: more ranks do not help. `limits` bound each place.
    pub fn shared(capacity: u64, limits: Limits) -> Self {
        Room { place: None, capacity, limits }
    }

    /// Returns the bytes of `needs` that count against the capacity.
    fn counts(&self, needs: &Requirements) -> u64 {
        match self.place {
            Some(place) => needs.peaks[place.index()],
            None => needs.peaks[Place::Device.index()] + needs.peaks[Place::Host.index()],
        }
    }

    /// True if `job` fits where memory is short.
    fn fits(&self, job: &Job) -> bool {
        requirements(job).is_ok_and(|needs| self.counts(&needs) <= self.capacity)
    }

    /// True if `after` needs no more bytes in any place than its limit, or than `before` needs.
    fn allows(&self, before: &Requirements, after: &Requirements) -> bool {
        let limited = self.limits.iter().zip(before.peaks).zip(after.peaks);
        limited
            .into_iter()
            .all(|((limit, before), after)| limit.is_none_or(|limit| after <= limit.max(before)))
    }
}

/// Returns the bytes that each knob saves of `job`'s peak where `room` is short of memory.
pub fn remedies(room: Room, job: &Job) -> Remedies {
    let capacity = room.capacity;
    let turned: Vec<AppliedKnob> = (0..KNOBS.len()).flat_map(|knob| turn(knob, job, room)).collect();
    let together = if turned.iter().any(|turned| turned.remedy.total_peak <= capacity) {
        None
    } else {
        pair(&turned, room).or_else(|| all(job, room))
    };
    let mut alone: Vec<Remedy> = turned.into_iter().map(|turned| turned.remedy).collect();
    alone.sort_by_key(|remedy| remedy.total_peak);
    Remedies { capacity, alone, together }
}

/// A job with one knob turned.
struct AppliedKnob {
    /// The knob's index in [`KNOBS`].
    knob: usize,
    remedy: Remedy,
    job: Job,
}

/// Returns the ways to turn a knob that save something.
fn turn(knob: usize, job: &Job, room: Room) -> Vec<AppliedKnob> {
    let Ok(before) = requirements(job) else { return Vec::new() };
    let possible = |turned: &(String, Job)| room.place.is_some() || turned.1.world_size <= job.world_size;
    let saving = |(how, turned): (String, Job)| {
        let after = requirements(&turned).ok().filter(|after| room.allows(&before, after))?;
        let total_peak = room.counts(&after);
        let saves = room.counts(&before).checked_sub(total_peak).filter(|&saves| saves > 0)?;
        let moves = after.moves.saturating_sub(before.moves);
        let how = change(&how, job, &turned);
        let remedy = Remedy { how, costs: costs(KNOBS[knob].costs, job, &turned), total_peak, saves, moves };
        Some(AppliedKnob { knob, remedy, job: turned })
    };
    (KNOBS[knob].turns)(job, room).into_iter().filter(possible).filter_map(saving).collect()
}

/// Returns a change's cost in words. Weights are the same to the bit unless sums are accumulated in
/// another order.
fn costs(words: &str, before: &Job, after: &Job) -> String {
    // Gradients are summed over micro-batches first and then over ranks, or the other way round.
    let accumulation = |job: &Job| (job.micro_batches > 1).then_some(job.stage.sharded().gradients);
    let groups = |job: &Job| (job.strategy, job.shard_group);
    let cut = |job: &Job| (job.stage, job.wrap, groups(job));
    let uneven = |job: &Job| job.strategy.forms_groups() && !job.shards().is_power_of_two();
    let rounded = accumulation(before) != accumulation(after)
        || before.algorithm == Algorithm::Ring && cut(before) != cut(after)
        || groups(before) != groups(after) && (uneven(before) || uneven(after));
    if rounded {
        words.replacen("the same weights", "the same weights up to rounding", 1)
    } else {
        words.into()
    }
}

/// Returns the first two knobs that are enough together, in the order of [`KNOBS`].
fn pair(turned: &[AppliedKnob], room: Room) -> Option<(Vec<String>, u64)> {
    turned.iter().find_map(|first| {
        let others = (0..KNOBS.len()).filter(|&knob| knob != first.knob);
        let second = others.flat_map(|knob| turn(knob, &first.job, room));
        let enough = second.map(|second| second.remedy).find(|second| second.total_peak <= room.capacity)?;
        Some((vec![first.remedy.how.clone(), enough.how], enough.total_peak))
    })
}

/// Turns one knob after another, each as far as possible, until they are enough. Then leaves out
/// each knob without which the others are still enough.
fn all(job: &Job, room: Room) -> Option<(Vec<String>, u64)> {
    let mut found = enough(job, room, &(0..KNOBS.len()).collect::<Vec<_>>())?;
    for knob in found.knobs.clone() {
        let others: Vec<usize> = found.knobs.iter().copied().filter(|&other| other != knob).collect();
        found = enough(job, room, &others).unwrap_or(found);
    }
    Some((found.how, found.total_peak))
}

/// Knobs that are enough together.
struct Enough {
    knobs: Vec<usize>,
    how: Vec<String>,
    total_peak: u64,
}

/// Turns `knobs` one after another, each as far as possible, until they are enough.
fn enough(job: &Job, room: Room, knobs: &[usize]) -> Option<Enough> {
    let (mut job, mut turned, mut how) = (job.clone(), Vec::new(), Vec::new());
    for &knob in knobs {
        let ways = turn(knob, &job, room);
        let Some(best) = ways.into_iter().min_by_key(|turned| turned.remedy.total_peak) else { continue };
        turned.push(knob);
        how.push(best.remedy.how);
        job = best.job;
        let total_peak = best.remedy.total_peak;
        if total_peak <= room.capacity {
            return Some(Enough { knobs: turned, how, total_peak });
        }
    }
    None
}
