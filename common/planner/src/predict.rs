//! The walk: a step and an evaluation, as one rank's ledger and traffic counters would see them.

use crate::activations::{BlockKept, HeadKept, Sizes};
use crate::books::{Books, Held, Memory};
use crate::gather::GatherWindow;
use crate::job::{InvalidJob, Job, Stage};
use crate::moment::{Moment, Peak};
use crate::partition::{Partition, Unit};
use crate::reduce::{Reducer, buckets};
use crate::strategy::Strategy;
use crate::traffic::{Among, Tally, Traffic};
use events::header::{PredictedMemory, PredictedTraffic};
use events::{Class, Operation, Pass};
use model::LayerKind;
use serde::Serialize;

/// Bytes of a hash of the initial weights, which ranks compare at start.
const HASH: u64 = 32;
/// Bytes of a loss and of the wish to stop: an f64 and a 64-bit flag per rank.
const LOSS: u64 = 16;
/// Bytes of the gradient norm's two exchanges: the largest magnitude (f32), then the sum of squares (128-bit fixed
/// point).
const NORM: [u64; 2] = [4, 16];
/// Bytes with which a rank says which group of a split it joins.
const COLOUR: u64 = 8;

/// What a job will need.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// The units, in forward order.
    pub units: Vec<Unit>,
    /// What each rank will need.
    pub ranks: Vec<RankPrediction>,
    /// When a rank's memory is at its peak; the same on every rank.
    #[serde(skip)]
    pub peak: Peak,
}

/// What one rank will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RankPrediction {
    /// Peak bytes on its device, over steps and evaluations.
    pub memory: Memory,
    /// What it sends before the first step.
    pub traffic_setup: Traffic,
    /// What it sends per optimizer step.
    pub traffic_per_step: Traffic,
    /// What it sends in a step that is skipped, because a scaled loss's gradients overflowed.
    pub traffic_per_skipped_step: Traffic,
    /// What it sends per evaluation, beside its batches.
    pub traffic_per_evaluation: Traffic,
    /// What it sends per batch of an evaluation.
    pub traffic_per_evaluation_batch: Traffic,
    /// How much of all that stays in its group of neighbours, where there are such groups.
    pub to_neighbours: NeighbourBytes,
}

/// Bytes that one rank sends in its group of neighbours, in the parts of a run that [`RankPrediction`] has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NeighbourBytes {
    /// Per optimizer step.
    pub per_step: u64,
    /// Per skipped step.
    pub per_skipped_step: u64,
    /// Per batch of an evaluation.
    pub per_evaluation_batch: u64,
}

impl NeighbourBytes {
    /// In a whole run.
    pub fn total(&self, steps: u64, skipped: u64, evaluation_batches: u64) -> u64 {
        steps * self.per_step
            + skipped * self.per_skipped_step
            + evaluation_batches * self.per_evaluation_batch
    }
}

impl RankPrediction {
    /// What the rank sends in a whole run of `steps` optimizer steps and `evaluations` of `batches` each.
    pub fn traffic(&self, steps: u64, evaluations: u64, batches: u64) -> Traffic {
        let mut total = self.traffic_setup;
        total.add(&self.traffic_per_step, steps);
        total.add(&self.traffic_per_evaluation, evaluations);
        total.add(&self.traffic_per_evaluation_batch, evaluations * batches);
        total
    }
}

impl Prediction {
    /// Peak bytes per rank and class, as a run's header lists them.
    pub fn memory_header(&self) -> Vec<PredictedMemory> {
        let per_rank = |(rank, predicted): (usize, &RankPrediction)| {
            let memory = predicted.memory;
            Class::ALL.iter().map(move |&class| PredictedMemory {
                rank: rank as u32,
                class,
                bytes: memory.peak(class),
            })
        };
        self.ranks.iter().enumerate().flat_map(per_rank).collect()
    }

