//! Which samples a rank reads.

use crate::hooks::Hooks;
use crate::passes::Tokens;
use crate::plan::Plan;
use settings::Config;
use settings::data::Split;
use sharding::Micro;
use std::rc::Rc;

/// The samples of one rank.
pub(super) struct Samples<'a> {
    plan: &'a Plan,
    rank: usize,
    hooks: Rc<Hooks>,
}

impl<'a> Samples<'a> {
    /// Those of `rank`.
    pub(super) fn new(plan: &'a Plan, rank: usize, hooks: Rc<Hooks>) -> Self {
        Samples { plan, rank, hooks }
    }

    /// Returns the rank's tokens for a micro-batch of the step under way.
    pub(super) fn training(&self, micro: Micro) -> Tokens {
        let step = self.hooks.faults().spoil_samples(self.hooks.step(), &self.plan.config) as usize;
        self.tokens(Split::Training, step * micro.count + micro.index)
    }

    /// Returns the rank's tokens for batch `index` of a validation.
    pub(super) fn validation(&self, index: usize) -> Tokens {
        self.tokens(Split::Validation, index)
    }

    /// Returns the rank's tokens in the micro-batch `number` of `split`, which all ranks read a
    /// piece of.
    fn tokens(&self, split: Split, number: usize) -> Tokens {
        let Config { world_size, batch_size, sequence_length, .. } = self.plan.config;
        let first = (number * world_size + self.rank) * batch_size;
        let mut tokens = Tokens { inputs: Vec::new(), targets: Vec::new() };
        for row in first..first + batch_size {
            let sample = self.plan.data.sample(split, row as u64, sequence_length);
            tokens.inputs.extend_from_slice(&sample[..sequence_length]);
            tokens.targets.extend_from_slice(&sample[1..]);
        }
        tokens
    }
}
