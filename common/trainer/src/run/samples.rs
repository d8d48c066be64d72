//! Which samples a rank reads.

use crate::hooks::Hooks;
use crate::passes::Tokens;
use crate::plan::Plan;
use crate::rank_error::{Result, other};
use settings::Config;
use settings::data::Split;
use sharding::{Micro, Rank};
use std::ops::Range;
use std::rc::Rc;

/// The samples of one rank.
pub(super) struct Samples<'a> {
    plan: &'a Plan,
    rank: Rc<Rank>,
    hooks: Rc<Hooks>,
}

impl<'a> Samples<'a> {
    /// Those of `rank`.
    pub(super) fn new(plan: &'a Plan, rank: Rc<Rank>, hooks: Rc<Hooks>) -> Self {
        Samples { plan, rank, hooks }
    }

    /// Returns the rank's tokens for a micro-batch of the step under way.
    ///
    /// # Errors
    /// If main memory has no room for them, or the data cannot be read any more.
    pub(super) fn training(&self, micro: Micro) -> Result<Tokens> {
        let step = self.hooks.faults().spoil_samples(self.hooks.step(), &self.plan.config) as usize;
        self.tokens(Split::Training, step * micro.count + micro.index)
    }

    /// Returns the rank's tokens for batch `index` of a validation.
    ///
    /// # Errors
    /// As [`Samples::training`].
    pub(super) fn validation(&self, index: usize) -> Result<Tokens> {
        self.tokens(Split::Validation, index)
    }

    /// Returns how many tokens of the step under way carry a loss, on all ranks together.
    ///
    /// # Errors
    /// If the data cannot be read any more.
    pub(super) fn training_targets(&self) -> Result<u64> {
        let (step, count) = (self.hooks.step() as usize, self.plan.config.micro_batches);
        self.targets(Split::Training, step * count..(step + 1) * count)
    }

    /// Returns how many tokens of a validation carry a loss, on all ranks together.
    ///
    /// # Errors
    /// As [`Samples::training_targets`].
    pub(super) fn validation_targets(&self) -> Result<u64> {
        self.targets(Split::Validation, 0..self.plan.evaluation_batches)
    }

    /// Returns how many tokens carry a loss in these micro-batches of `split`, on all ranks; 1 if
    /// none does, so that the mean loss is then 0.
    fn targets(&self, split: Split, micro_batches: Range<usize>) -> Result<u64> {
        let Config { world_size, batch_size, sequence_length, .. } = self.plan.config;
        let first = |number: usize| (number * world_size * batch_size) as u64;
        let samples = first(micro_batches.start)..first(micro_batches.end);
        Ok(self.plan.data.target_count(split, samples, sequence_length).map_err(other)?.max(1))
    }

    /// Returns the rank's tokens in the micro-batch `number` of `split`, which all ranks read a
    /// piece of.
    fn tokens(&self, split: Split, number: usize) -> Result<Tokens> {
        let Config { world_size, batch_size, sequence_length, .. } = self.plan.config;
        let first = (number * world_size + self.rank.number()) * batch_size;
        let room = || self.rank.device.room(batch_size * sequence_length);
        let mut tokens = Tokens { inputs: room()?, targets: room()? };
        for row in first..first + batch_size {
            let sample = self.plan.data.sample(split, row as u64, sequence_length).map_err(other)?;
            tokens.inputs.extend(sample.inputs());
            tokens.targets.extend(sample.targets());
        }
        Ok(tokens)
    }
}
