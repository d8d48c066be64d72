//! The parts of a run that send or move something.

/// How often each part of a run has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Optimizer steps that updated something.
    pub steps: u64,
    /// Steps that were skipped.
    pub skipped: u64,
    /// Steps of both kinds that began when the update before them was over.
    pub fresh_starts: u64,
    /// Evaluations.
    pub evaluations: u64,
    /// Batches of all of them.
    pub evaluation_batches: u64,
    /// Checkpoints between two steps.
    pub checkpoints: u64,
}

/// A figure of each part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts<T> {
    /// Before the first step.
    pub setup: T,
    /// Per optimizer step.
    pub step: T,
    /// Per step that is skipped because a scaled loss's gradients overflowed.
    pub skipped_step: T,
    /// In addition, per step that begins when the update before it is over: its forward reads
    /// shards from disk which an update under way would have handed over.
    pub reread: T,
    /// Per evaluation, without its batches.
    pub evaluation: T,
    /// Per batch of an evaluation.
    pub evaluation_batch: T,
    /// Per checkpoint between two steps.
    pub checkpoint: T,
}

impl<T> Parts<T> {
    /// Returns what `figure` makes of each part.
    pub(crate) fn map<U>(&self, figure: impl Fn(&T) -> U) -> Parts<U> {
        Parts {
            setup: figure(&self.setup),
            step: figure(&self.step),
            skipped_step: figure(&self.skipped_step),
            reread: figure(&self.reread),
            evaluation: figure(&self.evaluation),
            evaluation_batch: figure(&self.evaluation_batch),
            checkpoint: figure(&self.checkpoint),
        }
    }

    /// Returns the figure of a whole run.
    pub fn total(&self, done: Done) -> T
    where
        T: Copy + Figure,
    {
        let mut total = self.setup;
        total.add(&self.step, done.steps);
        total.add(&self.skipped_step, done.skipped);
        total.add(&self.reread, done.fresh_starts);
        total.add(&self.evaluation, done.evaluations);
        total.add(&self.evaluation_batch, done.evaluation_batches);
        total.add(&self.checkpoint, done.checkpoints);
        total
    }
}

/// What adds up over a run.
pub trait Figure {
    /// Adds `other`, `times` times.
    fn add(&mut self, other: &Self, times: u64);
}

impl Figure for u64 {
    fn add(&mut self, other: &u64, times: u64) {
        *self += times * other;
    }
}

/// Counts of several kinds.
impl<const N: usize> Figure for [u64; N] {
    fn add(&mut self, other: &[u64; N], times: u64) {
        self.iter_mut().zip(other).for_each(|(count, other)| count.add(other, times));
    }
}
