//! The input of a prediction: a model, a stage, and the numbers of a run.

use crate::gathering::Gathering;
use crate::placement::Placement;
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::strategy::Strategy;
use crate::traffic::Algorithm;
use events::Place;
use model::{Checkpointing, ModelConfig, Wrap};

/// The settings of a run on which its memory and traffic depend.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The model.
    pub config: ModelConfig,
    /// How far the model states are sharded.
    pub stage: Stage,
    /// Number of ranks (N).
    pub world_size: usize,
    /// Sequences per micro-batch and rank.
    pub batch_size: usize,
    /// Tokens per sequence (T).
    pub tokens: usize,
    /// Micro-batches per step and rank (M).
    pub micro_batches: usize,
    /// Bytes per parameter. Activations have as many bytes per element as weights.
    pub recipe: Recipe,
    /// The buffers that blocks keep for backward; backward computes the others again.
    pub checkpointing: Checkpointing,
    /// Which tensors form a unit.
    pub wrap: Wrap,
    /// ZeRO-3 only: how long full parameters stay, and among which ranks they are sharded.
    pub strategy: Strategy,
    /// Hybrid sharding only: number of neighbours that share one copy of the model states; `None`
    /// for all ranks.
    pub shard_group: Option<usize>,
    /// ZeRO-3 only: number of neighbours that share a second copy of the parameters, from which
    /// backward gathers (hpZ).
    pub secondary_shards: Option<usize>,
    /// ZeRO-1 only: all-reduce the gradients, the textbook version, in place of a reduce-scatter.
    pub textbook_all_reduce: bool,
    /// Elements at which a reduction's bucket closes, padding included. Default: the largest
    /// unit's.
    pub reduce_bucket: Option<u64>,
    /// Elements at which a bucket of updated parameters closes, in the all-gather of ZeRO-1 and
    /// ZeRO-2. Default: the largest unit's.
    pub gather_bucket: Option<u64>,
    /// Bytes per gradient in collectives; `None` if gradients are not converted for them.
    pub converted_gradients: Option<u64>,
    /// Whether gradients that are not converted are copied for collectives.
    pub copied_gradients: bool,
    /// How collectives move data. It decides which ranks send one element more where slices are
    /// uneven.
    pub algorithm: Algorithm,
    /// Whether ranks compute while collectives are in flight.
    pub overlap: bool,
    /// Whether the next forward begins before the update and its all-gathers are complete, if ranks
    /// overlap at all.
    pub overlaps_update: bool,
    /// ZeRO-3: how parameters are gathered.
    pub gathering: Gathering,
    /// ZeRO-3: maximum number of elements of a persistent tensor, which stays whole. A unit's
    /// persistent tensors form a unit of their own.
    pub persistence_threshold: u64,
    /// ZeRO-3: maximum number of elements of all persistent tensors.
    pub model_persistence_threshold: u64,
    /// Where model states and activations are stored.
    pub placement: Placement,
}

impl Job {
    /// Returns a job that trains `config`'s model in fp32 on `world_size` ranks, with the model's
    /// own batch and sequence length, one micro-batch per step, a unit per layer, everything kept
    /// for backward, default buckets, and collectives that overlap with computing.
    pub fn new(config: ModelConfig, stage: Stage, world_size: usize) -> Self {
        Job {
            stage,
            world_size,
            batch_size: config.batch_size,
            tokens: config.sequence_length,
            micro_batches: 1,
            recipe: Recipe::FP32,
            checkpointing: Checkpointing::None,
            wrap: Wrap::default(),
            strategy: Strategy::default(),
            shard_group: None,
            secondary_shards: None,
            textbook_all_reduce: false,
            reduce_bucket: None,
            gather_bucket: None,
            converted_gradients: None,
            copied_gradients: false,
            algorithm: Algorithm::default(),
            overlap: true,
            overlaps_update: true,
            gathering: Gathering::default(),
            persistence_threshold: 0,
            model_persistence_threshold: u64::MAX,
            placement: Placement::default(),
            config,
        }
    }

    /// Returns the job at `stage`, without the settings that only its own stage has.
    pub fn with_stage(&self, stage: Stage) -> Self {
        if stage == self.stage {
            return self.clone();
        }
        let mut placement = self.placement;
        if !stage.sharded().parameters {
            placement.parameters = Place::Device;
        }
        Job {
            stage,
            strategy: Strategy::default(),
            shard_group: None,
            secondary_shards: None,
            textbook_all_reduce: self.textbook_all_reduce && stage == Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE,
            placement,
            ..self.clone()
        }
    }

    /// Returns the number of ranks that share one copy of the model states.
    pub fn sharing_ranks(&self) -> usize {
        self.shard_group.filter(|_| self.strategy.forms_groups()).unwrap_or(self.world_size)
    }

    /// Returns the bytes per gradient of the converted or copied gradients that collectives take;
    /// `None` if they take the gradients themselves.
    pub(crate) fn wire_copy_bytes(&self) -> Option<u64> {
        self.converted_gradients.or(self.copied_gradients.then_some(self.recipe.gradients))
    }

    /// Returns the number of slices that a unit is cut into.
    pub fn shards(&self) -> u64 {
        self.stage.shard_count(self.sharing_ranks())
    }
}
