//! Distributed data parallel: every rank holds all model states.
//!
//! Each rank computes gradients on its own micro-batches. The gradients are summed over ranks
//! bucket by bucket while backward continues (Li et al., "PyTorch Distributed", 2020); then every
//! rank computes the same update. A rank divides its loss by the number of tokens in the global
//! batch, so that the sum over ranks is DDP's average.

use collectives::Group;
use device::Write;
use events::Pass;
use events::header::Sharded;
use prediction::Strategy;
use sharding::{
    Buckets, FullGradients, FullParameters, MicroBatch, Optimizer, Partition, Rank, Result, ScaledUpdate,
    UnitBuffers, UnitId, UpdateBuffers, local_norm,
};
use std::rc::Rc;
use std::sync::Arc;
use trainer::{Setup, Stage, StageKind, StageStates};

/// One rank of a DDP run.
pub struct Ddp {
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    /// Full parameters, per unit.
    parameters: UnitBuffers,
    /// Full gradients, per unit.
    gradients: UnitBuffers,
    /// Updates every unit in full.
    optimizer: Optimizer,
    /// All-reduces gradients.
    reductions: Buckets,
}

impl StageKind for Ddp {
    const ID: prediction::Stage = prediction::Stage::Ddp;
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

    fn acquire_gradients(&mut self, unit: UnitId, micro: MicroBatch) -> Result<FullGradients> {
        let write = if micro.is_first() { Write::Replace } else { Write::Accumulate };
        Ok(FullGradients::new(unit, self.gradients.take(unit)?, write, &self.partition))
    }

    fn reduce(&mut self, gradients: FullGradients, micro: MicroBatch) -> Result<()> {
        if !micro.is_last() {
            self.gradients.put(gradients.unit, gradients.buffer);
            return Ok(());
        }
        let summed = self.reductions.push(&self.rank, gradients.unit, gradients.buffer)?;
        self.gradients.put_all(summed);
        Ok(())
    }

    fn abort_step(&mut self) -> Result<()> {
        self.reductions.abort();
        Ok(())
    }

    fn gradient_norm(&mut self) -> Result<f64> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        local_norm(&self.rank, &self.optimizer.own(&self.gradients)?)
    }

    fn update(&mut self, update: ScaledUpdate) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, &self.gradients);
        self.optimizer.update(&self.rank, update, buffers)
    }

    fn continue_update(&mut self, unit: UnitId) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, &self.gradients);
        self.optimizer.continue_until(&self.rank, unit, buffers)
    }

    fn finish_update(&mut self) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, &self.gradients);
        self.optimizer.finish(&self.rank, buffers)
    }

    fn states(&mut self) -> StageStates<'_> {
        StageStates { optimizer: &mut self.optimizer, parameters: &self.parameters }
    }
}
