//! ZeRO stage 3, also known as FSDP's full shard: parameters are sharded too (Rajbhandari et al.,
//! "ZeRO", 2020, section 5.3; Zhao et al., "PyTorch FSDP", 2023).
//!
//! Between steps a rank holds only its slice of all model states. A unit's full parameters are
//! gathered just before forward needs them, freed after use, and gathered again for backward; while
//! one unit computes, the next one is in flight. Nothing is gathered after the update: the next
//! forward does that.
//!
//! Variants of this algorithm are in [`variants`], one file each.

pub mod variants;

use collectives::Group;
use device::Class;
use events::Pass;
use events::header::Sharded;
use prediction::{BackwardPrefetch, Strategy};
use sharding::{
    Buckets, FullGradients, FullParameters, GatherWindow, GradientShards, MicroBatch, Optimizer, Rank,
    Result, ScaledUpdate, UnitBuffers, UnitId, UpdateBuffers, buckets::bucket,
};
use std::rc::Rc;
use trainer::{Setup, Stage, StageKind, StageStates};
use variants::{Prefetch, Residency, ResidencyPolicy, ShardContext, ShardSource};

/// One rank of a ZeRO-3 run.
pub struct Zero3 {
    rank: Rc<Rank>,
    /// This rank's slice of each unit's parameters; persistent units in full.
    parameters: UnitBuffers,
    /// This rank's slice of each unit's gradients.
    gradients: GradientShards,
    /// Updates this rank's slice of each unit.
    optimizer: Optimizer,
    /// Reduce-scatters gradients.
    reductions: Buckets,
    /// All-gathers persistent units once they are updated.
    gathers: Buckets,
    /// Full parameters that are gathered or in flight.
    window: GatherWindow,
    source: ShardSource,
    residency: ResidencyPolicy,
    prefetch: Prefetch,
}

impl StageKind for Zero3 {
    const ID: prediction::Stage = prediction::Stage::Zero3;
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
            residency: ResidencyPolicy::new(&setup),
            prefetch: Prefetch::new(&setup),
            rank: setup.rank,
        })
    }
}

impl Stage for Zero3 {
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters> {
        if self.residency.for_unit(unit) == Residency::Persistent {
            return Ok(FullParameters { unit, buffer: self.parameters.take(unit)? });
        }
        self.gather(unit, pass)?;
        let full = self.window.take(unit)?;
        self.gather_ahead(pass, BackwardPrefetch::Pre)?;
        Ok(full)
    }

    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()> {
        match self.residency.after_pass(full.unit, pass, &self.window) {
            Residency::Persistent => self.parameters.put(full.unit, full.buffer),
            Residency::KeepForBackward => self.window.keep(full),
            Residency::FreeAfterPass => {
                let (source, context) = self.source_and_context();
                source.before_free(&full, pass, context)?;
                self.window.free(full);
                self.gather_ahead(pass, BackwardPrefetch::Post)?;
            }
        }
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
        self.window.abort();
        self.source.abort(&self.rank)?;
        self.gradients.abort(&self.rank)
    }

    fn gradient_norm(&mut self) -> Result<f64> {
        let summed = self.reductions.finish(&self.rank)?;
        self.gradients.finish(&self.rank, summed)?;
        self.gradients.norm(&self.rank)
    }

    fn update(&mut self, update: ScaledUpdate) -> Result<()> {
        // Only persistent units are gathered here.
        let buffers = UpdateBuffers::new(&mut self.parameters, self.gradients.shards());
        self.optimizer.update(&self.rank, update, buffers.with_gathers(&mut self.gathers))?;
        let (source, context) = self.source_and_context();
        source.after_update(context)
    }

    fn continue_update(&mut self, unit: UnitId) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, self.gradients.shards());
        // Forward gathers from updated shards.
        let buffers = UpdateBuffers { sink: self.source.sink(), ..buffers.with_gathers(&mut self.gathers) };
        self.optimizer.continue_until(&self.rank, unit, buffers)
    }

    fn finish_update(&mut self) -> Result<()> {
        let buffers = UpdateBuffers::new(&mut self.parameters, self.gradients.shards());
        self.optimizer.finish(&self.rank, buffers.with_gathers(&mut self.gathers))
    }

    fn states(&mut self) -> StageStates<'_> {
        StageStates { optimizer: &mut self.optimizer, parameters: &self.parameters }
    }
}

impl Zero3 {
    /// Issues `unit`'s all-gather, unless it is gathered or in flight.
    fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
        if self.window.contains(unit) {
            return Ok(());
        }
        if pass == Pass::Forward {
            self.continue_update(unit)?;
        }
        let rank = self.rank.clone();
        let (source, context) = self.source_and_context();
        let (group, shard) = source.shard(unit, pass, context)?;
        let elements = shard.len() * group.size() as usize;
        let mut full = rank.device.allocate(Class::GatheredParameters, shard.dtype(), elements)?;
        rank.kernels().copy(full.slice_mut(group.own_slice(shard.len())), shard)?;
        let gathering = group.all_gather(bucket(vec![full], &[unit]))?;
        self.window.add_in_flight(unit, gathering);
        Ok(())
    }

    /// Borrows the shard source and the state that it reads.
    fn source_and_context(&mut self) -> (&mut ShardSource, ShardContext<'_>) {
        let Zero3 { rank, parameters, optimizer, window, source, .. } = self;
        (source, ShardContext { rank, parameters, optimizer, window })
    }

    /// Issues the all-gathers of the units that `pass` needs next, as far ahead as the window
    /// allows. Does nothing if `pass` gathers ahead at another `moment`.
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
