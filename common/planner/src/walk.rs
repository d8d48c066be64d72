//! The walk: a step and an evaluation, as one rank's ledgers and traffic counters would see them.

mod away;
mod inputs;

use crate::activations::{HeadKept, Sizes};
use crate::gather::GatherWindow;
use crate::job::Job;
use crate::ledger::{Allocation, Memory, SymbolicLedger};
use crate::moment::{Moment, Peak};
use crate::offload::Offload;
use crate::partition::Partition;
use crate::reduce::{Bucket, Reducer, UnitGradients, buckets};
use crate::traffic::{Among, ByteCounter};
use crate::transfers::Transfers;
use events::{Class, Operation, Pass, Place};
use inputs::{Leaving, Saved};
use model::LayerKind;

/// Bytes of a hash of the initial weights, which ranks compare at start.
const HASH: u64 = 32;
/// Bytes of a loss and of the stop flag: an f64 and a 64-bit flag per rank.
const LOSS: u64 = 16;
/// Bytes of the gradient norm's two exchanges: the largest magnitude (f32), then the sum of squares
/// (128-bit fixed point).
const NORM: [u64; 2] = [4, 16];
/// Bytes that tell which group of a split a rank joins.
const COLOUR: u64 = 8;

/// Counts what a rank sends and moves in each part of a run.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) setup: ByteCounter,
    pub(crate) step: ByteCounter,
    pub(crate) skipped_step: ByteCounter,
    pub(crate) evaluation: ByteCounter,
    pub(crate) evaluation_batch: ByteCounter,
    pub(crate) checkpoint: ByteCounter,
    /// What a step reads ahead of its update, skipped or not.
    pub(crate) ahead: Transfers,
    /// Elements that forward gathers and backward finds still gathered.
    pub(crate) kept: u64,
}

/// What a walk has counted.
pub(crate) struct Walked {
    /// Peak bytes, in [`Place::ALL`]'s order.
    pub(crate) memory: [Memory; Place::ALL.len()],
    /// The device's peak.
    pub(crate) peak: Peak,
    pub(crate) counters: Counters,
}

/// Walks through one rank's run. Ranks differ only in what they send, since shards are equal.
pub(crate) struct Walk<'a> {
    job: &'a Job,
    partition: &'a Partition,
    sizes: Sizes,
    offload: Offload,
    device: SymbolicLedger,
    host: SymbolicLedger,
    disk: SymbolicLedger,
    /// What is live from setup to the end.
    resting: Vec<Allocation>,
    /// Reduced gradients on their way to main memory: the buffers on both ends.
    arrival: Option<(Allocation, Allocation)>,
    /// The update's buffers for states that are read ahead.
    ahead: Option<Allocation>,
    /// The block's input that leaves the device.
    leaving: Option<Leaving>,
    /// The buffer of the input that is written to disk.
    writing: Option<Allocation>,
    counter: ByteCounter,
    parameters: GatherWindow<'a>,
    gradients: Reducer,
    /// Hybrid sharding: the reduction over the ranks that own the same shard.
    replicas: Option<Reducer>,
    pass: Pass,
}