    /// Peak bytes per rank over all classes together, as a run's header lists them.
    pub fn total_header(&self) -> Vec<u64> {
        self.ranks.iter().map(|rank| rank.memory.total_peak).collect()
    }

    /// Payload bytes per rank, operation and step, as a run's header lists them.
    pub fn traffic_header(&self) -> Vec<PredictedTraffic> {
        let per_rank = |(rank, predicted): (usize, &RankPrediction)| {
            let traffic = predicted.traffic_per_step;
            Operation::ALL.iter().map(move |&operation| PredictedTraffic {
                rank: rank as u32,
                operation,
                bytes: traffic.bytes(operation),
            })
        };
        self.ranks.iter().enumerate().flat_map(per_rank).collect()
    }
}

/// Predicts `job`'s memory and traffic to the byte.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn predict(job: &Job) -> Result<Prediction, InvalidJob> {
    job.validate()?;
    let partition = Partition::of(job);
    let (memory, peak, tallies) = Walk::new(job, &partition).run();
    let ranks = job.world_size as u64;
    let of_rank = |rank: u64| RankPrediction {
        memory,
        traffic_setup: tallies.setup.of_rank(ranks, rank),
        traffic_per_step: tallies.step.of_rank(ranks, rank),
        traffic_per_skipped_step: tallies.skipped_step.of_rank(ranks, rank),
        traffic_per_evaluation: tallies.evaluation.of_rank(ranks, rank),
        traffic_per_evaluation_batch: tallies.evaluation_batch.of_rank(ranks, rank),
        to_neighbours: NeighbourBytes {
            per_step: tallies.step.to_neighbours(ranks, rank),
            per_skipped_step: tallies.skipped_step.to_neighbours(ranks, rank),
            per_evaluation_batch: tallies.evaluation_batch.to_neighbours(ranks, rank),
        },
    };
    Ok(Prediction { ranks: (0..ranks).map(of_rank).collect(), units: partition.units, peak })
}

/// Peak bytes of one rank's device over all classes together.
pub(crate) fn total_peak(job: &Job) -> Result<u64, InvalidJob> {
    job.validate()?;
    // From the second micro-batch on, each is like the one before: what is in flight at its start is the same.
    let job = Job { micro_batches: job.micro_batches.min(2), ..job.clone() };
    let partition = Partition::of(&job);
    Ok(Walk::new(&job, &partition).run().0.total_peak)
}

#[derive(Default)]
struct Tallies {
    setup: Tally,
    step: Tally,
    skipped_step: Tally,
    evaluation: Tally,
    evaluation_batch: Tally,
}

/// One rank's run. Ranks differ only in what they send, since shards are equal.
struct Walk<'a> {
    job: &'a Job,
    partition: &'a Partition,
    sizes: Sizes,
    books: Books,
    tally: Tally,
    parameters: GatherWindow<'a>,
    gradients: Reducer,
    /// Hybrid sharding: over the ranks that own the same shard.
    replicas: Option<Reducer>,
    pass: Pass,
}

impl<'a> Walk<'a> {
    fn new(job: &'a Job, partition: &'a Partition) -> Self {
        Walk {
            job,
            partition,
            sizes: Sizes::new(job),
            books: Books::default(),
            tally: Tally::default(),
            pass: Pass::Forward,
            parameters: GatherWindow::new(job, partition),
            gradients: Reducer::new(job, partition, (sharing(job), reduction(job))),
            replicas: (job.strategy == Strategy::HybridShard).then(|| {
                let kind = (Among::Across(job.shards()), Operation::AllReduce);
                Reducer::new(job, partition, kind)
            }),
        }
    }

