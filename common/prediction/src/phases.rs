//! The phases of a run that send or move something.

/// How often each phase of a run has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Optimizer steps that updated parameters.
    pub steps: u64,
    /// Steps that were skipped.
    pub skipped: u64,
    /// Steps, updated or skipped, that began after the previous update had finished.
    pub fresh_starts: u64,
    /// Evaluations.
    pub evaluations: u64,
    /// Batches of all evaluations together.
    pub evaluation_batches: u64,
    /// Checkpoints between two steps.
    pub checkpoints: u64,
}

/// One value per phase of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerPhase<T> {
    /// Before the first step.
    pub setup: T,
    /// Per optimizer step.
    pub step: T,
    /// Per step that is skipped because a scaled loss's gradients overflowed.
    pub skipped_step: T,
    /// Added per step that begins after the previous update has finished: its forward reads from
    /// disk the shards that an update in progress would have handed over.
    pub reread: T,
    /// Per evaluation, without its batches.
    pub evaluation: T,
    /// Per batch of an evaluation.
    pub evaluation_batch: T,
    /// Per checkpoint between two steps.
    pub checkpoint: T,
}

impl<T> PerPhase<T> {
    /// Applies `f` to every phase.
    pub(crate) fn map<U>(&self, f: impl Fn(&T) -> U) -> PerPhase<U> {
        PerPhase {
            setup: f(&self.setup),
            step: f(&self.step),
            skipped_step: f(&self.skipped_step),
            reread: f(&self.reread),
            evaluation: f(&self.evaluation),
            evaluation_batch: f(&self.evaluation_batch),
            checkpoint: f(&self.checkpoint),
        }
    }

    /// Returns the total of a run whose phases happened `counts` times.
    pub fn total(&self, counts: RunCounts) -> T
    where
        T: Copy + Accumulate,
    {
        let mut total = self.setup;
        total.add(&self.step, counts.steps);
        total.add(&self.skipped_step, counts.skipped);
        total.add(&self.reread, counts.fresh_starts);
        total.add(&self.evaluation, counts.evaluations);
        total.add(&self.evaluation_batch, counts.evaluation_batches);
        total.add(&self.checkpoint, counts.checkpoints);
        total
    }
}

/// A count, or a set of counts, that is summed over a run.
pub trait Accumulate {
    /// Adds `other`, `times` times.
    fn add(&mut self, other: &Self, times: u64);
}

impl Accumulate for u64 {
    fn add(&mut self, other: &u64, times: u64) {
        *self += times * other;
    }
}

/// Adds element by element.
impl<const N: usize> Accumulate for [u64; N] {
    fn add(&mut self, other: &[u64; N], times: u64) {
        self.iter_mut().zip(other).for_each(|(count, other)| count.add(other, times));
    }
}
