//! The walk: a step and an evaluation, as one rank's ledgers and traffic counters would see them.

mod inputs;
mod offloaded;
mod passes;
mod update;

use crate::activations::Sizes;
use crate::gather::GatherWindow;
use crate::job::Job;
use crate::ledger::{Allocation, Memory};
use crate::moment::{Moment, Peak};
use crate::offload::Offload;
use crate::partition::Partition;
use crate::phases::PerPhase;
use crate::rank::{InFlight, SymbolicRank};
use crate::reduce::{Bucket, Reducer, UnitGradients};
use crate::regather::Regather;
use crate::script::Action;
use crate::traffic::{Among, ByteCounter};
use crate::transfers::Transfers;
use events::{Operation, Pass, Place};
use inputs::{Leaving, Staged};
use update::Pager;

/// Bytes of a hash of the initial weights, which ranks compare at start; zeros if they resume.
const HASH: u64 = 32;
/// Bytes of a loss and of the stop flag: an f64 and a 64-bit flag per rank.
const LOSS: u64 = 16;
/// Bytes of the gradient norm's two exchanges: the largest magnitude (f32), then the sum of squares
/// (128-bit fixed point).
const NORM: [u64; 2] = [4, 16];
/// Bytes of the colour that says which group of a split a rank joins.
const COLOUR: u64 = 8;

/// A unit's reduced gradients in flight to main memory, and the buffers on both ends.
struct GradientsInFlight {
    unit: usize,
    crossing: InFlight,
    sent: Allocation,
    arrived: Allocation,
}

/// Counts the traffic and transfers of a rank in each phase of a run.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) phases: PerPhase<ByteCounter>,
    /// The transfers by which a step reads ahead of its update, whether or not it is skipped.
    pub(crate) ahead: Transfers,
    /// Elements that forward gathers and backward finds still gathered.
    pub(crate) kept: u64,
}

/// How the step of a walk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkedStep {
    /// It updates the parameters.
    Updated,
    /// It is skipped before its update, because gradients overflow.
    Skipped,
}

/// How the step of a script begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkedStart {
    /// A step before it has updated the parameters.
    AfterUpdate,
    /// No step comes before it.
    Fresh,
}

/// The counts of a walk.
pub(crate) struct WalkResult {
    /// Peak bytes, in [`Place::ALL`]'s order.
    pub(crate) memory: [Memory; Place::ALL.len()],
    /// The device's peak.
    pub(crate) peak: Peak,
    pub(crate) counters: Counters,
}

/// Walks through one rank's run. Ranks differ only in their traffic, since shards are equal.
pub(crate) struct Walk<'a> {
    job: &'a Job,
    partition: &'a Partition,
    sizes: Sizes,
    offload: Offload,
    rank: SymbolicRank,
    /// Allocations that are live from setup to the end.
    resting: Vec<Allocation>,
    /// The slots of the CPU's update: live while the rank trains.
    update_slots: Option<Allocation>,
    pager: Pager,
    gradients_in_flight: Option<GradientsInFlight>,
    /// The CPU's latest sum of gradients.
    gradients_added: Option<InFlight>,
    /// The block's input in flight off the device.
    leaving: Option<Leaving>,
    /// The input that is being written to disk.
    writing: Option<Staged>,
    parameters: GatherWindow<'a>,
    gradients: Reducer,
    /// Hybrid sharding: the reduction over the ranks that own the same shard.
    replicas: Option<Reducer>,
    updated: Regather,
    pass: Pass,
}

impl<'a> Walk<'a> {
    /// Returns a walk at the beginning of a run, before its setup.
    pub(crate) fn new(job: &'a Job, partition: &'a Partition) -> Self {
        let offload = Offload::of(job, &partition.units);
        Walk {
            job,
            partition,
            sizes: Sizes::new(job),
            rank: SymbolicRank::default(),
            resting: Vec::new(),
            update_slots: None,
            pager: Pager::default(),
            gradients_in_flight: None,
            gradients_added: None,
            leaving: None,
            writing: None,
            updated: Regather::new(job, partition, sharing(job)),
            pass: Pass::Forward,
            parameters: GatherWindow::new(job, partition, &offload),
            gradients: Reducer::new(job, partition, (sharing(job), reduction(job))),
            replicas: job.strategy.forms_groups().then(|| {
                let kind = (Among::Across(job.shards()), Operation::AllReduce);
                Reducer::new(job, partition, kind).of_shards(job.shards())
            }),
            offload,
        }
    }

