//! Distributed data parallel: every rank holds everything.
//!
//! Each rank computes gradients on its own micro-batches; the ranks' gradients are summed bucket by bucket while
//! backward goes on (Li et al., "PyTorch Distributed", 2020), and every rank then makes the same update. A rank divides
//! its loss by the tokens of the whole global batch, so that the sum over ranks is DDP's average.

use collectives::Group;
use device::{Buffer, Write};
use events::Pass;
use events::header::Sharded;
use planner::Strategy;
use sharding::{
    AdamWShard, Buckets, FullGradients, FullParameters, Micro, Partition, Rank, Result, TrainingState,
    UnitBuffers, UnitId, Update, local_norm,
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
    optimizer: Vec<AdamWShard>,
    reductions: Buckets,
}

impl StageKind for Ddp {
    const NAME: &'static str = "DDP";
    const PLAN: planner::Stage = planner::Stage::Ddp;
    const STRATEGIES: &'static [Strategy] = &[Strategy::NoShard];
    const SHARDED: Sharded = Sharded { parameters: false, gradients: false, optimizer: false };

    fn new(setup: Setup) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        let (mut parameters, mut gradients, mut optimizer) = (Vec::new(), Vec::new(), Vec::new());
        for unit in setup.units() {
            let full = setup.full(unit);
            parameters.push(setup.parameters(unit, full.clone())?);
            gradients.push(setup.gradients(full.clone())?);
            optimizer.push(setup.optimizer(unit, full)?);
        }
        Ok(Ddp {
            parameters: UnitBuffers::new(parameters, "parameters"),
            gradients: UnitBuffers::new(gradients, "gradients"),
            optimizer,
            reductions: setup.reductions(Group::all_reduce),
            rank,
            partition,
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

    fn step(&mut self, update: &Update) -> Result<StepOutcome> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.put_all(summed);
        let grad_norm = update.unscaled(self.norm()?);
        // Clips to the largest norm and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(scale) = update.gradient_scale(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        for (unit, optimizer) in self.optimizer.iter_mut().enumerate() {
            let parameters = self.parameters.get_mut(unit)?.view_mut();
            let gradients = self.gradients.get(unit)?.view();
            optimizer.update(&self.rank, parameters, gradients, update, scale)?;
        }
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn training_state(&mut self, unit: UnitId, state: TrainingState) -> Result<Buffer> {
        let whole = 0..self.partition.units[unit].padded;
        let parameters = self.parameters.get(unit)?.view();
        self.optimizer[unit].whole(state, &self.rank, &self.partition, whole, parameters)
    }
}

impl Ddp {
    fn norm(&self) -> Result<f64> {
        let gradients: Result<Vec<_>> =
            (0..self.optimizer.len()).map(|unit| Ok(self.gradients.get(unit)?.view())).collect();
        local_norm(&self.rank, &gradients?)
    }
}
