//! What a watcher must know before the first event.

use crate::event::{Class, Operation, Purpose};
use serde::{Deserialize, Serialize};

/// One unit of the partition: what is gathered, reduced and released as one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnitHeader {
    /// Its name on screen: `embedding`, `block 0`, `head`.
    pub name: String,
    /// Parameters in it, without padding.
    pub parameters: u64,
    /// Parameters in it, padded to a multiple of the shard count.
    pub padded: u64,
    /// Whether every rank keeps its parameters in full, even where others are sharded.
    pub persistent: bool,
}

/// Which model states a rank keeps whole and which it keeps only its slice of, between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharded {
    /// Parameters are sharded.
    pub parameters: bool,
    /// Gradients are sharded.
    pub gradients: bool,
    /// Optimizer states are sharded.
    pub optimizer: bool,
}

/// Predicted peak of one class on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedMemory {
    /// The rank.
    pub rank: u32,
    /// The class.
    pub class: Class,
    /// Predicted peak, in bytes.
    pub bytes: u64,
}

/// Predicted payload of one operation on one rank and optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedTraffic {
    /// The rank.
    pub rank: u32,
    /// The operation.
    pub operation: Operation,
    /// Predicted bytes sent per optimizer step.
    pub bytes: u64,
}

/// What ranks communicate in every step, as theory counts it: one operation over full buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// What for.
    pub purpose: Purpose,
    /// The operation.
    pub operation: Operation,
    /// How often per optimizer step.
    pub times: u32,
    /// Elements of a rank's full buffers, padding included.
    pub elements: u64,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Ranks of each group that does it together.
    pub ranks: u32,
}

impl Sweep {
    /// Elements that all ranks together send per step, if groups of [`Sweep::ranks`] make up a world of `world_size`: everybody
    /// sends (n−1)/n of the buffers in groups of n, and twice as much in an all-reduce, which is a reduce-scatter and an
    /// all-gather.
    pub fn elements_sent(&self, world_size: u32) -> u64 {
        let rounds = if self.operation == Operation::AllReduce { 2 } else { 1 };
        let groups = u64::from(world_size / self.ranks.max(1));
        u64::from(self.times) * rounds * self.elements * u64::from(self.ranks.saturating_sub(1)) * groups
    }

    /// The same in bytes.
    pub fn bytes_sent(&self, world_size: u32) -> u64 {
        self.elements_sent(world_size) * u64::from(self.element_bytes)
    }
}

/// A run, described before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The stage's name.
    pub stage: String,
    /// Model name.
    pub model: String,
    /// Parameters of the model (Ψ), without padding.
    pub parameters: u64,
    /// Number of ranks.
    pub world_size: u32,
    /// Device in words: `CPU`, or the GPU's name.
    pub device: String,
    /// Precision in words: `fp32`, `bf16`, `fp16`.
    pub precision: String,
    /// Bytes per element of what is communicated.
    pub communicated_bytes: u32,
    /// Collective algorithm: `direct` or `ring`.
    pub algorithm: String,
    /// Optimizer steps planned.
    pub steps: u32,
    /// Micro-batches per step and rank.
    pub micro_batches: u32,
    /// Sequences per micro-batch.
    pub batch_size: u32,
    /// Tokens per sequence.
    pub sequence_length: u32,
    /// Device capacity per rank in bytes, if it has one.
    pub capacity: Option<u64>,
    /// Ranks that share one copy of what is sharded; with hybrid sharding fewer than all, and groups of so many
    /// neighbours hold the same.
    pub shard_group: u32,
    /// What the stage shards.
    pub sharded: Sharded,
    /// The partition, in forward order.
    pub units: Vec<UnitHeader>,
    /// Predicted peak per rank and class.
    pub predicted_memory: Vec<PredictedMemory>,
    /// Predicted peak of the sum over classes, per rank.
    pub predicted_total: Vec<u64>,
    /// Predicted peak of the sum over classes per rank if everything were replicated.
    pub replicated_total: Vec<u64>,
    /// Predicted payload per rank, operation and step.
    pub predicted_traffic: Vec<PredictedTraffic>,
    /// Version of the program that wrote this.
    pub version: String,
    /// What every optimizer step communicates in theory. Streams carry it behind the fields above: those written before there
    /// was such a field end there, and nothing is known then.
    #[serde(skip)]
    pub theory: Vec<Sweep>,
}
