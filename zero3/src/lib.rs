//! ZeRO stage 3, also known as FSDP's full shard: parameters are sharded too (Rajbhandari et al.,
//! "ZeRO", 2020, section 5.3; Zhao et al., "PyTorch FSDP", 2023).
//!
//! Between steps a rank holds its slice of everything and nothing else. A unit's full parameters
//! are gathered just before forward needs them, freed after, and gathered again for backward; while
//! one unit computes, the next one is on its way. After the update nothing needs to be gathered:
//! the next forward does that.
//!
//! What can differ from this is in [`variants`], a file each.

pub mod variants;

use collectives::Group;
use device::Class;
use events::Pass;
use events::header::Sharded;
use planner::{BackwardPrefetch, Strategy};
use sharding::{
    Buckets, FullGradients, FullParameters, GatherWindow, GradientShards, Micro, Optimizer, Rank, Result,
    TakeUpdated, UnitBuffers, UnitId, Update, buckets::bucket,
};
use std::rc::Rc;
use trainer::{Setup, Stage, StageKind, StepOutcome};
use variants::{Prefetch, Residency, ShardContext, ShardSource, Stay};

/// One rank of a ZeRO-3 run.
pub struct Zero3 {
    rank: Rc<Rank>,
    /// This rank's slice, per unit; persistent units in full.
    parameters: UnitBuffers,
    /// This rank's slice, per unit.
    gradients: GradientShards,
    /// For this rank's slice of each unit.
    optimizer: Optimizer,
    reductions: Buckets,
    /// Of persistent units, once they are updated.
    gathers: Buckets,
    /// Full parameters that are gathered or on their way.
    window: GatherWindow,
    source: ShardSource,
    residency: Residency,
    prefetch: Prefetch,
}

impl StageKind for Zero3 {
    const PLAN: planner::Stage = planner::Stage::Zero3;
    const STRATEGIES: &'static [Strategy] = variants::STRATEGIES;
    const SHARDED: Sharded = Sharded { parameters: true, gradients: true, optimizer: true };

    fn new(setup: Setup) -> Result<Self> {
        let states = setup.model_states(Self::SHARDED)?;
        Ok(Zero3 {
            parameters: states.parameters,
            gradients: setup.gradient_shards(states.gradients),
            optimizer: states.optimizer,
            reductions: setup.reductions(Group::reduce_scatter),
            gathers: setup.gathers(Group::all_gather),
            window: setup.window(),
            source: ShardSource::new(&setup)?,
            residency: Residency::new(&setup),
            prefetch: Prefetch::new(&setup),
            rank: setup.rank,
        })
    }
}

impl Stage for Zero3 {
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters> {
        if self.residency.of(unit) == Stay::Always {
            return Ok(FullParameters { unit, buffer: self.parameters.take(unit)? });
        }
        self.gather(unit, pass)?;
        let full = self.window.take(unit)?;
        self.gather_ahead(pass, BackwardPrefetch::Pre)?;
        Ok(full)
    }

    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()> {
        match self.residency.after(full.unit, pass, &self.window) {
            Stay::Always => self.parameters.put(full.unit, full.buffer),
            Stay::UntilBackward => self.window.keep(full),
            Stay::No => {
                let (source, context) = self.shards();
                source.before_free(&full, pass, context)?;
                self.window.free(full);
                self.gather_ahead(pass, BackwardPrefetch::Post)?;
            }
        }
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
        self.window.stop();
        self.source.stop(&self.rank)?;
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
        // Only persistent units are gathered here.
        let (gradients, gathers) = (self.gradients.shards(), Some(&mut self.gathers));
        self.optimizer.update(&self.rank, update, &mut self.parameters, gradients, gathers)?;
        let (source, context) = self.shards();
        source.after_update(context)?;
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn complete(&mut self, unit: Option<UnitId>) -> Result<()> {
        let (held, gathers) = ((&mut self.parameters, self.gradients.shards()), Some(&mut self.gathers));
        let source = unit.map(|_| &mut self.source as &mut dyn TakeUpdated);
        self.optimizer.complete(&self.rank, unit, held, gathers, source)
    }

    fn states(&mut self) -> (&mut Optimizer, &UnitBuffers) {
        (&mut self.optimizer, &self.parameters)
    }
}

impl Zero3 {
    /// Issues `unit`'s all-gather, unless it is here or on its way.
    fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
        if self.window.contains(unit) {
            return Ok(());
        }
        if pass == Pass::Forward {
            self.complete(Some(unit))?;
        }
        let worker = self.rank.clone();
        let (source, context) = self.shards();
        let (group, shard) = source.of(unit, pass, context)?;
        let (rank, ranks) = (group.rank() as usize, group.size() as usize);
        let elements = shard.len();
        let mut full = worker.device.allocate(Class::GatheredParameters, shard.dtype(), elements * ranks)?;
        let own = full.slice_mut(rank * elements..(rank + 1) * elements);
        worker.kernels().copy(own, shard)?;
        let gathering = group.all_gather(bucket(vec![full], &[unit]))?;
        self.window.issued(unit, gathering);
        Ok(())
    }

    /// Where shards come from, and what it looks at.
    fn shards(&mut self) -> (&mut ShardSource, ShardContext<'_>) {
        let Zero3 { rank, parameters, optimizer, window, source, .. } = self;
        (source, ShardContext { rank, parameters, optimizer, window })
    }

    /// Issues the all-gathers of what `pass` needs next, as far ahead as the window allows, if this
    /// is the `moment` for it.
    fn gather_ahead(&mut self, pass: Pass, moment: BackwardPrefetch) -> Result<()> {
        if !self.prefetch.is_due(pass, moment) {
            return Ok(());
        }
        while let Some(next) = self.window.next_ahead(pass) {
            self.gather(next, pass)?;
        }
        Ok(())
    }
}
