//! What is to be predicted: a model, a stage, and the numbers of a run.

use crate::gathering::Gathering;
use crate::recipe::Recipe;
use crate::stage::Stage;
use crate::strategy::Strategy;
use crate::traffic::Algorithm;
use model::{Checkpointing, Layout, ModelConfig, Wrap};

/// A run, as far as its memory and traffic depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The model.
    pub config: ModelConfig,
    /// Who holds what.
    pub stage: Stage,
    /// Number of ranks (N).
    pub world_size: usize,
    /// Sequences per micro-batch and rank.
    pub batch_size: usize,
    /// Tokens per sequence (T).
    pub tokens: usize,
    /// Micro-batches per step and rank (M).
    pub micro_batches: usize,
    /// Bytes per parameter; activations have as many bytes per element as weights.
    pub recipe: Recipe,
    /// What blocks keep for backward, and what they compute again.
    pub checkpointing: Checkpointing,
    /// Which tensors form a unit.
    pub wrap: Wrap,
    /// ZeRO-3 only: how long full parameters stay, and among whom they are sharded.
    pub strategy: Strategy,
    /// Hybrid sharding only: neighbours that share one copy of the model states; all ranks if not given.
    pub shard_group: Option<usize>,
    /// ZeRO-3 only: neighbours that share a second copy of the parameters, for backward to gather from (hpZ).
    pub secondary_shards: Option<usize>,
    /// ZeRO-1 only: all-reduce the gradients, as textbooks draw it, in place of a reduce-scatter.
    pub textbook_all_reduce: bool,
    /// A reduction's bucket closes once it has this many elements, padding included. Default: the largest unit's.
    pub reduce_bucket: Option<u64>,
    /// The same for the all-gather of updated parameters in ZeRO-1 and ZeRO-2.
    pub gather_bucket: Option<u64>,
    /// Bytes per gradient on the wire, if gradients are converted on their way there.
    pub converted_gradients: Option<u64>,
    /// Whether gradients that are not converted are copied on their way there.
    pub copied_gradients: bool,
    /// How collectives move data: decides who sends an element more where slices are uneven.
    pub algorithm: Algorithm,
    /// Whether ranks compute while collectives are on their way.
    pub overlap: bool,
    /// ZeRO-3: how parameters are gathered.
    pub gathering: Gathering,
    /// ZeRO-3: tensors of at most so many elements stay whole, those of a unit in one of their own.
    pub whole_tensor: u64,
    /// ZeRO-3: elements that may stay whole in all.
    pub whole_tensors: u64,
}

impl Job {
    /// `config`'s model in fp32 on `world_size` ranks, with the model's own batch and sequence length, one micro-batch
    /// per step, a unit per layer, everything kept for backward, default buckets, and collectives that overlap with
    /// computing.
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
            gathering: Gathering::default(),
            whole_tensor: 0,
            whole_tensors: u64::MAX,
            config,
        }
    }

    /// The same job at another stage, without what belongs to its own stage alone.
    pub fn with_stage(&self, stage: Stage) -> Self {
        if stage == self.stage {
            return self.clone();
        }
        Job {
            stage,
            strategy: Strategy::default(),
            shard_group: None,
            secondary_shards: None,
            ..self.clone()
        }
    }

    /// Ranks that share one copy of the model states.
    pub fn sharing_ranks(&self) -> usize {
        match self.strategy {
            Strategy::HybridShard => self.shard_group.unwrap_or(self.world_size),
            _ => self.world_size,
        }
    }

    /// Bytes per gradient of what is made of gradients for the wire, if that is not gradients themselves.
    pub(crate) fn made_for_the_wire(&self) -> Option<u64> {
        self.converted_gradients.or(self.copied_gradients.then_some(self.recipe.gradients))
    }

    /// Number of slices that a unit is cut into.
    pub fn shards(&self) -> u64 {
        self.stage.shard_count(self.sharing_ranks())
    }

    /// The model's tensors and layers.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.config)
    }
}