impl<'a> Walk<'a> {
    /// Begins before the run's setup.
    pub(crate) fn new(job: &'a Job, partition: &'a Partition) -> Self {
        let offload = Offload::of(job, &partition.units);
        Walk {
            job,
            partition,
            sizes: Sizes::new(job),
            device: SymbolicLedger::default(),
            host: SymbolicLedger::default(),
            disk: SymbolicLedger::default(),
            resting: Vec::new(),
            arrival: None,
            ahead: None,
            leaving: None,
            writing: None,
            counter: ByteCounter::default(),
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

    /// Walks through setup, a step, an evaluation, a checkpoint and the end.
    pub(crate) fn run(mut self) -> Walked {
        self.model_states();
        self.take_room_for_copy();
        let resting = self.live();
        let mut counters = Counters::default();
        for _ in 0..splits(self.job) {
            self.counter.exchange(Among::World, COLOUR);
        }
        self.counter.exchange(Among::World, HASH);
        counters.setup = std::mem::take(&mut self.counter);
        self.step();
        counters.ahead = self.offload.read_ahead();
        counters.skipped_step = self.counter.clone();
        counters.skipped_step.transfers.add(&counters.ahead, 1);
        counters.kept = self.parameters.kept();
        self.update();
        self.gather_updated_parameters();
        counters.step = std::mem::take(&mut self.counter);
        self.evaluation_batch();
        counters.evaluation_batch = std::mem::take(&mut self.counter);
        self.counter.exchange(Among::World, LOSS);
        counters.evaluation = std::mem::take(&mut self.counter);
        self.checkpoint();
        counters.checkpoint = std::mem::take(&mut self.counter);
        if self.offload.placement.gathers_states {
            self.gather_weights();
        }
        debug_assert_eq!(self.live(), resting, "a step and an evaluation free what they allocate");
        let memory = [self.device.memory(), self.host.memory(), self.disk.memory()];
        Walked { memory, peak: self.device.peak(), counters }
    }

    fn live(&self) -> [[u64; Class::ALL.len()]; Place::ALL.len()] {
        [&self.device, &self.host, &self.disk].map(SymbolicLedger::live)
    }

    /// Allocates what the rank holds between steps.
    fn model_states(&mut self) {
        for (class, bytes) in self.partition.model_states_in(self.job, Place::Device).by_class() {
            self.resting.push(self.device.allocate(class, bytes));
        }
        self.rest();
    }

    /// Walks through a step up to the gradient's norm: all but the update, and all of a step whose
    /// gradients overflow.
    fn step(&mut self) {
        for micro in 0..self.job.micro_batches {
            let batch = self.sizes.batch(&mut self.device);
            let kept = self.forward();
            let last = micro + 1 == self.job.micro_batches;
            if last {
                self.read_ahead();
            }
            self.backward(kept, last);
            self.device.free(batch);
        }
        self.device.enter(Moment::Update);
        self.counter.exchange(Among::World, LOSS);
        let reduced = self.gradients.wait(&mut self.device);
        self.reduced(reduced);
        self.settle_arrival();
        let summed = self.replicas.as_mut().map(|replicas| replicas.wait(&mut self.device));
        self.free(summed.into_iter().flatten());
        if self.job.stage.sharded().optimizer {
            for bytes in NORM {
                self.counter.exchange(sharing(self.job), bytes);
            }
        }
    }

    /// Adds reduced gradients to their shards and frees them. In hybrid sharding, after the step's
    /// last backward, queues the shards to be summed over all copies of the model states, or the
    /// partial sums in their place.
    fn reduced(&mut self, units: Bucket) {
        for (part, mut full) in units {
            if self.offload.follows {
                self.send_down(part, full);
                continue;
            }
            if let (Some(replicas), true) = (&mut self.replicas, part.ends_step) {
                let shard = UnitGradients { elements: part.elements / self.job.shards(), ..part };
                let travels = if self.gradients.sums_partly() { full.take() } else { None };
                let summed = replicas.queue(&mut self.device, &mut self.counter, shard, travels);
                self.free(summed);
            }
            self.device.free_all(full);
        }
    }

    fn free(&mut self, units: impl IntoIterator<Item = (UnitGradients, Option<Allocation>)>) {
        self.device.free_all(units.into_iter().filter_map(|(_, held)| held));
    }

    /// Gathers updated parameters in place, so that every rank has every rank's update: in ZeRO-1
    /// and ZeRO-2, and in ZeRO-3 for persistent units.
    fn gather_updated_parameters(&mut self) {
        let sharded = self.job.stage.sharded();
        if !sharded.optimizer {
            return;
        }
        let size = self.job.gather_bucket.unwrap_or(self.partition.largest());
        let updated = self.partition.units.iter().filter(|unit| unit.persistent || !sharded.parameters);
        for bucket in buckets(updated.map(|unit| unit.padded), size) {
            self.counter.collective(
                sharing(self.job),
                Operation::AllGather,
                &bucket,
                self.job.recipe.weights,
            );
        }
    }

    fn forward(&mut self) -> SavedForward {
        let last = self.partition.last_layer();
        self.begin(Pass::Forward, 0..=last, sharing(self.job));
        self.acquire(0);
        let mut x = self.sizes.embed_forward(&mut self.device);
        self.leave_forward(0);
        let mut blocks = Vec::new();
        for layer in 1..last {
            self.acquire(layer);
            let checkpointing = self.job.checkpointing;
            let (kept, out) = self.sizes.block_forward(&mut self.device, x, checkpointing);
            x = out;
            blocks.push(self.save(kept));
            self.leave_forward(layer);
        }
        self.acquire(last);
        let head = self.sizes.head_forward(&mut self.device, x);
        self.settle_inputs();
        self.leave_forward(last);
        SavedForward { blocks, head }
    }

    fn backward(&mut self, SavedForward { mut blocks, head }: SavedForward, last_micro_batch: bool) {
        let last = self.partition.last_layer();
        let neighbours = |size: usize| Among::Neighbours(size as u64);
        let among = self.job.secondary_shards.map_or(sharing(self.job), neighbours);
        self.begin(Pass::Backward, (0..=last).rev(), among);
        self.acquire(last);
        self.start(blocks.last_mut());
        self.acquire_gradients(last);
        let mut dx = self.sizes.head_backward(&mut self.device, head);
        self.finish_backward(last, last_micro_batch);
        while let Some(block) = blocks.pop() {
            let layer = blocks.len() + 1;
            self.acquire(layer);
            let block = self.arrive(block);
            self.start(blocks.last_mut());
            let block = self.sizes.block_recompute(&mut self.device, block);
            self.acquire_gradients(layer);
            dx = self.sizes.block_backward(&mut self.device, block, dx);
            self.finish_backward(layer, last_micro_batch);
        }
        self.acquire(0);
        self.acquire_gradients(0);
        self.sizes.embed_backward(&mut self.device, dx);
        self.finish_backward(0, last_micro_batch);
    }

    fn evaluation_batch(&mut self) {
        let last = self.partition.last_layer();
        let batch = self.sizes.batch(&mut self.device);
        self.begin(Pass::Evaluate, 0..=last, sharing(self.job));
        self.acquire(0);
        let mut x = self.sizes.embed_forward(&mut self.device);
        self.free_after(0);
        for layer in 1..last {
            self.acquire(layer);
            x = self.sizes.block_evaluate(&mut self.device, x);
            self.free_after(layer);
        }
        self.acquire(last);
        self.sizes.head_evaluate(&mut self.device, x);
        self.free_after(last);
        self.device.free(batch);
    }

    /// Begins a pass over `layers` that gathers among `among`. Where parameters are not sharded, it
    /// gathers no unit.
    fn begin(&mut self, pass: Pass, layers: impl Iterator<Item = usize>, among: Among) {
        self.pass = pass;
        let needs = &self.partition.needs;
        let sharded = self.job.stage.sharded().parameters;
        let units = layers.filter(|_| sharded).flat_map(|layer| needs[layer].iter().copied());
        self.parameters.begin(pass, units, among);
    }

    /// Acquires the full parameters of every unit that `layer` needs.
    fn acquire(&mut self, layer: usize) {
        self.device.enter(Moment::Layer(self.pass, self.kind(layer)));
        for &unit in &self.partition.needs[layer] {
            self.parameters.acquire(&mut self.device, &mut self.counter, unit);
        }
    }

    fn kind(&self, layer: usize) -> LayerKind {
        match layer {
            0 => LayerKind::Embedding,
            _ if layer == self.partition.last_layer() => LayerKind::Head,
            _ => LayerKind::Block(layer - 1),
        }
    }

    fn acquire_gradients(&mut self, layer: usize) {
        for &unit in &self.partition.needs[layer] {
            self.gradients.acquire(&mut self.device, self.partition, unit);
        }
    }

    /// Ends forward's use of the units that no layer after `layer` needs; backward follows.
    fn leave_forward(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            self.parameters.leave_forward(&mut self.device, unit);
        }
    }

    /// Frees the units that no layer after `layer` needs, in an evaluation.
    fn free_after(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            self.parameters.free(&mut self.device, &mut self.counter, unit);
        }
    }

