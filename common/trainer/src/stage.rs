//! The interface between the training loop and a stage.

use device::Place;
use events::Pass;
use events::header::Sharded;
use prediction::Strategy;
use settings::{Communication, GradSync};
use sharding::{
    AfterReduce, BucketOptions, Buckets, FullGradients, FullParameters, GatherWindow, GradientShards,
    HostAccumulator, MicroBatch, OffloadPlacement, Optimizer, Partition, Precision, Rank, ReplicaSum, Result,
    ScaledUpdate, Schedule, UnitBuffers, UnitId, WeightSource, buckets::Issue,
};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// The inputs from which a rank builds its stage.
pub struct Setup {
    /// This rank's device, groups and transfers.
    pub rank: Rc<Rank>,
    /// The model in units, cut for this stage.
    pub partition: Arc<Partition>,
    /// The units that each pass needs, in order.
    pub schedule: Arc<Schedule>,
    /// Initial weights.
    pub source: Arc<dyn WeightSource>,
    /// The sources of momentum and variance; `None` if both start at zero.
    pub moments: Option<[Arc<dyn WeightSource>; 2]>,
    /// Buckets, overlap and prefetch.
    pub communication: Communication,
    /// One of [`StageKind::GRAD_SYNCS`], if there are any.
    pub grad_sync: GradSync,
    /// One of [`StageKind::STRATEGIES`], if there are any.
    pub strategy: Strategy,
    /// Element types.
    pub precision: Precision,
    /// Micro-batches per step.
    pub micro_batches: usize,
    /// Where model states are stored.
    pub placement: OffloadPlacement,
}

impl Setup {
    /// Returns all units.
    pub(crate) fn units(&self) -> Range<UnitId> {
        0..self.partition.units.len()
    }

    /// Wraps `shards` in the accumulation that this run needs: plain addition, a sum over replicas
    /// (hybrid sharding), or addition in main memory, where an offloaded optimizer reads them.
    pub fn gradient_shards(&self, shards: UnitBuffers) -> GradientShards {
        let after_reduce = match self.replica_sum() {
            Some(replicas) => AfterReduce::SumOverReplicas(Box::new(replicas)),
            None if self.gradients_are_offloaded() => AfterReduce::MoveToHost(Box::new(
                HostAccumulator::new(self.partition.units.len(), self.micro_batches),
            )),
            None => AfterReduce::Accumulate,
        };
        GradientShards::new(shards, self.partition.clone(), after_reduce)
    }

    /// True if sharded gradients are stored in main memory, where an offloaded optimizer reads
    /// them. Under hybrid sharding they are summed over replicas on the device, and stay there.
    pub(crate) fn gradients_are_offloaded(&self) -> bool {
        self.placement.optimizer == Place::Host && self.rank.replicas().is_none()
    }

    /// Returns the buckets that reduce gradients with `sum`. In hybrid sharding the results are
    /// partial sums, which `Setup::replica_sum` completes.
    pub fn reductions(&self, sum: Issue) -> Buckets {
        let last = self.schedule.last_reduced();
        let sums = Buckets::new(sum, self.communication.reductions(self.precision, &self.partition, last));
        if self.rank.replicas().is_some() { sums.of_partial_sums() } else { sums }
    }

    /// Returns the sum over the copies of the model states; `None` if there is one copy. Units that
    /// [`Setup::reductions`] reduces in one bucket are summed in one bucket.
    fn replica_sum(&self) -> Option<ReplicaSum> {
        let last = self.schedule.last_reduced();
        let full = self.communication.reductions(self.precision, &self.partition, last);
        let shards = BucketOptions { capacity: full.capacity.div_ceil(self.partition.shards), ..full };
        let units = self.partition.units.len();
        let gradients = self.precision.gradients;
        self.rank.replicas().map(|_| ReplicaSum::new(shards, gradients, units, self.micro_batches))
    }

    /// Returns the buckets that gather updated parameters, unit by unit in forward order. Where
    /// parameters are sharded, only persistent units use them. At most one is in flight if data of
    /// others would wait in main memory.
    pub fn gathers(&self, gather: Issue) -> Buckets {
        let persistent = self.units().rfind(|&unit| self.partition.units[unit].persistent);
        let last = persistent.unwrap_or(self.partition.units.len() - 1);
        let mut options = self.communication.gathers(self.precision, &self.partition, last);
        if self.rank.shard_group().holds_early_data() {
            options.in_flight = options.in_flight.min(1);
        }
        Buckets::new(gather, options)
    }

    /// Returns an empty window for gathered parameters.
    pub fn window(&self) -> GatherWindow {
        GatherWindow::new(self.communication.gather_limits(), self.partition.clone(), self.schedule.clone())
    }
}

