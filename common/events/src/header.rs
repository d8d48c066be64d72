//! The run's header: the description that a watcher must have before the first event.

use crate::amount::bounded;
use crate::event::{Class, Operation, Place, Purpose, Route};
use serde::{Deserialize, Serialize};

/// One unit of the partition: tensors that are gathered, reduced and released together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitHeader {
    /// Its name on screen: `embedding`, `block 0`, `head`.
    pub name: String,
    /// Number of parameters, without padding.
    #[serde(deserialize_with = "bounded")]
    pub parameters: u64,
    /// Number of parameters, padded to a multiple of the shard count.
    #[serde(deserialize_with = "bounded")]
    pub padded: u64,
    /// True if every rank keeps the unit's full parameters even where other units are sharded.
    pub persistent: bool,
}

/// The sharded model states: a rank keeps only its slice of them between steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharded {
    /// Parameters are sharded.
    pub parameters: bool,
    /// Gradients are sharded.
    pub gradients: bool,
    /// Optimizer states are sharded.
    pub optimizer: bool,
}

/// Predicted bytes of one rank: of a class at its peak on the device, or of an operation's or a
/// route's payload per optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedBytes<K> {
    /// The rank.
    pub rank: u32,
    /// The class, operation or route.
    pub of: K,
    /// Predicted bytes.
    #[serde(deserialize_with = "bounded")]
    pub bytes: u64,
}

/// The predicted peaks of one rank in one place other than its device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PredictedPlace {
    /// The rank.
    pub rank: u32,
    /// The place.
    pub place: Place,
    /// Predicted peak in bytes per class, in [`Class::ALL`]'s order.
    #[serde(deserialize_with = "bounded")]
    pub peaks: Vec<u64>,
    /// Predicted peak of the sum over classes, in bytes.
    #[serde(deserialize_with = "bounded")]
    pub total: u64,
}

/// The offloaded states, and the transfers that they cause. Empty if all states are kept on the
/// device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// The offloaded classes, each with the place where it is stored. Parameters of persistent
    /// units always stay on the device.
    pub resting: Vec<(Class, Place)>,
    /// Predicted memory in main memory and on disk.
    pub memory: Vec<PredictedPlace>,
    /// Predicted bytes moved per rank, route and step.
    pub transfers: Vec<PredictedBytes<Route>>,
}

impl Offload {
    /// Returns the place where the bytes of `class` are stored.
    pub fn place(&self, class: Class) -> Place {
        let found = self.resting.iter().find(|(other, _)| *other == class);
        found.map_or(Place::Device, |(_, place)| *place)
    }

    /// Returns the predicted peaks of `rank` in `place`.
    pub fn predicted(&self, rank: usize, place: Place) -> Option<&PredictedPlace> {
        self.memory.iter().find(|predicted| predicted.rank as usize == rank && predicted.place == place)
    }
}

/// Choices that change a step's work, in words; empty strings for the defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choices {
    /// The sharding strategy: `hybrid-shard`.
    pub strategy: String,
    /// The buffers that backward recomputes: `block`, `selective`.
    pub checkpointing: String,
}

/// One operation over full buffers that every step communicates, according to theory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sweep {
    /// The purpose of the communication.
    pub purpose: Purpose,
    /// The operation.
    pub operation: Operation,
    /// Number of times per optimizer step.
    pub times: u32,
    /// Elements of a rank's full buffers, padding included.
    #[serde(deserialize_with = "bounded")]
    pub elements: u64,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// The number of ranks in each group that communicates.
    pub ranks: u32,
}

impl Sweep {
    /// Returns the elements that all ranks together send per step in a world of `world_size`, made
    /// of groups of [`Sweep::ranks`]. In a group of n each rank sends (n−1)/n of the buffers, and
    /// twice that in an all-reduce, which is a reduce-scatter and an all-gather.
    pub fn elements_sent(&self, world_size: u32) -> u64 {
        let groups = u64::from(world_size / self.ranks.max(1));
        let factors = [self.times.into(), self.elements, self.ranks.saturating_sub(1).into(), groups];
        factors.into_iter().fold(self.operation.rounds(), u64::saturating_mul)
    }