    fn run(mut self) -> (Memory, Peak, Tallies) {
        let states = self.model_states();
        let resting = self.books.live();
        let mut tallies = Tallies::default();
        for _ in 0..splits(self.job) {
            self.tally.exchange(Among::World, COLOUR);
        }
        self.tally.exchange(Among::World, HASH);
        tallies.setup = std::mem::take(&mut self.tally);
        self.step();
        tallies.skipped_step = self.tally.clone();
        self.gather_updated_parameters();
        tallies.step = std::mem::take(&mut self.tally);
        self.evaluation_batch();
        tallies.evaluation_batch = std::mem::take(&mut self.tally);
        self.tally.exchange(Among::World, LOSS);
        tallies.evaluation = std::mem::take(&mut self.tally);
        debug_assert_eq!(self.books.live(), resting, "a step and an evaluation give back what they take");
        self.books.free_all(states);
        (self.books.memory(), self.books.peak(), tallies)
    }

    /// What the rank holds between steps.
    fn model_states(&mut self) -> Vec<Held> {
        let states = self.partition.model_states(self.job);
        states.by_class().map(|(class, bytes)| self.books.allocate(class, bytes)).into()
    }

    /// A step up to the gradient's norm: all of it but the update, if gradients have overflowed.
    fn step(&mut self) {
        for micro in 0..self.job.micro_batches {
            let batch = self.sizes.batch(&mut self.books);
            let kept = self.forward();
            self.backward(kept, micro + 1 == self.job.micro_batches);
            self.books.free(batch);
        }
        self.books.enter(Moment::Update);
        self.tally.exchange(Among::World, LOSS);
        self.gradients.wait(&mut self.books);
        self.sum_over_replicas();
        if self.job.stage.sharded().optimizer {
            for bytes in NORM {
                self.tally.exchange(sharing(self.job), bytes);
            }
        }
    }

    /// Hybrid sharding: the shards' sums over all copies of the model states, once per step.
    fn sum_over_replicas(&mut self) {
        let Some(replicas) = &mut self.replicas else { return };
        let shards = self.job.shards();
        let last = self.partition.units.len() - 1;
        for (unit, elements) in self.partition.units.iter().map(|unit| unit.padded / shards).enumerate() {
            replicas.reduce(&mut self.books, &mut self.tally, (unit, elements), unit == last);
        }
        replicas.wait(&mut self.books);
    }

    /// ZeRO-1 and ZeRO-2, and ZeRO-3 for what stays whole: everybody gets what everybody updated, in place.
    fn gather_updated_parameters(&mut self) {
        let sharded = self.job.stage.sharded();
        if !sharded.optimizer {
            return;
        }
        let size = self.job.gather_bucket.unwrap_or(self.partition.largest());
        let updated = self.partition.units.iter().filter(|unit| unit.whole || !sharded.parameters);
        for bucket in buckets(updated.map(|unit| unit.padded), size) {
            self.tally.collective(sharing(self.job), Operation::AllGather, &bucket, self.job.recipe.weights);
        }
    }

    fn forward(&mut self) -> Kept {
        let last = self.partition.last_layer();
        self.begin(Pass::Forward, 0..=last, sharing(self.job));
        self.acquire(0);
        let mut x = self.sizes.embed_forward(&mut self.books);
        self.leave_forward(0);
        let mut blocks = Vec::new();
        for layer in 1..last {
            self.acquire(layer);
            let checkpointing = self.job.checkpointing;
            let (kept, out) = self.sizes.block_forward(&mut self.books, x, checkpointing);
            blocks.push(kept);
            x = out;
            self.leave_forward(layer);
        }
        self.acquire(last);
        let head = self.sizes.head_forward(&mut self.books, x);
        self.leave_forward(last);
        Kept { blocks, head }
    }

    fn backward(&mut self, kept: Kept, last_micro_batch: bool) {
        let last = self.partition.last_layer();
        let neighbours = |size: usize| Among::Neighbours(size as u64);
        let among = self.job.secondary_shards.map_or(sharing(self.job), neighbours);
        self.begin(Pass::Backward, (0..=last).rev(), among);
        self.acquire_with_gradients(last);
        let mut dx = self.sizes.head_backward(&mut self.books, kept.head);
        self.finish_backward(last, last_micro_batch);
        for (block, layer) in kept.blocks.into_iter().zip(1..last).rev() {
            self.acquire(layer);
            let block = self.sizes.block_recompute(&mut self.books, block);
            self.acquire_gradients(layer);
            dx = self.sizes.block_backward(&mut self.books, block, dx);
            self.finish_backward(layer, last_micro_batch);
        }
        self.acquire_with_gradients(0);
        self.sizes.embed_backward(&mut self.books, dx);
        self.finish_backward(0, last_micro_batch);
    }

