//! What the training loop asks of a stage.

use device::Place;
use events::Pass;
use events::header::Sharded;
use planner::Strategy;
use settings::{Communication, GradSync};
use sharding::{
    Arrivals, BucketOptions, Buckets, FullGradients, FullParameters, GatherWindow, GradientShards, Micro,
    Optimizer, Partition, Places, Precision, Rank, ReplicaSum, Result, Schedule, UnitBuffers, UnitId, Update,
    WeightSource, WithShards, buckets::Issue,
};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// What a stage is built from, on one rank.
pub struct Setup {
    /// The worker.
    pub rank: Rc<Rank>,
    /// The model in units, cut for this stage.
    pub partition: Arc<Partition>,
    /// Which units a pass needs, and when.
    pub schedule: Arc<Schedule>,
    /// Initial weights.
    pub source: Arc<dyn WeightSource>,
    /// Where the momentum and the variance come from, if they do not start at zero.
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
    /// Where model states rest.
    pub places: Places,
}

impl Setup {
    /// The elements of `unit` that this rank owns.
    pub(crate) fn slice(&self, unit: UnitId) -> Range<usize> {
        self.partition.slice(unit, self.rank.shard())
    }

    /// All units.
    pub(crate) fn units(&self) -> Range<UnitId> {
        0..self.partition.units.len()
    }

    /// `shards` as gradients that add up over a step; over the copies of the model states, if there
    /// are several; or in main memory, if they rest there.
    pub fn gradient_shards(&self, shards: UnitBuffers) -> GradientShards {
        let follows = match self.replica_sum() {
            Some(replicas) => WithShards::Replicas(Box::new(replicas)),
            None if self.gradients_follow() => {
                WithShards::ToHost(Box::new(Arrivals::new(self.partition.units.len(), self.micro_batches)))
            }
            None => WithShards::Add,
        };
        GradientShards::new(shards, self.partition.clone(), follows)
    }

    /// True if sharded gradients go where an offloaded optimizer reads them. Where there are
    /// several copies of the model states they are summed on the device, and stay there.
    pub(crate) fn gradients_follow(&self) -> bool {
        self.places.optimizer == Place::Host && self.rank.replicas().is_none()
    }

    /// The queue of gradients on their way through `sum`. Where the model states have several
    /// copies, these sums are parts of `Setup::replica_sum`'s.
    pub fn reductions(&self, sum: Issue) -> Buckets {
        let last = self.schedule.last_reduced();
        let sums = Buckets::new(sum, self.communication.reductions(self.precision, &self.partition, last));
        if self.rank.replicas().is_some() { sums.of_partial_sums() } else { sums }
    }

    /// Sums over the copies of the model states, if there are several. Shards of units that
    /// [`Setup::reductions`] has reduced as one travel as one.
    fn replica_sum(&self) -> Option<ReplicaSum> {
        let last = self.schedule.last_reduced();
        let full = self.communication.reductions(self.precision, &self.partition, last);
        let shards = BucketOptions { capacity: full.capacity.div_ceil(self.partition.shards), ..full };
        let units = self.partition.units.len();
        let gradients = self.precision.gradients;
        self.rank.replicas().map(|_| ReplicaSum::new(shards, gradients, units, self.micro_batches))
    }

    /// The queue of updated parameters on their way through `gather`, unit by unit in forward
    /// order. Where parameters are sharded these are persistent units.
    pub fn gathers(&self, gather: Issue) -> Buckets {
        let persistent = self.units().rfind(|&unit| self.partition.units[unit].persistent);
        let last = persistent.unwrap_or(self.partition.units.len() - 1);
        Buckets::new(gather, self.communication.gathers(self.precision, &self.partition, last))
    }

    /// The window of parameters that are gathered for a while.
    pub fn window(&self) -> GatherWindow {
        GatherWindow::new(self.communication.gather_limits(), self.partition.clone(), self.schedule.clone())
    }
}

/// What a step reports, the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Norm of the averaged gradient over all parameters, before clipping; not finite if it
    /// overflowed.
    pub grad_norm: f64,
    /// Whether gradients overflowed, so that nothing was updated.
    pub skipped: bool,
}

