//! The walk against closed forms over models of all shapes.

#![allow(clippy::unwrap_used)]

use events::{Class, Operation};
use model::{Checkpointing, ModelConfig, Wrap};
use planner::Strategy as Sharding;
use planner::{BackwardPrefetch, Gathering, Job, Partition, RankPrediction, Stage, explain_fit, predict};
use proptest::prelude::*;

const F32: u64 = 4;

/// A model of any shape, a batch and a world size.
fn jobs() -> impl Strategy<Value = Job> {
    let shape = (1usize..60, 1usize..40, 1usize..6, 1usize..4, 1usize..4, any::<bool>());
    let checkpointing = proptest::sample::select(Checkpointing::ALL.to_vec());
    let run = (1usize..4, 1usize..20, 1usize..4, 1usize..9, checkpointing);
    (shape, 1usize..9, 1usize..50, run).prop_map(|(shape, head_dim, feed_forward, run)| {
        let (vocabulary, width, layers, kv_heads, groups, tied) = shape;
        let (batch_size, tokens, micro_batches, world_size, checkpointing) = run;
        let config = ModelConfig {
            vocabulary,
            width,
            layers,
            heads: kv_heads * groups,
            kv_heads,
            head_dim,
            feed_forward,
            tied,
            ..ModelConfig::tiny()
        };
        Job { batch_size, tokens, micro_batches, checkpointing, ..Job::new(config, Stage::Ddp, world_size) }
    })
}

fn ranks(job: &Job) -> Vec<RankPrediction> {
    predict(job).unwrap().ranks
}

fn peak(job: &Job, class: Class) -> u64 {
    ranks(job)[0].memory.peak(class)
}

/// Bytes of a micro-batch's buffers, per row and in the letters of the model's contract.
struct Letters {
    rows: u64,
    /// width, heads·head_dim, (heads + 2·kv_heads)·head_dim, heads, feed_forward, vocabulary
    d: u64,
    h: u64,
    qkv: u64,
    log_sum: u64,
    f: u64,
    v: u64,
    layers: u64,
    checkpointing: Checkpointing,
}

impl Letters {
    fn of(job: &Job) -> Self {
        let c = &job.config;
        let of = |width: usize| width as u64 * F32;
        Letters {
            rows: (job.batch_size * job.tokens) as u64,
            d: of(c.width),
            h: of(c.heads * c.head_dim),
            qkv: of((c.heads + 2 * c.kv_heads) * c.head_dim),
            log_sum: of(c.heads),
            f: of(c.feed_forward),
            v: of(c.vocabulary),
            layers: c.layers as u64,
            checkpointing: job.checkpointing,
        }
    }

    /// What one block's backward reads, its input included.
    fn block(&self) -> u64 {
        4 * self.d + 2 * F32 + self.qkv + self.h + self.log_sum + 3 * self.f
    }

    /// What one block keeps between forward and backward, its input included.
    fn kept(&self) -> u64 {
        match self.checkpointing {
            Checkpointing::None => self.block(),
            Checkpointing::Selective => self.block() - 2 * (self.d + F32) - self.f,
            Checkpointing::Block => self.d,
        }
    }

    /// Most bytes in one block's forward, input and output included: just before something is freed.
    fn block_forward(&self) -> u64 {
        let Letters { d, h, qkv, log_sum, f, .. } = *self;
        let norm = d + F32;
        let attended = d + qkv + h + log_sum;
        let moments = match self.checkpointing {
            Checkpointing::None => vec![self.block() + d],
            Checkpointing::Selective => {
                vec![d + norm + qkv, attended + d + norm + 2 * f, attended + d + 3 * f + d]
            }
            Checkpointing::Block => {
                vec![d + norm + qkv, attended, 2 * d + h, 2 * d + norm + 2 * f, 2 * d + 3 * f, 3 * d + f]
            }
        };
        moments.into_iter().max().unwrap()
    }

    /// Most bytes that are kept at once: when forward is complete (the batch, all blocks, and the head), or in the last
    /// block, on the way forward or once it is complete again.
    fn activations(&self) -> u64 {
        let head = self.kept() + 2 * self.d + F32 + self.v;
        let most = head.max(self.block_forward()).max(self.block());
        self.rows * (2 * F32 + (self.layers - 1) * self.kept() + most)
    }

    /// Backward's own buffers: in the head, in either half of a block.
    fn workspace(&self) -> u64 {
        let Letters { d, h, qkv, f, .. } = *self;
        let block = [3 * f, 2 * f + d, h + qkv, qkv + d].into_iter().max().unwrap();
        self.rows * [F32, 2 * d, d + block].into_iter().max().unwrap()
    }

