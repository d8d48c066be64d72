//! ZeRO stage 2: gradients are sharded too (Rajbhandari et al., "ZeRO", 2020, section 5.2).
//!
//! Full gradients of a unit exist only from its backward to its reduce-scatter; the sum of this rank's slice is added
//! to a shard that stays until the step, and the full gradients are freed. The price comes with accumulation: every
//! micro-batch is reduced, not only the last.

use collectives::Group;
use device::Buffer;
use events::Pass;
use events::header::Sharded;
use sharding::{
    AdamWShard, Buckets, FullGradients, FullParameters, Micro, Partition, Rank, Result, TrainingState,
    UnitBuffers, UnitId, Update, global_norm,
};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use trainer::{Setup, Stage, StageKind, StepOutcome};

/// One rank of a ZeRO-2 run.
pub struct Zero2 {
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    /// Full, per unit.
    parameters: UnitBuffers,
    /// This rank's slice, per unit.
    gradients: UnitBuffers,
    /// For this rank's slice of each unit.
    optimizer: Vec<AdamWShard>,
    reductions: Buckets,
    gathers: Buckets,
}

impl StageKind for Zero2 {
    const NAME: &'static str = "ZeRO-2";
    const PLAN: planner::Stage = planner::Stage::Zero2;
    const SHARDED: Sharded = Sharded { parameters: false, gradients: true, optimizer: true };

    fn new(setup: Setup) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        let (mut parameters, mut gradients, mut optimizer) = (Vec::new(), Vec::new(), Vec::new());
        for unit in setup.units() {
            let (full, slice) = (setup.full(unit), setup.slice(unit));
            parameters.push(setup.parameters(unit, full)?);
            gradients.push(setup.gradients(slice.clone())?);
            optimizer.push(setup.optimizer(unit, slice)?);
        }
        Ok(Zero2 {
            parameters: UnitBuffers::new(parameters, "parameters"),
            gradients: UnitBuffers::new(gradients, "gradients"),
            optimizer,
            reductions: setup.reductions(Group::reduce_scatter),
            gathers: setup.gathers(Group::all_gather),
            rank,
            partition,
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
        let shard = self.gradients.get_mut(unit)?;
        // It adds up over the step's micro-batches.
        if micro.is_first() {
            self.rank.kernels().fill(shard.view_mut(), 0.0)?;
        }
        FullGradients::fresh(unit, &self.rank, &self.partition, shard.dtype())
    }

    fn reduce(&mut self, gradients: FullGradients, _micro: Micro) -> Result<()> {
        let summed = self.reductions.push(&self.rank, gradients.unit, gradients.buffer)?;
        self.accumulate(summed)
    }

    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.accumulate(summed)?;
        let grad_norm = update.unscaled(self.norm()?);
        // Clips to the largest norm and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(scale) = update.gradient_scale(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        for unit in 0..self.optimizer.len() {
            let slice = self.slice(unit);
            let mut full = self.parameters.take(unit)?;
            let gradients = self.gradients.get(unit)?.view();
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

impl Zero2 {
    /// Adds this rank's slice of summed gradients to its shard and frees the full ones.
    fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in units {
            let sum = full.slice(self.slice(unit));
            self.rank.kernels().add(self.gradients.get_mut(unit)?.view_mut(), sum)?;
        }
        Ok(())
    }

    fn slice(&self, unit: UnitId) -> Range<usize> {
        self.partition.slice(unit, self.rank.shard())
    }

    fn norm(&self) -> Result<f64> {
        let gradients: Result<Vec<_>> =
            (0..self.optimizer.len()).map(|unit| Ok(self.gradients.get(unit)?.view())).collect();
        global_norm(&self.rank, &gradients?)
    }
}
