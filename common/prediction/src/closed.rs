//! Traffic as closed forms, for a model of which only the number of parameters is given.

use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::traffic::{Algorithm, Among, ByteCounter, Sender, Traffic};
use events::Operation;

/// The number of times that a step moves all gradients or parameters, by operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sweeps {
    /// All-reduces of all gradients. Each sends as much as two of the other operations.
    pub all_reduce: u64,
    /// Reduce-scatters of all gradients.
    pub reduce_scatter: u64,
    /// All-gathers of all parameters.
    pub all_gather: u64,
}

impl Sweeps {
    /// Returns the collectives of `stage` in a step of `micro_batches` (ZeRO paper, section 7, and
    /// accumulation). DDP reduces once. ZeRO-1 reduces and gathers once, by an all-reduce if
    /// `textbook`. ZeRO-2 reduces at every micro-batch, since it keeps no full gradients, and
    /// gathers once. ZeRO-3 gathers twice and reduces once at every micro-batch.
    pub fn of(stage: Stage, micro_batches: u64, textbook: bool) -> Self {
        let sharded = stage.sharded();
        let all_reduce = u64::from(stage.all_reduces(textbook));
        let reductions = if sharded.gradients { micro_batches } else { 1 };
        let updates = u64::from(sharded.optimizer);
        let all_gather = if sharded.parameters { 2 * micro_batches } else { updates };
        Sweeps { all_reduce, reduce_scatter: reductions - all_reduce, all_gather }
    }

    /// Returns the elements that a rank sends, in units of Ψ(N−1)/N.
    pub fn total(&self) -> u64 {
        2 * self.all_reduce + self.reduce_scatter + self.all_gather
    }

    /// Returns the bytes that rank 0 of `world_size` sends for Ψ `parameters`, padded for equal
    /// slices where `stage` shards.
    pub fn traffic(&self, parameters: u64, world_size: usize, stage: Stage, recipe: &Recipe) -> Traffic {
        let elements = parameters.next_multiple_of(stage.shard_count(world_size));
        let mut counter = ByteCounter::default();
        let sweeps = [
            (Operation::AllReduce, self.all_reduce, recipe.gradients),
            (Operation::ReduceScatter, self.reduce_scatter, recipe.gradients),
            (Operation::AllGather, self.all_gather, recipe.weights),
        ];
        for (operation, times, bytes) in sweeps {
            for _ in 0..times {
                counter.collective(Among::World, operation, [elements], bytes);
            }
        }
        counter.of(Sender { algorithm: Algorithm::default(), ranks: world_size as u64, rank: 0 })
    }
}

/// Returns the ratio of bus bandwidth, as NCCL's tests print it, to algorithm bandwidth (buffer
/// bytes over time) for `ranks`: 2(N−1)/N for an all-reduce, (N−1)/N for a reduce-scatter or an
/// all-gather. It equals the bytes that a rank sends divided by the buffer's bytes.
pub fn bus_bandwidth_factor(operation: Operation, ranks: u64) -> f64 {
    Algorithm::default().elements_sent(operation, ranks, ranks, 0) as f64 / ranks as f64
}
