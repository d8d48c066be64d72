//! ZeRO stage 1: optimizer states are sharded (Rajbhandari et al., "ZeRO", 2020, section 5.1).
//!
//! Rank r keeps momentum and variance for the r-th slice of every unit alone. It needs the summed
//! gradients of that slice only, so a reduce-scatter takes the place of DDP's all-reduce; after the
//! update an all-gather makes the full parameters consistent again. Together they send as much as
//! DDP's all-reduce.

use collectives::Group;
use device::Write;
use events::Pass;
use events::header::Sharded;
use sharding::{
    Buckets, FullGradients, FullParameters, Micro, Optimizer, Partition, Rank, Result, UnitBuffers, UnitId,
    Update, global_norm,
};
use std::rc::Rc;
use std::sync::Arc;
use trainer::{GradSync, Setup, Stage, StageKind, StepOutcome};

/// One rank of a ZeRO-1 run.
pub struct Zero1 {
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    /// Full, per unit.
    parameters: UnitBuffers,
    /// Full, per unit; after the reduce-scatter only this rank's slice means something.
    gradients: UnitBuffers,
    /// For this rank's slice of each unit.
    optimizer: Optimizer,
    reductions: Buckets,
    gathers: Buckets,
}

impl StageKind for Zero1 {
    const PLAN: planner::Stage = planner::Stage::Zero1;
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
        let norm = global_norm(&self.rank, &self.optimizer.own(&self.gradients)?)?;
        let grad_norm = update.unscaled(norm);
        // Clips, and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(update) = update.scaled(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        // Each unit's all-gather starts once this rank has updated its slice.
        let gathers = Some(&mut self.gathers);
        self.optimizer.update(&self.rank, update, &mut self.parameters, &self.gradients, gathers)?;
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn complete(&mut self, unit: Option<UnitId>) -> Result<()> {
        let (held, gathers) = ((&mut self.parameters, &self.gradients), Some(&mut self.gathers));
        self.optimizer.complete(&self.rank, unit, held, gathers, None)
    }

    fn states(&mut self) -> (&mut Optimizer, &UnitBuffers) {
        (&mut self.optimizer, &self.parameters)
    }
}