    /// Returns the bytes that all ranks together send per step.
    pub fn bytes_sent(&self, world_size: u32) -> u64 {
        self.elements_sent(world_size).saturating_mul(self.element_bytes.into())
    }
}

/// Maximum number of pairs of ranks, or of a rank and a unit, in one run: a watcher keeps some
/// bytes for each pair.
const MOST_PAIRS: u64 = 1 << 20;
/// Number of pairs that any header may describe, whatever its size.
const FEW_PAIRS: u64 = 1 << 12;
/// Number of further pairs per byte of the header: a header describes every unit, and predicts
/// every rank.
const PAIRS_PER_BYTE: u64 = 64;

/// The description of a run, written before it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunHeader {
    /// The stage's name, followed by [`Self::PREDICTED`] if the run is.
    pub stage: String,
    /// Model name.
    pub model: String,
    /// Parameters of the model (Ψ), without padding.
    #[serde(deserialize_with = "bounded")]
    pub parameters: u64,
    /// Number of ranks.
    pub world_size: u32,
    /// The device's name: `CPU`, or the GPU's name.
    pub device: String,
    /// The precision's name: `fp32`, `bf16`, `fp16`.
    pub precision: String,
    /// Bytes per communicated element.
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
    /// Device capacity per rank in bytes; `None` if it is unlimited.
    #[serde(deserialize_with = "bounded")]
    pub capacity: Option<u64>,
    /// The number of ranks that share one copy of the sharded states. With hybrid sharding it is
    /// less than the world size, and every group of this many neighbours holds a copy.
    pub shard_group: u32,
    /// The model states that the stage shards.
    pub sharded: Sharded,
    /// The partition, in forward order.
    pub units: Vec<UnitHeader>,
    /// Predicted peak per rank and class, on the device.
    pub predicted_memory: Vec<PredictedBytes<Class>>,
    /// Predicted peak of the sum over classes per rank, on the device.
    #[serde(deserialize_with = "bounded")]
    pub predicted_total: Vec<u64>,
    /// Predicted peak of the sum over classes per rank if all states were replicated.
    #[serde(deserialize_with = "bounded")]
    pub replicated_total: Vec<u64>,
    /// Predicted payload per rank, operation and step.
    pub predicted_traffic: Vec<PredictedBytes<Operation>>,
    /// Version of the program that wrote the header.
    pub version: String,
    /// The communication of every optimizer step according to theory. In a stream it follows the
    /// fields above; in a stream without it the list is empty.
    #[serde(skip)]
    pub theory: Vec<Sweep>,
    /// The offloaded states. In a stream they follow the theory; in a stream without them all
    /// states are kept on the device.
    #[serde(skip)]
    pub offload: Offload,
    /// Further choices. In a stream they follow the offload; in a stream without them the strings
    /// are empty.
    #[serde(skip)]
    pub choices: Choices,
}

impl RunHeader {
    /// The word that follows the stage's name in a predicted run.
    pub const PREDICTED: &str = "predicted";

    /// True if the run is predicted: nothing was trained, so losses, norms and learning rates are
    /// NaN.
    pub fn is_predicted(&self) -> bool {
        self.stage.ends_with(Self::PREDICTED)
    }

    /// Returns the predicted peak of `class` on `rank`, in `place`, in bytes; `None` if there is no
    /// prediction.
    pub fn predicted_peak(&self, rank: usize, place: Place, class: Class) -> Option<u64> {
        if place != Place::Device {
            return self.offload.predicted(rank, place)?.peaks.get(class.index()).copied();
        }
        let mut device = self.predicted_memory.iter();
        device.find(|peak| peak.rank as usize == rank && peak.of == class).map(|peak| peak.bytes)
    }

    /// True unless a watcher would need more memory than any run, or a header of `bytes` bytes, can
    /// justify.
    pub(crate) fn is_plausible(&self, bytes: usize) -> bool {
        let others = (self.units.len() as u64).max(self.world_size.into());
        let justified = FEW_PAIRS.saturating_add(PAIRS_PER_BYTE.saturating_mul(bytes as u64));
        u64::from(self.world_size).saturating_mul(others) <= MOST_PAIRS.min(justified)
    }
}