    /// Walks through setup, a step that ends as `outcome` says, an evaluation, a checkpoint and the
    /// end.
    pub(crate) fn run(mut self, outcome: WalkedStep) -> WalkResult {
        self.model_states();
        self.take_room_for_saves();
        let resting = self.rank.live();
        let mut counters = Counters::default();
        for _ in 0..splits(self.job) {
            self.rank.exchange(Among::World, COLOUR);
        }
        self.rank.exchange(Among::World, HASH);
        counters.phases.setup = std::mem::take(&mut self.rank.counter);
        self.step();
        counters.phases.reread.transfers = self.offload.rereads();
        counters.ahead = self.offload.read_ahead();
        self.rank.exchange(Among::World, LOSS);
        counters.phases.skipped_step = self.rank.counter.clone();
        counters.kept = self.parameters.kept;
        if outcome == WalkedStep::Updated {
            self.update();
        }
        counters.phases.step = std::mem::take(&mut self.rank.counter);
        self.evaluation_batch();
        counters.phases.evaluation_batch = std::mem::take(&mut self.rank.counter);
        self.rank.exchange(Among::World, LOSS);
        counters.phases.evaluation = std::mem::take(&mut self.rank.counter);
        self.checkpoint();
        counters.phases.checkpoint = std::mem::take(&mut self.rank.counter);
        debug_assert_eq!(self.rank.live(), resting, "a step and an evaluation free what they allocate");
        self.rank.free_all(self.update_slots.take());
        if self.offload.placement.gathers_states {
            self.gather_weights();
        }
        WalkResult { memory: self.rank.memory(), peak: self.rank.peak(), counters }
    }

    /// Walks through setup and a step that begins as `start` says and updates the parameters.
    /// Returns what the rank does in each. An update that continues in the next forward is the
    /// script's last part.
    pub(crate) fn scripts(mut self, start: WalkedStart) -> [Vec<Action>; 2] {
        self.rank = SymbolicRank::scripted();
        if start == WalkedStart::Fresh {
            self.parameters.start_fresh();
        }
        self.model_states();
        self.take_room_for_saves();
        let setup = self.rank.take_script();
        self.step();
        self.rank.exchange(Among::World, LOSS);
        self.update();
        [setup, self.rank.take_script()]
    }

    /// Allocates the buffers that the rank holds between steps.
    fn model_states(&mut self) {
        for (class, bytes) in self.partition.model_states_in(self.job, Place::Device).by_class() {
            self.resting.push(self.rank.allocate(class, bytes));
        }
        self.allocate_offloaded();
    }

    /// Walks through a step up to the gradient's norm: everything before the update, and so all of
    /// a step whose gradients overflow.
    fn step(&mut self) {
        for micro in 0..self.job.micro_batches {
            self.rank.micro_batch(micro);
            let batch = self.sizes.batch(&mut self.rank);
            let kept = self.forward();
            let is_last = micro + 1 == self.job.micro_batches;
            if is_last {
                self.read_ahead();
            }
            self.backward(kept, is_last);
            self.rank.free_all(batch);
        }
        self.rank.enter(Moment::Update);
        let reduced = self.gradients.wait(&mut self.rank);
        self.reduced(reduced);
        self.wait_for_gradients();
        self.wait_for_sums();
        let summed = self.replicas.as_mut().map(|replicas| replicas.wait(&mut self.rank));
        self.free(summed.into_iter().flatten());
        if self.job.stage.sharded().optimizer {
            for bytes in NORM {
                self.rank.exchange(sharing(self.job), bytes);
            }
        }
    }

    /// Adds reduced gradients to their shards and frees them. In hybrid sharding, after the step's
    /// last backward, queues the shards, or the partial sums in their place, to be summed over all
    /// copies of the model states.
    fn reduced(&mut self, units: Bucket) {
        for (part, mut full) in units {
            if self.offload.gradients_offloaded {
                self.send_gradients(part, full);
                continue;
            }
            if let (Some(replicas), true) = (&mut self.replicas, part.ends_step) {
                let shard = UnitGradients { elements: part.elements / self.job.shards(), ..part };
                let travels = if self.gradients.sums_partly() { full.take() } else { None };
                let summed = replicas.queue(&mut self.rank, shard, travels);
                self.free(summed);
            }
            self.rank.free_all(full);
        }
    }

    fn free(&mut self, units: impl IntoIterator<Item = (UnitGradients, Option<Allocation>)>) {
        self.rank.free_all(units.into_iter().filter_map(|(_, held)| held));
    }
}

/// Returns the operation that reduces gradients.
pub(crate) fn reduction(job: &Job) -> Operation {
    if job.stage.all_reduces(job.textbook_all_reduce) {
        Operation::AllReduce
    } else {
        Operation::ReduceScatter
    }
}

/// Returns the ranks that share one copy of the model states.
fn sharing(job: &Job) -> Among {
    if job.strategy.forms_groups() { Among::Neighbours(job.shards()) } else { Among::World }
}

/// Returns the number of times that the world is split into groups.
fn splits(job: &Job) -> usize {
    if job.strategy.forms_groups() { 2 } else { usize::from(job.secondary_shards.is_some()) }
}
