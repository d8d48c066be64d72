//! ZeRO stage 1: optimizer states are sharded (Rajbhandari et al., "ZeRO", 2020, section 5.1).
//!
//! Rank r keeps momentum and variance only for the r-th slice of every unit. It needs the summed
//! gradients of that slice only, so a reduce-scatter replaces DDP's all-reduce. After the update an
//! all-gather makes the full parameters consistent again, while the next forward begins. The two
//! collectives together send as many bytes as DDP's all-reduce.

use collectives::Group;
use device::Write;
use events::Pass;
use events::header::Sharded;
use sharding::{
    Buckets, FullGradients, FullParameters, MicroBatch, Optimizer, Partition, Rank, Result, ScaledUpdate,
    UnitBuffers, UnitId, UpdateBuffers, global_norm,
};
use std::rc::Rc;
use std::sync::Arc;
use trainer::{GradSync, Setup, Stage, StageKind, StageStates};

/// One rank of a ZeRO-1 run.
pub struct Zero1 {
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    /// Full parameters, per unit.
    parameters: UnitBuffers,
    /// Full gradients, per unit. After the reduce-scatter only this rank's slice is valid.
    gradients: UnitBuffers,
    /// Updates this rank's slice of each unit.
    optimizer: Optimizer,
    /// Sums gradients over ranks.
    reductions: Buckets,
    /// All-gathers updated parameters.
    gathers: Buckets,
}

impl StageKind for Zero1 {
    const ID: prediction::Stage = prediction::Stage::Zero1;
    const SHARDED: Sharded = Sharded { parameters: false, gradients: false, optimizer: true };
    const GRAD_SYNCS: &'static [GradSync] = &[GradSync::ReduceScatter, GradSync::AllReduce];

    fn new(setup: Setup) -> Result<Self> {
        let states = setup.model_states(Self::SHARDED)?;
        let sum = match setup.grad_sync {
            GradSync::ReduceScatter => Group::reduce_scatter,
            GradSync::AllReduce => Group::all_reduce,
        };
        Ok(Zero1 {
            parameters: states.parameters,
            gradients: states.gradients,
            optimizer: states.optimizer,
            reductions: setup.reductions(sum),
            gathers: setup.gathers(Group::all_gather),
            rank: setup.rank,
            partition: setup.partition,
        })
    }
}

impl Stage for Zero1 {
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
        global_norm(&self.rank, &self.optimizer.own(&self.gradients)?)
    }

    fn update(&mut self, update: ScaledUpdate) -> Result<()> {
        // Each unit's all-gather starts once this rank has updated its slice.
        let buffers = UpdateBuffers::new(&mut self.parameters, &self.gradients);
        self.optimizer.update(&self.rank, update, buffers.with_gathers(&mut self.gathers))
    }

    fn continue_update(&mut self, unit: UnitId) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, &self.gradients);
        self.optimizer.continue_until(&self.rank, unit, buffers.with_gathers(&mut self.gathers))
    }

    fn finish_update(&mut self) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, &self.gradients);
        self.optimizer.finish(&self.rank, buffers.with_gathers(&mut self.gathers))
    }

    fn states(&mut self) -> StageStates<'_> {
        StageStates { optimizer: &mut self.optimizer, parameters: &self.parameters }
    }
}