    fn evaluation_batch(&mut self) {
        let last = self.partition.last_layer();
        let batch = self.sizes.batch(&mut self.books);
        self.begin(Pass::Evaluate, 0..=last, sharing(self.job));
        self.acquire(0);
        let mut x = self.sizes.embed_forward(&mut self.books);
        self.free_after(0);
        for layer in 1..last {
            self.acquire(layer);
            x = self.sizes.block_evaluate(&mut self.books, x);
            self.free_after(layer);
        }
        self.acquire(last);
        self.sizes.head_evaluate(&mut self.books, x);
        self.free_after(last);
        self.books.free(batch);
    }

    /// Begins a pass over `layers` that gathers among `among`. Where parameters are not sharded, no unit is ever gathered.
    fn begin(&mut self, pass: Pass, layers: impl Iterator<Item = usize>, among: Among) {
        self.pass = pass;
        let needs = &self.partition.needs;
        let sharded = self.job.stage.sharded().parameters;
        let units = layers.filter(|_| sharded).flat_map(|layer| needs[layer].iter().copied());
        self.parameters.begin(pass, units, among);
    }

    /// Full parameters of every unit that `layer` needs.
    fn acquire(&mut self, layer: usize) {
        self.books.enter(Moment::Layer(self.pass, self.kind(layer)));
        for &unit in &self.partition.needs[layer] {
            self.parameters.acquire(&mut self.books, &mut self.tally, unit);
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
            self.gradients.acquire(&mut self.books, self.partition, unit);
        }
    }

    /// Forward is done with `layer`, and so with units that no later layer needs; backward is to come.
    fn leave_forward(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            self.parameters.leave_forward(&mut self.books, unit);
        }
    }

    /// An evaluation is done with `layer`, and so with units that no later layer needs.
    fn free_after(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            self.parameters.free(&mut self.books, &mut self.tally, unit);
        }
    }

    /// Backward is done with `layer`: units that no earlier layer needs are freed, then reduced.
    fn finish_backward(&mut self, layer: usize, last_micro_batch: bool) {
        let units = self.partition.first_used_by(layer);
        for &unit in &units {
            self.parameters.free(&mut self.books, &mut self.tally, unit);
        }
        if !self.job.stage.sharded().gradients && !last_micro_batch {
            return;
        }
        for (i, &unit) in units.iter().enumerate() {
            let ends_pass = layer == 0 && i + 1 == units.len();
            let reduced = (unit, self.partition.units[unit].padded);
            self.gradients.reduce(&mut self.books, &mut self.tally, reduced, ends_pass);
        }
    }
}

/// What forward leaves for backward.
struct Kept {
    blocks: Vec<BlockKept>,
    head: HeadKept,
}

/// The operation that reduces gradients.
fn reduction(job: &Job) -> Operation {
    let textbook = job.stage == Stage::Zero1 && job.textbook_all_reduce;
    if job.stage == Stage::Ddp || textbook { Operation::AllReduce } else { Operation::ReduceScatter }
}

/// The ranks that share one copy of the model states.
fn sharing(job: &Job) -> Among {
    match job.strategy {
        Strategy::HybridShard => Among::Neighbours(job.shards()),
        _ => Among::World,
    }
}

/// How often the world is split into groups.
fn splits(job: &Job) -> usize {
    match (job.strategy, job.secondary_shards) {
        (Strategy::HybridShard, _) => 2,
        (_, Some(_)) => 1,
        (_, None) => 0,
    }
}