    /// Most bytes at once in a block's backward, beside what the blocks before it keep: what is left of the block itself,
    /// and workspace.
    fn block_backward(&self) -> u64 {
        let [d, h, qkv, log_sum, f, row] =
            [self.d, self.h, self.qkv, self.log_sum, self.f, F32].map(|bytes| bytes as i64);
        let feed_forward = [d + f, d + 2 * f, 2 * d - f];
        let freed = 3 * f + 2 * d + row;
        let attention = [d + h, d + h + qkv, 2 * d - h - log_sum].map(|bytes| bytes - freed);
        let most = feed_forward.into_iter().chain(attention).max().unwrap();
        self.block() + most as u64
    }

    /// Most bytes at once in the head, forward or backward.
    fn head(&self) -> u64 {
        let Letters { d, v, .. } = *self;
        (2 * d + F32 + v + d.max(F32)).max(3 * d + F32)
    }

    /// Most activations and workspace at once. All blocks are live until the last one's backward, so it is the peak of
    /// the head or of the last block.
    fn together(&self) -> u64 {
        let most = (self.kept() + self.head()).max(self.block_forward()).max(self.block_backward());
        self.rows * (2 * F32 + (self.layers - 1) * self.kept() + most)
    }

    /// Most bytes at once in one step of ZeRO-3 with a bucket per unit, one unit gathered ahead and untied weights,
    /// beside model states: the largest of all layers' forward and backward.
    fn zero3(&self, padded: &[u64]) -> u64 {
        let last = padded.len() - 1;
        let unit = |layer: usize| padded.get(layer).copied().unwrap_or(0) * F32;
        let before = |layer: usize| 2 * F32 + (layer as u64 - 1) * self.kept();
        let mut most = self.rows * (2 * F32 + self.d) + 2 * unit(0) + unit(1);
        for layer in 1..last {
            let forward = self.rows * (before(layer) + self.block_forward()) + unit(layer) + unit(layer + 1);
            let gathered = unit(layer) + unit(layer - 1);
            let buckets = unit(layer) + unit(layer + 1);
            let backward = self.rows * (before(layer) + self.block_backward()) + gathered + buckets;
            most = most.max(forward).max(backward);
        }
        let d = self.d;
        let head_forward = self.rows * (before(last) + 2 * d + F32 + self.v + F32) + unit(last);
        let head_backward = (2 * d + F32 + self.v + d).max(3 * d + F32);
        let gathered = unit(last) + unit(last - 1);
        most.max(head_forward).max(self.rows * (before(last) + head_backward) + gathered + unit(last))
    }
}

/// The most elements at once of a unit of `padded` and those after it, as long as those hold fewer than `ahead`.
fn largest_with_ahead(padded: &[u64], ahead: u64) -> u64 {
    let from = |first: usize| {
        let following = padded[first + 1..].iter().scan(0, |sum, &elements| {
            let more = *sum < ahead;
            *sum += elements;
            more.then_some(elements)
        });
        padded[first] + following.sum::<u64>()
    };
    (0..padded.len()).map(from).max().unwrap()
}

/// The largest sum of `padded` over `count` units in a row.
fn largest_in_a_row(padded: &[u64], count: usize) -> u64 {
    padded.windows(count.min(padded.len())).map(|units| units.iter().sum()).max().unwrap()
}