    /// Frees the units that no layer before `layer` needs, then reduces their gradients.
    fn finish_backward(&mut self, layer: usize, last_micro_batch: bool) {
        let units = self.partition.first_used_by(layer);
        for &unit in &units {
            self.parameters.free(&mut self.device, &mut self.counter, unit);
        }
        if !self.job.stage.sharded().gradients && !last_micro_batch {
            return;
        }
        for (i, &unit) in units.iter().enumerate() {
            let part = UnitGradients {
                unit,
                elements: self.partition.units[unit].padded,
                ends_pass: layer == 0 && i + 1 == units.len(),
                ends_step: last_micro_batch,
            };
            let reduced = self.gradients.reduce(&mut self.device, &mut self.counter, part);
            self.reduced(reduced);
        }
    }
}

/// What forward keeps for backward.
struct SavedForward {
    blocks: Vec<Saved>,
    head: HeadKept,
}

/// Returns the operation that reduces gradients.
pub(crate) fn reduction(job: &Job) -> Operation {
    match job.stage.all_reduces(job.textbook_all_reduce) {
        true => Operation::AllReduce,
        false => Operation::ReduceScatter,
    }
}

/// Returns the ranks that share one copy of the model states.
fn sharing(job: &Job) -> Among {
    if job.strategy.forms_groups() { Among::Neighbours(job.shards()) } else { Among::World }
}

/// Returns how often the world is split into groups.
fn splits(job: &Job) -> usize {
    if job.strategy.forms_groups() { 2 } else { usize::from(job.secondary_shards.is_some()) }
}