/// A rank's part in a stage: what it holds, and when it communicates. Whatever it hands out comes
/// back by value.
pub trait Stage {
    /// Full parameters of `unit` for one pass, ready to compute with.
    ///
    /// # Errors
    /// If gathering them fails.
    fn acquire(&mut self, unit: UnitId, pass: Pass) -> Result<FullParameters>;

    /// The loop is done with `full` for this pass.
    ///
    /// # Errors
    /// If a gather that begins now fails.
    fn release(&mut self, full: FullParameters, pass: Pass) -> Result<()>;

    /// A place for the full gradients of `unit`, for backward to write to.
    ///
    /// # Errors
    /// If the rank is out of memory.
    fn gradients(&mut self, unit: UnitId, micro: Micro) -> Result<FullGradients>;

    /// Backward of the unit is done; its reduction may start while earlier units still compute.
    ///
    /// # Errors
    /// If a collective fails.
    fn reduce(&mut self, gradients: FullGradients, micro: Micro) -> Result<()>;

    /// The step ends without an update, since it was cut short or skipped: waits for gradients and
    /// parameters in flight, drops them and frees their buffers. Where anything may be in flight
    /// between ranks, their groups are [winding down](collectives::Group::wind_down). The optimizer
    /// is stopped by the loop.
    ///
    /// # Errors
    /// If a transfer fails.
    fn stop(&mut self) -> Result<()> {
        Ok(())
    }

    /// Clips, updates what this rank owns, and makes full parameters consistent again; or, if the
    /// loss is scaled and its gradients overflowed on any rank, does nothing on all of them. An
    /// update of states beyond the device only begins here.
    ///
    /// # Errors
    /// If a collective fails, or the gradient has no finite norm although the loss is not scaled.
    fn step(&mut self, update: &Update) -> Result<StepOutcome>;

    /// Goes on with an update that [`Stage::step`] has begun, until `unit`'s parameters are updated
    /// and consistent; without a unit, until all of it is over. The loop calls it before forward
    /// acquires a unit, and where no forward follows.
    ///
    /// # Errors
    /// As [`Stage::step`].
    fn complete(&mut self, unit: Option<UnitId>) -> Result<()>;

    /// The optimizer and the parameters that this rank holds. The loop lends them to checkpoints,
    /// has the optimizer read ahead during a step's last backward, and stops it.
    fn states(&mut self) -> (&mut Optimizer, &UnitBuffers);
}

/// What a stage is on every rank, and how a rank builds one.
pub trait StageKind: Stage + Sized + 'static {
    /// How the planner calls it; its label is what tables and errors show.
    const PLAN: planner::Stage;
    /// Which model states it shards.
    const SHARDED: Sharded;
    /// Which of FSDP's strategies it is, the default first.
    const STRATEGIES: &'static [Strategy] = &[];
    /// The ways to sum gradients that it offers, the default first, if there are several.
    const GRAD_SYNCS: &'static [GradSync] = &[];

    /// Allocates what this rank holds between steps.
    ///
    /// # Errors
    /// If the rank is out of memory or initial weights cannot be read.
    fn new(setup: Setup) -> Result<Self>;
}

/// A [`StageKind`] as a value, with its constants under their names, so that the loop and all around
/// it are compiled once, not for each stage.
#[derive(Clone, Copy)]
pub struct AnyStage {
    /// [`StageKind::PLAN`].
    pub plan: planner::Stage,
    pub(crate) sharded: Sharded,
    pub(crate) strategies: &'static [Strategy],
    pub(crate) grad_syncs: &'static [GradSync],
    pub(crate) new: fn(Setup) -> Result<Box<dyn Stage>>,
}

impl AnyStage {
    /// Returns `S` as a value.
    pub fn of<S: StageKind>() -> Self {
        AnyStage {
            plan: S::PLAN,
            sharded: S::SHARDED,
            strategies: S::STRATEGIES,
            grad_syncs: S::GRAD_SYNCS,
            new: |setup| Ok(Box::new(S::new(setup)?)),
        }
    }
}
