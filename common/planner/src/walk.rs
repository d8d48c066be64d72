//! The walk: a step and an evaluation, as one rank's ledger and traffic counters would see them.

use crate::activations::{BlockKept, HeadKept, Sizes};
use crate::gather::GatherWindow;
use crate::job::Job;
use crate::ledger::{Allocation, Memory, SymbolicLedger};
use crate::moment::{Moment, Peak};
use crate::partition::Partition;
use crate::reduce::{Bucket, F32, Reducer, UnitGradients, buckets};
use crate::strategy::Strategy;
use crate::traffic::{Among, ByteCounter};
use events::{Operation, Pass};
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

/// States per parameter in a checkpoint: its weight, AdamW's momentum and its variance.
const TRAINING_STATES: usize = 3;

/// Counts what a rank sends in each part of a run.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) setup: ByteCounter,
    pub(crate) step: ByteCounter,
    pub(crate) skipped_step: ByteCounter,
    pub(crate) evaluation: ByteCounter,
    pub(crate) evaluation_batch: ByteCounter,
    pub(crate) checkpoint: ByteCounter,
    /// Elements that forward gathers and backward finds still gathered.
    pub(crate) kept: u64,
}

/// Walks through one rank's run. Ranks differ only in what they send, since shards are equal.
pub(crate) struct Walk<'a> {
    job: &'a Job,
    partition: &'a Partition,
    sizes: Sizes,
    ledger: SymbolicLedger,
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
        Walk {
            job,
            partition,
            sizes: Sizes::new(job),
            ledger: SymbolicLedger::default(),
            counter: ByteCounter::default(),
            pass: Pass::Forward,
            parameters: GatherWindow::new(job, partition),
            gradients: Reducer::new(job, partition, (sharing(job), reduction(job))),
            replicas: (job.strategy == Strategy::HybridShard).then(|| {
                let kind = (Among::Across(job.shards()), Operation::AllReduce);
                Reducer::new(job, partition, kind).of_shards(job.shards())
            }),
        }
    }

    /// Walks through setup, a step, an evaluation and a checkpoint.
    pub(crate) fn run(mut self) -> (Memory, Peak, Counters) {
        let states = self.model_states();
        let resting = self.ledger.live();
        let mut counters = Counters::default();
        for _ in 0..splits(self.job) {
            self.counter.exchange(Among::World, COLOUR);
        }
        self.counter.exchange(Among::World, HASH);
        counters.setup = std::mem::take(&mut self.counter);
        self.step();
        counters.skipped_step = self.counter.clone();
        counters.kept = self.parameters.kept();
        self.gather_updated_parameters();
        counters.step = std::mem::take(&mut self.counter);
        self.evaluation_batch();
        counters.evaluation_batch = std::mem::take(&mut self.counter);
        self.counter.exchange(Among::World, LOSS);
        counters.evaluation = std::mem::take(&mut self.counter);
        self.checkpoint();
        counters.checkpoint = std::mem::take(&mut self.counter);
        debug_assert_eq!(self.ledger.live(), resting, "a step and an evaluation free what they allocate");
        self.ledger.free_all(states);
        (self.ledger.memory(), self.ledger.peak(), counters)
    }

    /// Allocates what the rank holds between steps.
    fn model_states(&mut self) -> Vec<Allocation> {
        let states = self.partition.model_states(self.job);
        states.by_class().map(|(class, bytes)| self.ledger.allocate(class, bytes)).into()
    }

    /// Gathers a checkpoint's states in main memory, unit by unit, where ranks own slices of them.
    fn checkpoint(&mut self) {
        if self.job.shards() == 1 {
            return;
        }
        let units: Vec<u64> = self.partition.units.iter().map(|unit| unit.padded).collect();
        for padded in units {
            for _ in 0..TRAINING_STATES {
                self.counter.collective(sharing(self.job), Operation::AllGather, &[padded], F32);
            }
        }
    }

    /// Walks through a step up to the gradient's norm: all but the update, and all of a step whose
    /// gradients overflow.
    fn step(&mut self) {
        for micro in 0..self.job.micro_batches {
            let batch = self.sizes.batch(&mut self.ledger);
            let kept = self.forward();
            self.backward(kept, micro + 1 == self.job.micro_batches);
            self.ledger.free(batch);
        }
        self.ledger.enter(Moment::Update);
        self.counter.exchange(Among::World, LOSS);
        let reduced = self.gradients.wait(&mut self.ledger);
        self.reduced(reduced);
        let summed = self.replicas.as_mut().map(|replicas| replicas.wait(&mut self.ledger));
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
            if let (Some(replicas), true) = (&mut self.replicas, part.ends_step) {
                let shard = UnitGradients { elements: part.elements / self.job.shards(), ..part };
                let travels = if self.gradients.sums_partly() { full.take() } else { None };
                let summed = replicas.queue(&mut self.ledger, &mut self.counter, shard, travels);
                self.free(summed);
            }
            self.ledger.free_all(full);
        }
    }

    fn free(&mut self, units: impl IntoIterator<Item = (UnitGradients, Option<Allocation>)>) {
        self.ledger.free_all(units.into_iter().filter_map(|(_, held)| held));
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
        let mut x = self.sizes.embed_forward(&mut self.ledger);
        self.leave_forward(0);
        let mut blocks = Vec::new();
        for layer in 1..last {
            self.acquire(layer);
            let checkpointing = self.job.checkpointing;
            let (kept, out) = self.sizes.block_forward(&mut self.ledger, x, checkpointing);
            blocks.push(kept);
            x = out;
            self.leave_forward(layer);
        }
        self.acquire(last);
        let head = self.sizes.head_forward(&mut self.ledger, x);
        self.leave_forward(last);
        SavedForward { blocks, head }
    }

    fn backward(&mut self, kept: SavedForward, last_micro_batch: bool) {
        let last = self.partition.last_layer();
        let neighbours = |size: usize| Among::Neighbours(size as u64);
        let among = self.job.secondary_shards.map_or(sharing(self.job), neighbours);
        self.begin(Pass::Backward, (0..=last).rev(), among);
        self.acquire_with_gradients(last);
        let mut dx = self.sizes.head_backward(&mut self.ledger, kept.head);
        self.finish_backward(last, last_micro_batch);
        for (block, layer) in kept.blocks.into_iter().zip(1..last).rev() {
            self.acquire(layer);
            let block = self.sizes.block_recompute(&mut self.ledger, block);
            self.acquire_gradients(layer);
            dx = self.sizes.block_backward(&mut self.ledger, block, dx);
            self.finish_backward(layer, last_micro_batch);
        }
        self.acquire_with_gradients(0);
        self.sizes.embed_backward(&mut self.ledger, dx);
        self.finish_backward(0, last_micro_batch);
    }

    fn evaluation_batch(&mut self) {
        let last = self.partition.last_layer();
        let batch = self.sizes.batch(&mut self.ledger);
        self.begin(Pass::Evaluate, 0..=last, sharing(self.job));
        self.acquire(0);
        let mut x = self.sizes.embed_forward(&mut self.ledger);
        self.free_after(0);
        for layer in 1..last {
            self.acquire(layer);
            x = self.sizes.block_evaluate(&mut self.ledger, x);
            self.free_after(layer);
        }
        self.acquire(last);
        self.sizes.head_evaluate(&mut self.ledger, x);
        self.free_after(last);
        self.ledger.free(batch);
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
        self.ledger.enter(Moment::Layer(self.pass, self.kind(layer)));
        for &unit in &self.partition.needs[layer] {
            self.parameters.acquire(&mut self.ledger, &mut self.counter, unit);
        }
    }

    fn kind(&self, layer: usize) -> LayerKind {
        match layer {
            0 => LayerKind::Embedding,
            _ if layer == self.partition.last_layer() => LayerKind::Head,
            _ => LayerKind::Block(layer - 1),
        }
    }

    fn acquire_with_gradients(&mut self, layer: usize) {
        self.acquire(layer);
        self.acquire_gradients(layer);
    }

    fn acquire_gradients(&mut self, layer: usize) {
        for &unit in &self.partition.needs[layer] {
            self.gradients.acquire(&mut self.ledger, self.partition, unit);
        }
    }

    /// Ends forward's use of the units that no layer after `layer` needs; backward follows.
    fn leave_forward(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            self.parameters.leave_forward(&mut self.ledger, unit);
        }
    }

    /// Frees the units that no layer after `layer` needs, in an evaluation.
    fn free_after(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            self.parameters.free(&mut self.ledger, &mut self.counter, unit);
        }
    }

    /// Frees the units that no layer before `layer` needs, then reduces their gradients.
    fn finish_backward(&mut self, layer: usize, last_micro_batch: bool) {
        let units = self.partition.first_used_by(layer);
        for &unit in &units {
            self.parameters.free(&mut self.ledger, &mut self.counter, unit);
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
            let reduced = self.gradients.reduce(&mut self.ledger, &mut self.counter, part);
            self.reduced(reduced);
        }
    }
}

/// What forward keeps for backward.
struct SavedForward {
    blocks: Vec<BlockKept>,
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
    match job.strategy {
        Strategy::HybridShard => Among::Neighbours(job.shards()),
        _ => Among::World,
    }
}

/// Returns how often the world is split into groups.
fn splits(job: &Job) -> usize {
    match (job.strategy, job.secondary_shards) {
        (Strategy::HybridShard, _) => 2,
        (_, Some(_)) => 1,
        (_, None) => 0,
    }
}
