//! Which samples a rank reads.

use crate::hooks::Hooks;
use crate::passes::Tokens;
use crate::plan::Plan;
use crate::rank_error::{RankError, Result};
use settings::Config;
use settings::data::Split;
use sharding::{Micro, Rank};
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

    /// Returns the rank's tokens in the micro-batch `number` of `split`, which all ranks read a
    /// piece of.
    fn tokens(&self, split: Split, number: usize) -> Result<Tokens> {
        let Config { world_size, batch_size, sequence_length, .. } = self.plan.config;
        let first = (number * world_size + self.rank.number()) * batch_size;
        let room = || self.rank.device.room(batch_size * sequence_length);
        let mut tokens = Tokens { inputs: room()?, targets: room()? };
        for row in first..first + batch_size {
            let sample = self.plan.data.sample(split, row as u64, sequence_length);
            let sample = sample.map_err(|failure| RankError::Other(failure.to_string()))?;
            tokens.inputs.extend_from_slice(&sample[..sequence_length]);
            tokens.targets.extend_from_slice(&sample[1..]);
        }
        Ok(tokens)
    }
}
