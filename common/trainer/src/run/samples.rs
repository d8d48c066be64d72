//! The samples that a rank reads.

use crate::hooks::Hooks;
use crate::passes::Tokens;
use crate::plan::Plan;
use crate::rank_error::{Result, other};
use settings::Config;
use settings::data::Split;
use sharding::{MicroBatch, Rank};
use std::ops::Range;
use std::rc::Rc;

/// The samples of one rank.
pub(super) struct Samples<'a> {
    plan: &'a Plan,
    rank: Rc<Rank>,
    hooks: Rc<Hooks>,
}

impl<'a> Samples<'a> {
    /// Returns the samples of `rank`.
    pub(super) fn new(plan: &'a Plan, rank: Rc<Rank>, hooks: Rc<Hooks>) -> Self {
        Samples { plan, rank, hooks }
    }

    /// Returns the rank's tokens for a micro-batch of the current step.
    ///
    /// # Errors
    /// If main memory has no room for them, or the data cannot be read any more.
    pub(super) fn training(&self, micro: MicroBatch) -> Result<Tokens> {
        let step = self.hooks.step_of_samples();
        let first = self.first_sample(step) + (micro.index * self.samples_per_micro_batch()) as u64;
        self.tokens(Split::Training, first)
    }

    /// Returns the rank's tokens for batch `index` of a validation.
    ///
    /// # Errors
    /// As [`Samples::training`].
    pub(super) fn validation(&self, index: usize) -> Result<Tokens> {
        self.tokens(Split::Validation, (index * self.samples_per_micro_batch()) as u64)
    }

    /// Returns how many tokens of the current step carry a loss, on all ranks together.
    ///
    /// # Errors
    /// If the data cannot be read any more.
    pub(super) fn training_targets(&self) -> Result<u64> {
        let step = self.hooks.step();
        self.targets(Split::Training, self.first_sample(step)..self.first_sample(step + 1))
    }

    /// Returns how many tokens of a validation carry a loss, on all ranks together.
    ///
    /// # Errors
    /// As [`Samples::training_targets`].
    pub(super) fn validation_targets(&self) -> Result<u64> {
        let all = self.plan.evaluation_batches * self.samples_per_micro_batch();
        self.targets(Split::Validation, 0..all as u64)
    }

    /// Returns the number of samples in a micro-batch, over all ranks.
    fn samples_per_micro_batch(&self) -> usize {
        self.plan.config.world_size * self.plan.config.batch_size
    }

    /// Returns the first sample of a step: the one after all that were read before it.
    fn first_sample(&self, step: u32) -> u64 {
        let Config { micro_batches, sequence_length, .. } = self.plan.config;
        let since = u64::from(step.wrapping_sub(self.plan.first_step()));
        let before = self.plan.tokens_before() / sequence_length as u64;
        before + since * (micro_batches * self.samples_per_micro_batch()) as u64
    }

    /// Returns how many tokens carry a loss in these samples of `split`; 1 if none does, so that
    /// the mean loss is then 0.
    fn targets(&self, split: Split, samples: Range<u64>) -> Result<u64> {
        let length = self.plan.config.sequence_length;
        Ok(self.plan.data.target_count(split, samples, length).map_err(other)?.max(1))
    }

    /// Returns the rank's tokens in a micro-batch of `split`, whose samples on all ranks begin with
    /// the one numbered `first`.
    fn tokens(&self, split: Split, first: u64) -> Result<Tokens> {
        let Config { batch_size, sequence_length, .. } = self.plan.config;
        let first = first + (self.rank.number() * batch_size) as u64;
        let room = || self.rank.device.vec_with_capacity(batch_size * sequence_length);
        let mut tokens = Tokens { inputs: room()?, targets: room()? };
        for row in first..first + batch_size as u64 {
            let sample = self.plan.data.sample(split, row, sequence_length).map_err(other)?;
            tokens.inputs.extend(sample.inputs());
            tokens.targets.extend(sample.targets());
        }
        Ok(tokens)
    }
}
