//! ZeRO stage 2: gradients are sharded too (Rajbhandari et al., "ZeRO", 2020, section 5.2).
//!
//! Full gradients of a unit exist only from its backward to its reduce-scatter; the sum of this
//! rank's slice is added to a shard that stays until the step, and the full gradients are freed.
//! The price comes with accumulation: every micro-batch is reduced, not only the last.

use collectives::Group;
use events::Pass;
use events::header::Sharded;
use sharding::{
    Buckets, FullGradients, FullParameters, GradientShards, Micro, Optimizer, Rank, Result, UnitBuffers,
    UnitId, Update,
};
use std::rc::Rc;
use trainer::{Setup, Stage, StageKind, StepOutcome};

/// One rank of a ZeRO-2 run.
pub struct Zero2 {
    rank: Rc<Rank>,
    /// Full, per unit.
    parameters: UnitBuffers,
    /// This rank's slice, per unit.
    gradients: GradientShards,
    /// For this rank's slice of each unit.
    optimizer: Optimizer,
    reductions: Buckets,
    gathers: Buckets,
}

impl StageKind for Zero2 {
    const PLAN: planner::Stage = planner::Stage::Zero2;
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

    fn gradients(&mut self, unit: UnitId, micro: Micro) -> Result<FullGradients> {
        self.gradients.full(&self.rank, unit, micro)
    }

    fn reduce(&mut self, gradients: FullGradients, _micro: Micro) -> Result<()> {
        let summed = self.reductions.push(&self.rank, gradients.unit, gradients.buffer)?;
        // Adds this rank's slice of the sums to its shards, and frees the full gradients.
        self.gradients.accumulate(&self.rank, summed)
    }

    fn stop(&mut self) -> Result<()> {
        self.reductions.stop();
        self.gradients.stop(&self.rank)
    }

    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.finish(&self.rank, summed)?;
        let norm = self.gradients.norm(&self.rank)?;
        let grad_norm = update.unscaled(norm);
        // Clips, and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(update) = update.scaled(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        // Each unit's all-gather starts once this rank has updated its slice.
        let (gradients, gathers) = (self.gradients.shards(), Some(&mut self.gathers));
        self.optimizer.update(&self.rank, update, &mut self.parameters, gradients, gathers)?;
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn complete(&mut self, unit: Option<UnitId>) -> Result<()> {
        let (held, gathers) = ((&mut self.parameters, self.gradients.shards()), Some(&mut self.gathers));
        self.optimizer.complete(&self.rank, unit, held, gathers, None)
    }

    fn states(&mut self) -> (&mut Optimizer, &UnitBuffers) {
        (&mut self.optimizer, &self.parameters)
    }
}