/// The states that a stage lends to the loop.
pub struct StageStates<'a> {
    /// The optimizer of this rank.
    pub optimizer: &'a mut Optimizer,
    /// The parameters that this rank holds.
    pub parameters: &'a UnitBuffers,
}

/// One rank's side of a stage: what the rank stores, and when it communicates. Every buffer that a
/// stage hands out comes back by value.
pub trait Stage {
    /// Returns `unit`'s full parameters, ready for `pass` to compute with.
    ///
    /// # Errors
    /// If gathering them fails.
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters>;

    /// Takes back `full` when the pass no longer needs it.
    ///
    /// # Errors
    /// If an all-gather that is issued now fails.
    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()>;

    /// Returns the buffer that backward writes `unit`'s full gradients to. [`Stage::reduce`] takes
    /// it back.
    ///
    /// # Errors
    /// If the rank is out of memory.
    fn acquire_gradients(&mut self, unit: UnitId, micro: MicroBatch) -> Result<FullGradients>;

    /// Takes back a unit's gradients of micro-batch `micro`. A stage reduces them after every
    /// micro-batch, or accumulates them and reduces after the last. The reduction may run while
    /// earlier units still compute.
    ///
    /// # Errors
    /// If a collective fails.
    fn reduce(&mut self, gradients: FullGradients, micro: MicroBatch) -> Result<()>;

    /// Aborts the step without an update because it was interrupted or skipped: waits for gradients
    /// and parameters in flight, discards them, and frees their buffers. If collectives may be in
    /// flight, their groups are [winding down](collectives::Group::wind_down). The loop aborts the
    /// optimizer.
    ///
    /// # Errors
    /// If a transfer fails.
    fn abort_step(&mut self) -> Result<()>;

    /// Waits until the gradients of all ranks are summed. Returns their norm over all parameters,
    /// the same on every rank; it is not finite if gradients overflowed on any rank.
    ///
    /// # Errors
    /// If a collective or a kernel fails.
    fn gradient_norm(&mut self) -> Result<f64>;

    /// Updates the slices that this rank owns, and issues the all-gathers that make full parameters
    /// consistent again. An update of states beyond the device only begins here. Forward continues
    /// both.
    ///
    /// # Errors
    /// If a kernel, a collective or a transfer fails.
    fn update(&mut self, update: ScaledUpdate) -> Result<()>;

    /// Continues the update that [`Stage::update`] began until `unit`'s parameters are up to date
    /// and consistent. The passes call it before forward acquires a unit; a stage that gathers
    /// ahead calls it itself before it gathers one.
    ///
    /// # Errors
    /// As [`Stage::update`].
    fn continue_update(&mut self, unit: UnitId) -> Result<()>;

    /// Completes the update that [`Stage::update`] began, where no forward follows that continues
    /// it.
    ///
    /// # Errors
    /// As [`Stage::update`].
    fn finish_update(&mut self) -> Result<()>;

    /// Returns the optimizer and the parameters that this rank holds. The loop passes them to
    /// checkpoints, lets the optimizer read ahead during a step's last backward, and aborts it.
    fn states(&mut self) -> StageStates<'_>;
}

/// The properties of a stage, the same on every rank, and its constructor.
pub trait StageKind: Stage + Sized + 'static {
    /// Identifies the stage to predictions. Its label appears in tables and error messages.
    const ID: prediction::Stage;
    /// The model states that the stage shards.
    const SHARDED: Sharded;
    /// FSDP's strategies that the stage implements, the default first.
    const STRATEGIES: &'static [Strategy] = &[];
    /// The ways to sum gradients that the stage offers, the default first; empty if there is only
    /// one.
    const GRAD_SYNCS: &'static [GradSync] = &[];

    /// Allocates the states that this rank holds between steps.
    ///
    /// # Errors
    /// If the rank is out of memory or initial weights cannot be read.
    fn new(setup: Setup) -> Result<Self>;
}

/// Properties and constructor of a stage, type-erased: the loop and its helpers are compiled once,
/// not for each [`StageKind`]. The fields are named after its constants.
#[derive(Clone, Copy)]
pub struct StageFactory {
    /// [`StageKind::ID`].
    pub id: prediction::Stage,
    pub(crate) sharded: Sharded,
    pub(crate) strategies: &'static [Strategy],
    pub(crate) grad_syncs: &'static [GradSync],
    pub(crate) new: fn(Setup) -> Result<Box<dyn Stage>>,
}

impl StageFactory {
    /// Returns the factory of the stage `S`.
    pub fn of<S: StageKind>() -> Self {
        StageFactory {
            id: S::ID,
            sharded: S::SHARDED,
            strategies: S::STRATEGIES,
            grad_syncs: S::GRAD_SYNCS,
            new: |setup| Ok(Box::new(S::new(setup)?)),
        }
    }
}
