//! ZeRO stage 3, also known as FSDP's full shard: parameters are sharded too (Rajbhandari et al., "ZeRO", 2020,
//! section 5.3; Zhao et al., "PyTorch FSDP", 2023).
//!
//! Between steps a rank holds its slice of everything and nothing else. A unit's full parameters are gathered just
//! before forward needs them, freed after, and gathered again for backward; while one unit computes, the next one is
//! on its way. What backward starts with stays gathered from forward, unless that is not wanted. After the update
//! nothing needs to be gathered: the next forward does that.
//!
//! FSDP's shard-grad-op is the same but for one choice: full parameters stay from forward until backward is done with
//! them. It holds as little between steps, as much as ZeRO-2 in between, and gathers once less. FSDP's hybrid sharding
//! shards over groups of neighbours: gathers and reduce-scatters stay inside a group, and in the last micro-batch's
//! backward an all-reduce across groups sums the shards. ZeRO++'s hpZ shards over all ranks and lets backward gather from
//! a second copy that neighbours share (Wang et al., "ZeRO++", 2023, section 3.2). DeepSpeed's persistent parameters, small
//! tensors, are not cut.

use collectives::Group;
use device::{Buffer, Class};
use events::Pass;
use events::header::Sharded;
use planner::{BackwardPrefetch, Strategy};
use sharding::{
    AdamWShard, Buckets, FullGradients, FullParameters, GatherWindow, Micro, Partition, Rank, ReplicaSum,
    Result, Schedule, SecondaryShards, TrainingState, UnitBuffers, UnitId, Update, buckets::bucket,
    global_norm,
};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use trainer::{Communication, Setup, Stage, StageKind, StepOutcome};

/// One rank of a ZeRO-3 run.
pub struct Zero3 {
    rank: Rc<Rank>,
    partition: Arc<Partition>,
    schedule: Arc<Schedule>,
    strategy: Strategy,
    /// This rank's slice, per unit; persistent units in full.
    parameters: UnitBuffers,
    /// This rank's slice, per unit.
    gradients: UnitBuffers,
    /// For this rank's slice of each unit.
    optimizer: Vec<AdamWShard>,
    reductions: Buckets,
    /// Hybrid sharding: over the ranks that own the same shard of other copies.
    replicas: Option<ReplicaSum>,
    /// hpZ: what backward gathers from, in place of the shards.
    secondary: Option<SecondaryShards>,
    window: GatherWindow,
    /// Of persistent units, once they are updated.
    gathers: Buckets,
    communication: Communication,
}

impl StageKind for Zero3 {
    const NAME: &'static str = "ZeRO-3";
    const PLAN: planner::Stage = planner::Stage::Zero3;
    const STRATEGIES: &'static [Strategy] =
        &[Strategy::FullShard, Strategy::ShardGradOp, Strategy::HybridShard];
    const SHARDED: Sharded = Sharded { parameters: true, gradients: true, optimizer: true };

    fn new(setup: Setup) -> Result<Self> {
        let (rank, partition) = (setup.rank.clone(), setup.partition.clone());
        let (mut parameters, mut gradients, mut optimizer) = (Vec::new(), Vec::new(), Vec::new());
        for unit in setup.units() {
            let slice = setup.slice(unit);
            parameters.push(setup.parameters(unit, setup.held(unit))?);
            gradients.push(setup.gradients(slice.clone())?);
            optimizer.push(setup.optimizer(unit, slice)?);
        }
        Ok(Zero3 {
            parameters: UnitBuffers::new(parameters, "parameters"),
            gradients: UnitBuffers::new(gradients, "gradients"),
            optimizer,
            reductions: setup.reductions(Group::reduce_scatter),
            replicas: setup.replica_sum(),
            secondary: setup.secondary()?,
            window: setup.window(),
            gathers: setup.gathers(Group::all_gather),
            communication: setup.communication,
            schedule: setup.schedule,
            strategy: setup.strategy,
            rank,
            partition,
        })
    }
}