fn padded(job: &Job) -> Vec<u64> {
    Partition::of(job).units.iter().map(|unit| unit.padded).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is held between steps is the recipe's closed form over padded units.
    #[test]
    fn model_states(job in jobs()) {
        let n = job.world_size as u64;
        let full: u64 = Partition::of(&job).parameters();
        let padded: u64 = padded(&job.with_stage(Stage::Zero3)).iter().sum();
        let shard = padded / n;
        let closed = [
            (Stage::Ddp, [full, full, 2 * full]),
            (Stage::Zero1, [padded, padded, 2 * shard]),
            (Stage::Zero2, [padded, shard, 2 * shard]),
            (Stage::Zero3, [shard, shard, 2 * shard]),
        ];
        for (stage, elements) in closed {
            let job = job.with_stage(stage);
            let held = [Class::Parameters, Class::Gradients, Class::Optimizer].map(|class| peak(&job, class));
            prop_assert_eq!(held, elements.map(|elements| elements * F32), "{}", stage);
        }
    }

    /// Activations and workspace are the model's affair: the same at every stage, as counted from its contract.
    #[test]
    fn residual_states(job in jobs()) {
        let letters = Letters::of(&job);
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            prop_assert_eq!(peak(&job, Class::Activations), letters.activations());
            prop_assert_eq!(peak(&job, Class::Workspace), letters.workspace());
        }
        let memory = ranks(&job)[0].memory;
        let states = 16 * Partition::of(&job).parameters();
        prop_assert_eq!(memory.total_peak, states + letters.together(), "DDP: nothing else moves");
    }

    /// What checkpointing saves is what blocks no longer keep; it sends nothing more.
    #[test]
    fn checkpointing(job in jobs()) {
        for stage in Stage::ALL {
            let with = |checkpointing| ranks(&Job { checkpointing, ..job.with_stage(stage) })[0];
            let everything = with(Checkpointing::None);
            for checkpointing in [Checkpointing::Selective, Checkpointing::Block] {
                let less = with(checkpointing);
                prop_assert_eq!(less.traffic_per_step, everything.traffic_per_step);
                prop_assert!(less.memory.total_peak <= everything.memory.total_peak);
                let classes = Class::ALL.iter().filter(|&&class| class != Class::Activations);
                for &class in classes {
                    prop_assert_eq!(less.memory.peak(class), everything.memory.peak(class), "{}", class);
                }
            }
        }
    }

    /// Gathered at once: the unit in use and those ahead of it, in forward or in backward, and a tied table throughout.
    #[test]
    fn gathered_parameters(job in jobs(), ahead in prop_oneof![0u64..3, 0u64..20_000]) {
        let gathering = Gathering { ahead, in_flight: usize::MAX, ..Gathering::default() };
        let job = Job { gathering, ..job.with_stage(Stage::Zero3) };
        let padded = padded(&job);
        let tied = usize::from(job.config.tied);
        let reversed: Vec<u64> = padded[tied..].iter().rev().copied().collect();
        let either = largest_with_ahead(&padded[tied..], ahead).max(largest_with_ahead(&reversed, ahead));
        let closed = padded[..tied].iter().sum::<u64>() + either;
        prop_assert_eq!(peak(&job, Class::GatheredParameters), F32 * closed);
        prop_assert_eq!(peak(&job.with_stage(Stage::Zero2), Class::GatheredParameters), 0);
    }

    /// Wrapping: the whole model is gathered once per micro-batch and at once; tensor by tensor, a layer's are gathered
    /// and one more ahead. Payload is the same but for padding, and for what is kept from forward to backward.
    #[test]
    fn wrapping(job in jobs(), size in 1u64..20_000) {
        let mut job = job.with_stage(Stage::Zero3);
        job.config.tied = false;
        let parameters = Partition::of(&job).parameters();
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let with = |wrap| Job { wrap, ..job.clone() };
        let gathers = |job: &Job| ranks(job)[0].traffic_per_step.calls(Operation::AllGather);

        let whole = with(Wrap::Model);
        prop_assert_eq!(peak(&whole, Class::GatheredParameters), F32 * parameters.next_multiple_of(n));
        prop_assert_eq!(gathers(&whole), m);

        let single = with(Wrap::Parameter);
        let padded = padded(&single);
        prop_assert_eq!(padded.len(), 3 + 9 * job.config.layers);
        // The embedding; nine tensors per block; the final norm and the head, which are kept for backward.
        prop_assert_eq!(gathers(&single), m * (2 * padded.len() as u64 - 2));
        let ahead = |layer: usize| {
            let (first, count) = if layer == 0 { (0, 1) } else { (9 * layer - 8, 9) };
            let last = padded.len().min(first + count);
            let own: u64 = padded[first..last].iter().sum();
            // Forward gathers the tensor after the layer's last one ahead; backward the first of the layer before.
            let before = if layer == 0 { 0 } else { padded[if layer == 1 { 0 } else { 9 * layer - 17 }] };
            own + before.max(padded.get(last).copied().unwrap_or(0))
        };
        let most = (0..job.config.layers + 2).map(ahead).max().unwrap();
        prop_assert_eq!(peak(&single, Class::GatheredParameters), F32 * most);

        for wrap in [Wrap::Module, Wrap::Size(size)] {
            let job = with(wrap);
            let sum: u64 = Partition::of(&job).units.iter().map(|unit| unit.padded).sum();
            let reduced = ranks(&job)[0].traffic_per_step.bytes(Operation::ReduceScatter);
            prop_assert_eq!(reduced, m * sum / n * (n - 1) * F32);
            prop_assert!(sum - parameters <= Partition::of(&job).units.len() as u64 * (n - 1));
        }
    }

    /// Without overlap, one unit at a time; so too where nothing may be in flight beside it or held beyond it, or where
    /// backward gathers a unit only once the other is freed and forward none ahead.
    #[test]
    fn gathered_one_at_a_time(job in jobs()) {
        let mut job = job.with_stage(Stage::Zero3);
        job.config.tied = false;
        let one = F32 * largest_in_a_row(&padded(&job), 1);
        let two = F32 * largest_in_a_row(&padded(&job), 2);
        let base = Gathering { ahead: u64::MAX, in_flight: usize::MAX, ..Gathering::default() };
        let with = |gathering| peak(&Job { gathering, ..job.clone() }, Class::GatheredParameters);
        prop_assert_eq!(peak(&Job { overlap: false, ..job.clone() }, Class::GatheredParameters), one);
        prop_assert_eq!(with(Gathering { live: 0, ..base }), one);
        prop_assert_eq!(with(Gathering { in_flight: 1, ..base }), two);
        let bounded = with(Gathering { live: two / F32, ..base });
        prop_assert!(bounded <= two);
        for backward in [BackwardPrefetch::Post, BackwardPrefetch::None] {
            let reshard = Gathering { backward, ahead: 1, reuse: 0, ..base };
            prop_assert!((one..=two).contains(&with(reshard)));
        }
    }

    /// Giving up what backward begins with costs its gathers: exactly 3Ψ per micro-batch. Keeping everything saves all
    /// second gathers: 2Ψ.
    #[test]
    fn reuse(job in jobs()) {
        let job = job.with_stage(Stage::Zero3);
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let sum: u64 = padded(&job).iter().sum();
        let gathered = |reuse| {
            let gathering = Gathering { reuse, ..Gathering::default() };
            let rank = ranks(&Job { gathering, ..job.clone() })[0];
            (rank.traffic_per_step.bytes(Operation::AllGather), rank.memory.peak(Class::GatheredParameters))
        };
        let share = sum / n * (n - 1) * F32;
        prop_assert_eq!(gathered(0).0, 2 * m * share);
        prop_assert_eq!(gathered(u64::MAX), (m * share, sum * F32));
        prop_assert!(gathered(0).1 <= gathered(1).1);
    }

    /// Tensors that stay whole are held whole, never gathered in a pass, and gathered once after the update.
    #[test]
    fn whole_tensors(job in jobs(), each in prop_oneof![0u64..40, 0u64..3_000, Just(u64::MAX)], room in 0u64..20_000) {
        let job = Job { whole_tensor: each, whole_tensors: room, ..job.with_stage(Stage::Zero3) };
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let (whole, cut): (Vec<_>, Vec<_>) = Partition::of(&job).units.into_iter().partition(|unit| unit.whole);
        let [held, gathered] = [&whole, &cut].map(|units| units.iter().map(|unit| unit.padded).sum::<u64>());
        let parameters: u64 = whole.iter().chain(&cut).map(|unit| unit.parameters).sum();
        prop_assert_eq!(parameters, Partition::of(&job.with_stage(Stage::Ddp)).parameters());
        prop_assert!(whole.iter().map(|unit| unit.parameters).sum::<u64>() <= room);
        prop_assert_eq!(peak(&job, Class::Parameters), F32 * (held + gathered / n));
        prop_assert_eq!(peak(&job, Class::Optimizer), 2 * F32 * (held + gathered) / n);
        let reshard = Gathering { reuse: 0, ..Gathering::default() };
        let rank = ranks(&Job { gathering: reshard, ..job.clone() })[0];
        let share = |elements: u64| elements / n * (n - 1) * F32;
        let step = rank.traffic_per_step;
        prop_assert_eq!(step.bytes(Operation::AllGather), 2 * m * share(gathered) + share(held));
        prop_assert_eq!(step.bytes(Operation::ReduceScatter), m * share(gathered + held));
        prop_assert_eq!(Partition::of(&job.with_stage(Stage::Zero2)).units.iter().filter(|unit| unit.whole).count(), 0);
    }

    /// Without overlap, reduced gradients are gone before the next unit's exist.
    #[test]
    fn buckets_without_overlap(job in jobs()) {
        let mut job = Job { reduce_bucket: Some(1), overlap: false, ..job.with_stage(Stage::Zero2) };
        job.config.tied = false;
        prop_assert_eq!(peak(&job, Class::CommunicationBuckets), F32 * largest_in_a_row(&padded(&job), 1));
        let overlapping = Job { overlap: true, ..job.clone() };
        prop_assert_eq!(ranks(&job)[0].traffic_per_step, ranks(&overlapping)[0].traffic_per_step);
    }

    /// What stays gathered is gathered once; before backward, it is the whole model.
    #[test]
    fn shard_grad_op(job in jobs()) {
        let full = job.with_stage(Stage::Zero3);
        let kept = Job { strategy: Sharding::ShardGradOp, ..full.clone() };
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let sum: u64 = padded(&full).iter().sum();
        prop_assert_eq!(peak(&kept, Class::GatheredParameters), F32 * sum);
        for (kept, full) in ranks(&kept).iter().zip(ranks(&full)) {
            prop_assert_eq!(kept.traffic_per_step.bytes(Operation::AllGather), m * sum / n * (n - 1) * F32);
            prop_assert_eq!(kept.traffic_per_evaluation_batch, full.traffic_per_evaluation_batch);
            prop_assert_eq!(kept.to_neighbours.total(1, 1, 1), 0);
        }
    }

    /// Hybrid sharding: every group is a world of its own, but for the shards' sums across groups and a loss that all
    /// ranks exchange.
    #[test]
    fn hybrid_sharding(job in jobs(), groups in 1usize..5) {
        let alone = job.with_stage(Stage::Zero3);
        let n = alone.world_size;
        let (world_size, shard_group) = (n * groups, Some(n));
        let strategy = Sharding::HybridShard;
        let hybrid = Job { world_size, strategy, shard_group, ..alone.clone() };
        let (group, world) = (ranks(&alone), ranks(&hybrid));
        let norm = (4 + 16) * (n as u64 - 1);
        for (number, rank) in world.iter().enumerate() {
            let (within, step) = (&group[number % n], &rank.traffic_per_step);
            prop_assert_eq!(rank.memory, within.memory);
            for operation in [Operation::ReduceScatter, Operation::AllGather] {
                prop_assert_eq!(step.bytes(operation), within.traffic_per_step.bytes(operation));
            }
            prop_assert_eq!(step.bytes(Operation::Scalars), 16 * (world_size as u64 - 1) + norm);
            // What was reduced as one bucket goes on as one.
            let all_reduces = step.calls(Operation::AllReduce) * job.micro_batches as u64;
            prop_assert_eq!(all_reduces, step.calls(Operation::ReduceScatter));
            let moved = step.bytes(Operation::ReduceScatter) + step.bytes(Operation::AllGather);
            prop_assert_eq!(rank.to_neighbours.per_step, moved + norm);
        }
        let across: u64 = world.iter().map(|rank| rank.traffic_per_step.bytes(Operation::AllReduce)).sum();
        let sum: u64 = padded(&hybrid).iter().sum();
        prop_assert_eq!(across, 2 * (groups as u64 - 1) * sum * F32, "once per step");
    }

    /// Secondary shards: backward gathers among neighbours, from a slice of every unit that is held beside all else.
    #[test]
    fn secondary_shards(job in jobs(), groups in 1usize..5) {
        let neighbours = job.world_size;
        let full = Job { world_size: neighbours * groups, ..job.with_stage(Stage::Zero3) };
        let secondary = Job { secondary_shards: Some(neighbours), ..full.clone() };
        let units = padded(&full);
        let sum: u64 = units.iter().sum();
        let kept = units[units.len() - 1] + if job.config.tied { units[0] } else { 0 };
        let (n, s, m) = (full.world_size as u64, neighbours as u64, job.micro_batches as u64);
        for class in Class::ALL {
            let more = if *class == Class::Parameters { sum / s * F32 } else { 0 };
            prop_assert_eq!(peak(&secondary, *class), peak(&full, *class) + more, "{}", class);
        }
        let among = |elements: u64, ranks: u64| elements / ranks * (ranks - 1) * F32;
        for (with, without) in ranks(&secondary).iter().zip(ranks(&full)) {
            let (step, plain) = (&with.traffic_per_step, &without.traffic_per_step);
            let backward = m * among(sum - kept, s);
            prop_assert_eq!(step.bytes(Operation::AllGather), m * among(sum, n) + backward);
            prop_assert_eq!(step.calls(Operation::AllGather), plain.calls(Operation::AllGather));
            prop_assert_eq!(step.bytes(Operation::ReduceScatter), plain.bytes(Operation::ReduceScatter));
            prop_assert_eq!(with.to_neighbours.per_step, backward);
            prop_assert_eq!(with.traffic_per_evaluation_batch, without.traffic_per_evaluation_batch);
        }
    }

    /// What stays whole is never gathered: secondary shards hold nothing of it.
    #[test]
    fn secondary_shards_beside_whole_tensors(job in jobs(), groups in 1usize..5, whole_tensor in 0u64..2_000) {
        let neighbours = job.world_size;
        let full = Job { world_size: neighbours * groups, whole_tensor, ..job.with_stage(Stage::Zero3) };
        let secondary = Job { secondary_shards: Some(neighbours), ..full.clone() };
        let units = Partition::of(&full).units;
        let gathered: u64 = units.iter().filter(|unit| !unit.whole).map(|unit| unit.padded).sum();
        let more = gathered / neighbours as u64 * F32;
        prop_assert_eq!(peak(&secondary, Class::Parameters), peak(&full, Class::Parameters) + more);
    }

    /// A bucket per unit: full gradients of the unit in backward and of the one before it, which is being reduced.
    #[test]
    fn buckets_of_one_unit(job in jobs()) {
        let mut job = Job { reduce_bucket: Some(1), ..job.with_stage(Stage::Zero2) };
        job.config.tied = false;
        let padded = padded(&job);
        let pairs = largest_in_a_row(&padded, 2);
        let across = if job.micro_batches > 1 { padded[0] + padded[padded.len() - 1] } else { 0 };
        prop_assert_eq!(peak(&job, Class::CommunicationBuckets), F32 * pairs.max(across));
    }

    /// Gradients that travel in another type: while a unit's are converted, both copies exist, beside the one being
    /// reduced. Where full gradients are held they are not in buckets, and only the converted ones are.
    #[test]
    fn converted_buckets_of_one_unit(job in jobs(), bytes in prop_oneof![Just(2u64), Just(4)]) {
        let mut job = Job { reduce_bucket: Some(1), converted_gradients: Some(bytes), micro_batches: 1, ..job };
        job.config.tied = false;
        let zero2 = job.with_stage(Stage::Zero2);
        let padded = padded(&zero2);
        let behind = |i: usize| padded.get(i + 1).copied().unwrap_or(0);
        let converting = |i: usize| F32 * padded[i] + bytes * (padded[i] + behind(i));
        let most = (0..padded.len()).map(converting).max().unwrap();
        prop_assert_eq!(peak(&zero2, Class::CommunicationBuckets), most);
        prop_assert_eq!(
            peak(&job.with_stage(Stage::Zero1), Class::CommunicationBuckets),
            bytes * largest_in_a_row(&padded, 2)
        );
    }

    /// Gradients are sent in the converted type, parameters in their own.
    #[test]
    fn converted_traffic(job in jobs()) {
        for stage in [Stage::Zero1, Stage::Zero2, Stage::Zero3] {
            let job = job.with_stage(stage);
            let plain = ranks(&job)[0].traffic_per_step;
            let halved = ranks(&Job { converted_gradients: Some(2), ..job })[0].traffic_per_step;
            let bytes = |traffic: &planner::Traffic, operation| traffic.bytes(operation);
            prop_assert_eq!(2 * bytes(&halved, Operation::ReduceScatter), bytes(&plain, Operation::ReduceScatter));
            prop_assert_eq!(bytes(&halved, Operation::AllGather), bytes(&plain, Operation::AllGather));
        }
    }

    /// A skipped step gathers no updated parameters, and is otherwise like any other.
    #[test]
    fn skipped_steps(job in jobs()) {
        for stage in Stage::ALL {
            let rank = ranks(&job.with_stage(stage))[0];
            let (step, skipped) = (rank.traffic_per_step, rank.traffic_per_skipped_step);
            let gathers = matches!(stage, Stage::Zero1 | Stage::Zero2);
            for &operation in Operation::ALL {
                let spared = gathers && operation == Operation::AllGather;
                let expected = if spared { 0 } else { step.bytes(operation) };
                prop_assert_eq!(skipped.bytes(operation), expected, "{} {}", stage, operation);
            }
        }
    }

    /// One bucket for all: every full gradient at once, twice if the next micro-batch fills another meanwhile.
    #[test]
    fn one_bucket(job in jobs()) {
        let sum: u64 = padded(&job.with_stage(Stage::Zero3)).iter().sum();
        for stage in [Stage::Zero2, Stage::Zero3] {
            let job = Job { reduce_bucket: Some(u64::MAX), ..job.with_stage(stage) };
            let times = job.micro_batches.min(2) as u64;
            prop_assert_eq!(peak(&job, Class::CommunicationBuckets), F32 * times * sum);
            let calls = ranks(&job)[0].traffic_per_step.calls(Operation::ReduceScatter);
            prop_assert_eq!(calls, job.micro_batches as u64);
        }
    }

    /// The total peak of ZeRO-3, layer by layer.
    #[test]
    fn total_of_zero3(job in jobs()) {
        let mut job = Job { reduce_bucket: Some(1), micro_batches: 1, ..job.with_stage(Stage::Zero3) };
        job.config.tied = false;
        let padded = padded(&job);
        let states = 4 * padded.iter().sum::<u64>() / job.world_size as u64 * F32;
        prop_assert_eq!(ranks(&job)[0].memory.total_peak, states + Letters::of(&job).zero3(&padded));
    }

    /// The total is at least what is live when forward ends, and at most the sum of the peaks.
    #[test]
    fn totals_are_bounded(job in jobs()) {
        for stage in Stage::ALL {
            let memory = ranks(&job.with_stage(stage))[0].memory;
            let held: u64 = [Class::Parameters, Class::Gradients, Class::Optimizer, Class::Activations]
                .map(|class| memory.peak(class)).iter().sum();
            prop_assert!(held <= memory.total_peak && memory.total_peak <= memory.peaks().iter().sum());
        }
    }

    /// Reduce-scatter and all-gather per step: 2Ψ, 2Ψ, (M+1)Ψ and, the head being kept, a little under 3MΨ, each times
    /// (N−1)/N, on every rank.
    #[test]
    fn traffic(job in jobs()) {
        let (n, m) = (job.world_size as u64, job.micro_batches as u64);
        let units = padded(&job.with_stage(Stage::Zero3));
        let sum: u64 = units.iter().sum();
        let kept = units[units.len() - 1] + if job.config.tied { units[0] } else { 0 };
        let share = |elements: u64| elements / n * (n - 1) * F32;
        let closed = [
            (Stage::Zero1, share(sum), share(sum)),
            (Stage::Zero2, m * share(sum), share(sum)),
            (Stage::Zero3, m * share(sum), m * share(2 * sum - kept)),
        ];
        for (stage, reduced, gathered) in closed {
            for rank in ranks(&job.with_stage(stage)) {
                let step = rank.traffic_per_step;
                prop_assert_eq!(step.bytes(Operation::ReduceScatter), reduced, "{}", stage);
                prop_assert_eq!(step.bytes(Operation::AllGather), gathered, "{}", stage);
                prop_assert_eq!(step.bytes(Operation::Scalars), (16 + 4 + 16) * (n - 1));
                prop_assert_eq!(step.calls(Operation::Scalars), 3);
                prop_assert_eq!(rank.traffic_setup.total_bytes(), 32 * (n - 1));
                prop_assert_eq!(rank.traffic_per_evaluation.total_bytes(), 16 * (n - 1));
            }
        }
        let gathers = ranks(&job.with_stage(Stage::Zero3))[0].traffic_per_step.calls(Operation::AllGather);
        let kept_units = 1 + u64::from(job.config.tied);
        prop_assert_eq!(gathers, m * (2 * units.len() as u64 - kept_units));
    }

    /// All-reduce: slices may be uneven, but all ranks together send 2(N−1)Ψ elements, and none is a slice off.
    #[test]
    fn all_reduce(job in jobs()) {
        let n = job.world_size as u64;
        let full = Partition::of(&job).parameters();
        let sent = ranks(&job).iter().map(|rank| rank.traffic_per_step.bytes(Operation::AllReduce)).collect::<Vec<_>>();
        prop_assert_eq!(sent.iter().sum::<u64>(), 2 * (n - 1) * full * F32);
        let units = Partition::of(&job).units.len() as u64;
        let (least, most) = (*sent.iter().min().unwrap(), *sent.iter().max().unwrap());
        prop_assert!(most - least <= units * n.saturating_sub(2) * F32);
        let step = ranks(&job)[0].traffic_per_step;
        prop_assert_eq!((step.calls(Operation::Scalars), step.bytes(Operation::Scalars)), (1, 16 * (n - 1)));

        let textbook = Job { textbook_all_reduce: true, ..job.with_stage(Stage::Zero1) };
        let sum: u64 = padded(&textbook).iter().sum();
        let step = ranks(&textbook)[0].traffic_per_step;
        prop_assert_eq!(step.payload_bytes(), 3 * (sum / n) * (n - 1) * F32);
    }

    /// An evaluation's batch: every unit gathered once in ZeRO-3, nothing elsewhere.
    #[test]
    fn evaluation(job in jobs()) {
        let n = job.world_size as u64;
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            let batch = ranks(&job)[0].traffic_per_evaluation_batch;
            let units = padded(&job);
            let (calls, elements) =
                if stage == Stage::Zero3 { (units.len() as u64, units.iter().sum()) } else { (0, 0) };
            prop_assert_eq!(batch.calls(Operation::AllGather), calls);
            prop_assert_eq!(batch.total_bytes(), elements / n * (n - 1) * F32);
        }
    }

    /// From the second micro-batch on, nothing about memory changes.
    #[test]
    fn micro_batches_repeat(job in jobs(), bucket in 1u64..5000) {
        for stage in Stage::ALL {
            let with = |micro_batches| {
                let job = Job { micro_batches, reduce_bucket: Some(bucket), ..job.with_stage(stage) };
                ranks(&job)[0].memory
            };
            prop_assert_eq!(with(2), with(7));
        }
    }

    /// More sequences, more tokens: more memory.
    #[test]
    fn grows_with_the_batch(job in jobs()) {
        for stage in Stage::ALL {
            let job = job.with_stage(stage);
            let total = |job: &Job| ranks(job)[0].memory.total_peak;
            let wider = Job { batch_size: job.batch_size + 1, ..job.clone() };
            let longer = Job { tokens: job.tokens + 1, ..job.clone() };
            prop_assert!(total(&job) < total(&wider));
            prop_assert!(total(&job) < total(&longer));
        }
    }

    /// The largest micro-batch fits and the next does not.
    #[test]
    fn fit(job in jobs(), capacity in 1_000u64..10_000_000) {
        let fit = explain_fit(&job, capacity).unwrap();
        prop_assert_eq!(fit.stages.len(), 4);
        for stage in fit.stages {
            let total = |batch_size| {
                ranks(&Job { batch_size, ..job.with_stage(stage.stage) })[0].memory.total_peak
            };
            prop_assert_eq!(stage.total_peak, total(job.batch_size));
            prop_assert_eq!(stage.fits, stage.largest_batch.is_some_and(|largest| job.batch_size <= largest));
            let largest = stage.largest_batch.unwrap_or(0);
            prop_assert!(largest == 0 || total(largest) <= capacity);
            prop_assert!(total(largest + 1) > capacity);
        }
    }
}

