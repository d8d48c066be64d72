//! ZeRO stage 2: gradients are sharded too (Rajbhandari et al., "ZeRO", 2020, section 5.2).
//!
//! Full gradients of a unit exist only from its backward to its reduce-scatter. Then this rank's
//! slice of the sum is added to its gradient shard, which stays until the step, and the full
//! gradients are freed. The cost: with accumulation every micro-batch is reduced, not only the
//! last.

use collectives::Group;
use events::Pass;
use events::header::Sharded;
use sharding::{
    Buckets, FullGradients, FullParameters, GradientShards, MicroBatch, Optimizer, Rank, Result,
    ScaledUpdate, UnitBuffers, UnitId, UpdateBuffers,
};
use std::rc::Rc;
use trainer::{Setup, Stage, StageKind, StageStates};

/// One rank of a ZeRO-2 run.
pub struct Zero2 {
    rank: Rc<Rank>,
    /// Full parameters, per unit.
    parameters: UnitBuffers,
    /// This rank's slice of each unit's gradients.
    gradients: GradientShards,
    /// Updates this rank's slice of each unit.
    optimizer: Optimizer,
    /// Reduce-scatters gradients.
    reductions: Buckets,
    /// All-gathers updated parameters.
    gathers: Buckets,
}

impl StageKind for Zero2 {
    const ID: prediction::Stage = prediction::Stage::Zero2;
    const SHARDED: Sharded = Sharded { parameters: false, gradients: true, optimizer: true };

    fn new(setup: Setup) -> Result<Self> {
        let states = setup.model_states(Self::SHARDED)?;
        Ok(Zero2 {
            parameters: states.parameters,
            gradients: setup.gradient_shards(states.gradients),
            optimizer: states.optimizer,
            reductions: setup.reductions(Group::reduce_scatter),
            gathers: setup.gathers(Group::all_gather),
            rank: setup.rank,
        })
    }
}

impl Stage for Zero2 {
    fn acquire(&mut self, unit: UnitId, _pass: Pass) -> Result<FullParameters> {
        Ok(FullParameters { unit, buffer: self.parameters.take(unit)? })
    }

    fn release(&mut self, full: FullParameters, _pass: Pass) -> Result<()> {
        self.parameters.put(full.unit, full.buffer);
        Ok(())
    }

    fn acquire_gradients(&mut self, unit: UnitId, micro: MicroBatch) -> Result<FullGradients> {
        self.gradients.acquire_full(&self.rank, unit, micro)
    }

    fn reduce(&mut self, gradients: FullGradients, _micro: MicroBatch) -> Result<()> {
        let summed = self.reductions.push(&self.rank, gradients.unit, gradients.buffer)?;
        // Adds this rank's slice of the sums to its shards, and frees the full gradients.
        self.gradients.accumulate(&self.rank, summed)
    }

    fn abort_step(&mut self) -> Result<()> {
        self.reductions.abort();
        self.gradients.abort(&self.rank)
    }

    fn gradient_norm(&mut self) -> Result<f64> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.finish(&self.rank, summed)?;
        self.gradients.norm(&self.rank)
    }

    fn update(&mut self, update: ScaledUpdate) -> Result<()> {
        // Each unit's all-gather starts once this rank has updated its slice.
        let buffers = UpdateBuffers::new(&mut self.parameters, self.gradients.shards());
        self.optimizer.update(&self.rank, update, buffers.with_gathers(&mut self.gathers))
    }

    fn continue_update(&mut self, unit: UnitId) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, self.gradients.shards());
        self.optimizer.continue_until(&self.rank, unit, buffers.with_gathers(&mut self.gathers))
    }

    fn finish_update(&mut self) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, self.gradients.shards());
        self.optimizer.finish(&self.rank, buffers.with_gathers(&mut self.gathers))
    }

    fn states(&mut self) -> StageStates<'_> {
        StageStates { optimizer: &mut self.optimizer, parameters: &self.parameters }
    }
}