impl Stage for Zero3 {
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters> {
        if self.is_persistent(unit) {
            return Ok(FullParameters { unit, buffer: self.parameters.take(unit)? });
        }
        self.gather(unit, pass)?;
        let full = self.window.take(unit)?;
        if pass != Pass::Backward || self.communication.backward_prefetch == BackwardPrefetch::Pre {
            self.gather_ahead(pass)?;
        }
        Ok(full)
    }

    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()> {
        if self.is_persistent(full.unit) {
            self.parameters.put(full.unit, full.buffer);
            return Ok(());
        }
        if pass == Pass::Forward && self.stays_for_backward(full.unit) {
            self.window.keep(full);
            return Ok(());
        }
        if let (Pass::Forward, Some(secondary)) = (pass, &mut self.secondary) {
            secondary.keep(&self.rank, &full)?;
        }
        self.window.free(full);
        if pass == Pass::Backward && self.communication.backward_prefetch == BackwardPrefetch::Post {
            self.gather_ahead(pass)?;
        }
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
        if let Some(replicas) = &mut self.replicas {
            self.gradients.put_all(replicas.finish(&self.rank)?);
        }
        let grad_norm = update.unscaled(self.norm()?);
        // Clips to the largest norm and undoes the loss scale; after an overflow there is nothing to apply.
        let Some(scale) = update.gradient_scale(grad_norm)? else {
            return Ok(StepOutcome { grad_norm, skipped: true });
        };
        for unit in 0..self.optimizer.len() {
            let (own, mut held) = (self.own(unit), self.parameters.take(unit)?);
            let gradients = self.gradients.get(unit)?.view();
            self.optimizer[unit].update(&self.rank, held.slice_mut(own), gradients, update, scale)?;
            if self.is_persistent(unit) {
                let updated = self.gathers.push(&self.rank, unit, held)?;
                self.parameters.put_all(updated);
            } else {
                self.parameters.put(unit, held);
            }
        }
        let updated = self.gathers.finish(&self.rank)?;
        self.parameters.put_all(updated);
        Ok(StepOutcome { grad_norm, skipped: false })
    }

    fn training_state(&mut self, unit: UnitId, state: TrainingState) -> Result<Buffer> {
        let slice = self.slice(unit);
        let parameters = self.parameters.get(unit)?.slice(self.own(unit));
        self.optimizer[unit].whole(state, &self.rank, &self.partition, slice, parameters)
    }
}

impl Zero3 {
    /// Whether full parameters of `unit` stay gathered from forward to backward: with FSDP's shard-grad-op all do, else
    /// those that backward needs again soon enough; what backward starts with, unless told otherwise.
    fn stays_for_backward(&self, unit: UnitId) -> bool {
        let distance = self.schedule.reuse_distance(unit, &self.partition);
        let soon = !self.strategy.reshards_after_forward() || self.communication.keeps(distance);
        soon && self.window.may_keep()
    }

    /// Issues `unit`'s all-gather, unless it is here or on its way: among those who share the shards or, for backward with
    /// secondary shards, among the neighbours who share those.
    fn gather(&mut self, unit: UnitId, pass: Pass) -> Result<()> {
        if self.window.contains(unit) {
            return Ok(());
        }
        let (group, shard) = match (&self.secondary, self.rank.secondary_group()) {
            (Some(secondary), Some(neighbours)) if pass == Pass::Backward => {
                (neighbours, secondary.shard(unit)?)
            }
            _ => (self.rank.shard_group(), self.parameters.get(unit)?),
        };
        let padded = self.partition.units[unit].padded;
        let mut full = self.rank.device.allocate(Class::GatheredParameters, shard.dtype(), padded)?;
        let start = group.rank() as usize * shard.len();
        self.rank.kernels().copy(full.slice_mut(start..start + shard.len()), shard.view())?;
        self.window.issued(unit, group.all_gather(bucket(vec![full], &[unit]))?);
        Ok(())
    }

    /// Issues the all-gathers of what `pass` needs next, as far ahead as the window allows.
    fn gather_ahead(&mut self, pass: Pass) -> Result<()> {
        let schedule = self.schedule.clone();
        while let Some(next) = self.window.next_ahead(&schedule.pass(pass).order) {
            self.gather(next, pass)?;
        }
        Ok(())
    }

    /// Adds this rank's slice of summed gradients to its shard and frees the full ones. In hybrid sharding that sum is
    /// over one group, and with the last micro-batch's the shard goes on to be summed over groups.
    fn accumulate(&mut self, units: Vec<(UnitId, Buffer)>) -> Result<()> {
        for (unit, full) in units {
            let own = self.slice(unit);
            let Some(replicas) = &mut self.replicas else {
                self.rank.kernels().add(self.gradients.get_mut(unit)?.view_mut(), full.slice(own))?;
                continue;
            };
            let shard = self.gradients.take(unit)?;
            let summed = replicas.add(&self.rank, unit, shard, (full, own))?;
            self.gradients.put_all(summed);
        }
        Ok(())
    }

    /// Whether `unit` is of small tensors whose parameters are never cut, and so never gathered for a pass.
    fn is_persistent(&self, unit: UnitId) -> bool {
        self.partition.units[unit].persistent
    }

    /// This rank's slice within what it holds of `unit`'s parameters.
    fn own(&self, unit: UnitId) -> Range<usize> {
        let slice = self.slice(unit);
        if self.is_persistent(unit) { slice } else { 0..slice.len() }
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
