//! What a rank reads: the samples of a micro-batch and of a validation.

use super::{Counted, Result, Worker};
use crate::passes::Tokens;
use events::What;
use settings::Config;
use settings::data::Part;
use settings::fault::{Kind, Phase};
use sharding::Micro;

impl Worker<'_> {
    /// What this rank learns from in a micro-batch.
    pub(super) fn training_tokens(&self, step: u32, micro: Micro) -> Tokens {
        self.tokens(Part::Training, self.first_sample(step, micro))
    }

    /// The first sample that this rank reads for a micro-batch.
    fn first_sample(&self, step: u32, micro: Micro) -> u64 {
        let Config { steps, world_size, batch_size, .. } = self.plan.config;
        // Another seed's samples: those of a step that this run does not reach.
        let step = if self.suffers(Kind::Data, step) { step + steps } else { step };
        let batch = (step as usize * micro.count + micro.index) * world_size + self.rank.number();
        (batch * batch_size) as u64
    }

    /// The loss on the validation part, after `step`.
    pub(super) fn evaluate(&mut self, step: u32) -> Result<f64> {
        self.trip(step, Phase::Evaluate)?;
        let watch = self.stopwatch();
        let config = &self.plan.config;
        let mut sum = 0.0;
        let count = self.plan.evaluation_batches;
        for batch in 0..count {
            self.passes.begin(Micro { index: batch, count })?;
            let first = (batch * config.world_size + self.rank.number()) * config.batch_size;
            let tokens = self.tokens(Part::Validation, first as u64);
            sum += self.passes.evaluate(&mut self.stage, &tokens)?;
        }
        let tokens = count * config.world_size * config.batch_size * config.sequence_length;
        let (loss, _) = self.agree(sum / tokens as f64)?;
        self.rank.emitter.emit(What::Evaluated { step: step + 1, loss });
        self.evaluations.push((step + 1, loss));
        self.stop(watch, |times| &mut times.evaluate);
        self.counted = Counted::so_far(&self.rank, self.clocks);
        Ok(loss)
    }

    /// The micro-batch whose first sample is `first`.
    fn tokens(&self, part: Part, first: u64) -> Tokens {
        let Config { batch_size, sequence_length, .. } = self.plan.config;
        let mut tokens = Tokens { inputs: Vec::new(), targets: Vec::new() };
        for row in 0..batch_size as u64 {
            let sample = self.plan.data.sample(part, first + row, sequence_length);
            tokens.inputs.extend_from_slice(&sample[..sequence_length]);
            tokens.targets.extend_from_slice(&sample[1..]);
        }
        tokens
    }
}
