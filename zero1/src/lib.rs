//! ZeRO stage 1: optimizer states are sharded (Rajbhandari et al., "ZeRO", 2020, section 5.1).
//!
//! Rank r keeps momentum and variance for the r-th slice of every unit alone. It needs the summed gradients of that
//! slice only, so a reduce-scatter takes the place of DDP's all-reduce; after the update an all-gather makes the full
//! parameters consistent again. Together they send as much as DDP's all-reduce.

use collectives::Group;
use device::{Buffer, Write};
use events::Pass;
use events::header::Sharded;
use sharding::{
    AdamWShard, Buckets, FullGradients, FullParameters, Micro, Partition, Rank, Result, TrainingState,
    UnitBuffers, UnitId, Update, global_norm,
};
use std::ops::Range;
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
    optimizer: Vec<AdamWShard>,
    reductions: Buckets,
    gathers: Buckets,
}

impl StageKind for Zero1 {
    const NAME: &'static str = "ZeRO-1";
    const PLAN: planner::Stage = planner::Stage::Zero1;
    const SHARDED: Sharded = Sharded { parameters: false, gradients: false, optimizer: true };
    const HAS_GRAD_SYNC: bool = true;

    fn new(setup: Setup) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        let (mut parameters, mut gradients, mut optimizer) = (Vec::new(), Vec::new(), Vec::new());
        for unit in setup.units() {
            let (full, slice) = (setup.full(unit), setup.slice(unit));
            parameters.push(setup.parameters(unit, full.clone())?);
            gradients.push(setup.gradients(full)?);
            optimizer.push(setup.optimizer(unit, slice)?);
        }
        let sum = match setup.grad_sync {
            GradSync::ReduceScatter => Group::reduce_scatter,
            GradSync::AllReduce => Group::all_reduce,
        };
        Ok(Zero1 {
            parameters: UnitBuffers::new(parameters, "parameters"),
            gradients: UnitBuffers::new(gradients, "gradients"),
            optimizer,
            reductions: setup.reductions(sum),
            gathers: setup.gathers(Group::all_gather),
            rank,
            partition,
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

    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        let grad_norm = update.unscaled(self.norm()?);
        // Clips to the largest norm and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(scale) = update.gradient_scale(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        for unit in 0..self.optimizer.len() {
            let slice = self.slice(unit);
            let mut full = self.parameters.take(unit)?;
            let gradients = self.gradients.get(unit)?.slice(slice.clone());
            self.optimizer[unit].update(&self.rank, full.slice_mut(slice), gradients, update, scale)?;
            let updated = self.gathers.push(&self.rank, unit, full)?;
            self.parameters.put_all(updated);
        }
        let updated = self.gathers.finish(&self.rank)?;
        self.parameters.put_all(updated);
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn training_state(&mut self, unit: UnitId, state: TrainingState) -> Result<Buffer> {
        let slice = self.slice(unit);
        let parameters = self.parameters.get(unit)?.slice(slice.clone());
        self.optimizer[unit].whole(state, &self.rank, &self.partition, slice, parameters)
    }
}

impl Zero1 {
    fn slice(&self, unit: UnitId) -> Range<usize> {
        self.partition.slice(unit, self.rank.shard())
    }

    fn norm(&self) -> Result<f64> {
        let gradients: Result<Vec<_>> = (0..self.optimizer.len())
            .map(|unit| Ok(self.gradients.get(unit)?.slice(self.slice(unit))))
            .collect();
        global_norm(&self.rank, &gradients?)
    }
}