/// One rank sends nothing, but still issues what it would.
#[test]
fn alone() {
    for stage in Stage::ALL {
        let job = Job { micro_batches: 2, ..Job::new(ModelConfig::tiny(), stage, 1) };
        let rank = ranks(&job)[0];
        assert_eq!(rank.traffic(3, 2, 4).total_bytes(), 0);
        assert!(rank.traffic_per_step.calls(Operation::Scalars) > 0);
        let held =
            [Class::Parameters, Class::Gradients, Class::Optimizer].map(|class| rank.memory.peak(class));
        assert_eq!(held.iter().sum::<u64>(), 16 * 918_656);
    }
}

#[test]
fn groups_must_divide_the_world() {
    let job = Job::new(ModelConfig::tiny(), Stage::Zero3, 6);
    for size in [0, 4, 5, 12] {
        let hybrid = Job { strategy: Sharding::HybridShard, shard_group: Some(size), ..job.clone() };
        let secondary = Job { secondary_shards: Some(size), ..job.clone() };
        for job in [hybrid, secondary] {
            assert!(predict(&job).unwrap_err().to_string().contains("divides the 6 ranks"), "{size}");
        }
    }
    let hybrid = Job { strategy: Sharding::HybridShard, shard_group: Some(3), ..job };
    assert_eq!(hybrid.with_stage(Stage::Zero2), Job::new(ModelConfig::tiny(), Stage::Zero2, 6));
}

#[test]
fn impossible_jobs_are_refused() {
    let job = Job::new(ModelConfig::tiny(), Stage::Zero2, 4);
    let problem = |job: Job| predict(&job).unwrap_err().to_string();
    assert_eq!(problem(Job { world_size: 0, ..job.clone() }), "world size is 0: give at least 1");
    assert_eq!(problem(Job { tokens: 0, ..job.clone() }), "tokens per sequence is 0: give at least 1");
    assert!(problem(Job { batch_size: usize::MAX, ..job.clone() }).contains("beyond any machine"));
    assert!(explain_fit(&Job { micro_batches: 0, ..job }, 1).is_err());
}
