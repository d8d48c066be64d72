//! The planner's report: the memory and traffic of every stage for one model and recipe, as data
//! and as tables.

mod answer;
mod beyond;
mod render;
mod times;

use crate::Timing;
use model::Checkpointing;
use prediction::Stage;
use prediction::Strategy;
use prediction::invalid::InvalidJob;
use prediction::job::Job;
use prediction::ledger::Memory;
use prediction::recipe::{ModelStates, Recipe};
use prediction::traffic::Traffic;
use prediction::transfers::Transfers;
use serde::Serialize;

pub use beyond::{Offloading, PlaceReport};
pub use times::{StageTime, Times};

/// Memory of common GPUs, in bytes: 24 GB (RTX 3090, 4090), 40 and 80 GB (A100, H100), 141 GB
/// (H200).
pub const CAPACITIES: [u64; 4] = [24_000_000_000, 40_000_000_000, 80_000_000_000, 141_000_000_000];

/// The subject of a report.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// The job's model, predicted to the byte.
    Model,
    /// A number of parameters: model states and traffic as closed forms, and given bytes of
    /// activations.
    Parameters {
        /// Ψ.
        count: u64,
        /// Bytes per GPU, as given.
        activations: u64,
    },
}

/// The question that a report answers.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The model, or the number of parameters.
    pub subject: Subject,
    /// The job. Its model is not used if the subject is a number of parameters.
    pub job: Job,
    /// GPUs that share a machine's main memory and disk.
    pub gpus_per_node: usize,
    /// The device on which steps are timed; `None` if no times are wanted.
    pub timing: Option<Timing>,
}

/// The answer. All sizes are per GPU, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The model's name; `None` for a number of parameters.
    pub model: Option<String>,
    /// Ψ.
    pub parameters: u64,
    /// N.
    pub gpus: usize,
    /// Bytes per parameter.
    pub recipe: Recipe,
    /// The micro-batch; `None` if no model was given.
    pub micro_batch: Option<MicroBatch>,
    /// Micro-batches per step.
    pub micro_batches: usize,
    /// How ZeRO-3 shards.
    pub strategy: Strategy,
    /// Number of ranks that share one copy of the model states, in hybrid sharding.
    pub shard_group: Option<usize>,
    /// Number of ranks that share a second copy of ZeRO-3's parameters.
    pub secondary_shards: Option<usize>,
    /// The offloaded states; `None` if nothing is offloaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<Offloading>,
    /// The model's operations; `None` if no model was given.
    pub compute: Option<Compute>,
    /// One entry per stage.
    pub stages: Vec<StageReport>,
    /// The times of a step; `None` if they were not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<Times>,
    /// What makes the last stage fit on GPUs that are too small for it, down to the first for which
    /// one change is not enough. Empty without a model, and for recipes that no run has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to_fit: Vec<ToFit>,
}

/// Changes that make a stage fit on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToFit {
    /// The GPU's bytes.
    pub capacity: u64,
    /// Each is enough, the one with the lowest peak first. Empty if no flags are enough.
    pub changes: Vec<FittingChange>,
}

/// Changes of flags with which a stage fits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FittingChange {
    /// The changes: one, or several that are enough together.
    pub how: Vec<String>,
    /// Peak bytes of the GPU with them.
    pub total: u64,
}

/// The sequences that a rank computes on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MicroBatch {
    /// Sequences.
    pub batch_size: usize,
    /// Tokens per sequence.
    pub tokens: usize,
}

/// The floating-point operations of a rank per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compute {
    /// The buffers that blocks keep for backward.
    pub checkpointing: Checkpointing,
    /// Forward and backward.
    pub flops_per_token: u64,
    /// Recomputation in backward.
    pub recomputed_flops_per_token: u64,
}

/// One stage of a [`Report`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StageReport {
    /// The stage.
    pub stage: Stage,
    /// Bytes held on the GPU between steps.
    pub model_states: ModelStates,
    /// The GPU's peaks by class; `None` if no model was given.
    pub memory: Option<Memory>,
    /// Peak of everything together on the GPU.
    pub total: u64,
    /// Main memory and disk; empty if nothing is offloaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub beyond: Vec<PlaceReport>,
    /// The bytes that a rank moves between these places per step.
    #[serde(skip_serializing_if = "Transfers::is_none")]
    pub transfers_per_step: Transfers,
    /// The bytes that the first rank sends per step.
    pub traffic_per_step: Traffic,
    /// The part of these bytes, without scalars, that stays in its group of neighbours; 0 without
    /// such groups.
    pub to_neighbours_per_step: u64,
    /// Elements sent per step, in units of Ψ(N−1)/N; `None` for one GPU.
    pub sweeps: Option<f64>,
    /// One entry per capacity.
    pub fits: Vec<CapacityFit>,
}

/// Whether a stage fits on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CapacityFit {
    /// The GPU's bytes.
    pub capacity: u64,
    /// Whether the stage's total is within the GPU's bytes.
    pub fits: bool,
    /// Maximum number of sequences per micro-batch that fit; `None` if no model was given or none
    /// fits.
    pub largest_batch: Option<usize>,
}

impl Report {
    /// Answers `request`.
    ///
    /// # Errors
    /// [`InvalidJob`] if no run can have these numbers.
    pub fn new(request: &Request) -> Result<Self, InvalidJob> {
        match &request.subject {
            Subject::Model => answer::of_model(request),
            Subject::Parameters { count, activations } => {
                answer::of_parameters(request, *count, *activations)
            }
        }
    }
}
