//! Distributed data parallel: every rank holds everything.
//!
//! Each rank computes gradients on its own micro-batches; the ranks' gradients are summed bucket by
//! bucket while backward goes on (Li et al., "PyTorch Distributed", 2020), and every rank then
//! makes the same update. A rank divides its loss by the tokens of the whole global batch, so that
//! the sum over ranks is DDP's average.

use collectives::Group;
use device::Write;
use events::Pass;
use events::header::Sharded;
use planner::Strategy;
use sharding::{
    Buckets, FullGradients, FullParameters, Micro, Optimizer, Partition, Rank, Result, UnitBuffers, UnitId,
    Update, local_norm,
};
use std::rc::Rc;
use std::sync::Arc;
use trainer::{Setup, Stage, StageKind, StepOutcome};

/// One rank of a DDP run.
pub struct Ddp {
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    /// Full, per unit.
    parameters: UnitBuffers,
    /// Full, per unit.
    gradients: UnitBuffers,
    /// For the whole of each unit.
    optimizer: Optimizer,
    reductions: Buckets,
}

impl StageKind for Ddp {
    const PLAN: planner::Stage = planner::Stage::Ddp;
    const STRATEGIES: &'static [Strategy] = &[Strategy::NoShard];
    const SHARDED: Sharded = Sharded { parameters: false, gradients: false, optimizer: false };

    fn new(setup: Setup) -> Result<Self> {
        let states = setup.model_states(Self::SHARDED)?;
        Ok(Ddp {
            parameters: states.parameters,
            gradients: states.gradients,
            optimizer: states.optimizer,
            reductions: setup.reductions(Group::all_reduce),
            rank: setup.rank,
            partition: setup.partition,
        })
    }
}

impl Stage for Ddp {
    fn acquire(&mut self, unit: UnitId, _pass: Pass) -> Result<FullParameters> {
        Ok(FullParameters { unit, buffer: self.parameters.take(unit)? })
    }

    fn release(&mut self, full: FullParameters, _pass: Pass) -> Result<()> {
        self.parameters.put(full.unit, full.buffer);
        Ok(())
    }

    fn gradients(&mut self, unit: UnitId, micro: Micro) -> Result<FullGradients> {
        let write = if micro.is_first() { Write::Replace } else { Write::Accumulate };
        Ok(FullGradients::new(unit, self.gradients.take(unit)?, write, &self.partition))
    }

    fn reduce(&mut self, gradients: FullGradients, micro: Micro) -> Result<()> {
        if !micro.is_last() {
            self.gradients.put(gradients.unit, gradients.buffer);
            return Ok(());
        }
        let summed = self.reductions.push(&self.rank, gradients.unit, gradients.buffer)?;
        self.gradients.put_all(summed);
        Ok(())
    }

    fn stop(&mut self) -> Result<()> {
        self.reductions.stop();
        Ok(())
    }

    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        let norm = local_norm(&self.rank, &self.optimizer.own(&self.gradients)?)?;
        let grad_norm = update.unscaled(norm);
        // Clips, and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(update) = update.scaled(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        self.optimizer.update(&self.rank, update, &mut self.parameters, &self.gradients, None)?;
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn complete(&mut self, unit: Option<UnitId>) -> Result<()> {
        self.optimizer.complete(&self.rank, unit, (&mut self.parameters, &self.gradients), None, None)
    }

    fn states(&mut self) -> (&mut Optimizer, &UnitBuffers) {
        (&mut self.optimizer, &self.parameters)
    }
}
