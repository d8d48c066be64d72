//! What is to be predicted: a model, a stage, and the numbers of a run.

use crate::recipe::Recipe;
use crate::strategy::Strategy;
use clap::ValueEnum;
use events::header::Sharded;
use model::{Checkpointing, Layout, ModelConfig, Wrap};
use serde::Serialize;
use thiserror::Error;

/// Who holds what: how far the model states are sharded over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Everything replicated.
    #[value(name = Stage::Ddp.package(), alias = "ddp", help = None)]
    Ddp,
    /// Optimizer states sharded (P_os in the paper).
    #[value(help = None)]
    Zero1,
    /// Optimizer states and gradients sharded (P_os+g).
    #[value(help = None)]
    Zero2,
    /// Everything sharded (P_os+g+p).
    #[value(help = None)]
    Zero3,
}

impl Stage {
    /// Every stage, from everything replicated to everything sharded.
    pub const ALL: [Stage; 4] = [Stage::Ddp, Stage::Zero1, Stage::Zero2, Stage::Zero3];

    /// The stage in which nothing is sharded, to compare with.
    pub const REPLICATED: Stage = Stage::Ddp;

    /// The name that tables and reports use.
    pub const fn label(self) -> &'static str {
        match self {
            Stage::Ddp => "DDP",
            Stage::Zero1 => "ZeRO-1",
            Stage::Zero2 => "ZeRO-2",
            Stage::Zero3 => "ZeRO-3",
        }
    }

    /// The package that trains this way.
    pub const fn package(self) -> &'static str {
        match self {
            Stage::Ddp => "zero0-ddp",
            Stage::Zero1 => "zero1",
            Stage::Zero2 => "zero2",
            Stage::Zero3 => "zero3",
        }
    }

    /// Which model states a rank keeps only its shard of, between steps.
    pub fn sharded(self) -> Sharded {
        Sharded {
            optimizer: self >= Stage::Zero1,
            gradients: self >= Stage::Zero2,
            parameters: self >= Stage::Zero3,
        }
    }

    /// Number of slices that a unit is cut into, for `world_size` ranks: one where nothing is sharded.
    pub fn shard_count(self, world_size: usize) -> u64 {
        if self == Stage::Ddp { 1 } else { world_size as u64 }
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.label())
    }
}

/// When backward gathers a unit's parameters ahead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum BackwardPrefetch {
    /// Before the backward of the unit in use, which hides it: both are held meanwhile.
    #[default]
    Pre,
    /// Once the unit in use is freed: less is held, less is hidden.
    Post,
    /// When it is needed.
    None,
}

/// How parameters that are sharded are gathered. Elements include padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gathering {
    /// Units are gathered ahead of the one in use while those ahead of it have fewer elements than this: 1 is one unit.
    pub ahead: u64,
    /// The same in backward, and when.
    pub backward: BackwardPrefetch,
    /// No unit is gathered ahead beyond so many all-gathers in flight.
    pub in_flight: usize,
    /// No unit is gathered ahead, or kept, beyond so many elements gathered at once.
    pub live: u64,
    /// Units that backward needs again before this many elements of others are kept after forward: 1 keeps what backward
    /// begins with, 0 keeps nothing.
    pub reuse: u64,
}

impl Default for Gathering {
    /// One unit ahead, at most two all-gathers in flight; what backward begins with is kept.
    fn default() -> Self {
        Gathering { ahead: 1, backward: BackwardPrefetch::Pre, in_flight: 2, live: u64::MAX, reuse: 1 }
    }
}

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
    /// Bytes per gradient on the wire, if gradients are converted or copied on their way there.
    pub converted_gradients: Option<u64>,
    /// Whether ranks compute while collectives are on their way.
    pub overlap: bool,
    /// ZeRO-3: how parameters are gathered.
    pub gathering: Gathering,
    /// ZeRO-3: tensors of at most so many elements stay whole, those of a unit in one of their own.
    pub whole_tensor: u64,
    /// ZeRO-3: elements that may stay whole in all.
    pub whole_tensors: u64,
}

/// Most ranks, and most micro-batches per step, that a prediction counts one by one.
pub const MOST: usize = 1 << 16;

/// A job that no run can have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidJob {
    /// A count is zero.
    #[error("{name} is 0: give at least 1")]
    Zero {
        /// The count's name.
        name: &'static str,
    },
    /// A count is beyond what is predicted one by one.
    #[error("{name} is {count}: give at most {MOST}")]
    TooMany {
        /// The count's name.
        name: &'static str,
        /// The count.
        count: usize,
    },
    /// Groups of neighbours that do not cover the ranks evenly.
    #[error("the {name} size is {size}: give a size that divides the {ranks} ranks")]
    Group {
        /// Whose size.
        name: &'static str,
        /// The size.
        size: usize,
        /// The ranks.
        ranks: usize,
    },
    /// Bytes do not fit into 64 bits.
    #[error(
        "a rank's memory or traffic could reach {exabytes} EB, beyond any machine: give a smaller batch or model"
    )]
    TooLarge {
        /// Rough size, in units of 10¹⁸ bytes.
        exabytes: u64,
    },
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

    /// Number of slices that a unit is cut into.
    pub fn shards(&self) -> u64 {
        self.stage.shard_count(self.sharing_ranks())
    }

    /// Refuses groups of neighbours of which the world is no multiple.
    fn check_groups(&self) -> Result<(), InvalidJob> {
        let groups = [("shard group", self.shard_group), ("secondary shard", self.secondary_shards)];
        for (name, size) in groups {
            let size = size.unwrap_or(1);
            if size == 0 || !self.world_size.is_multiple_of(size) {
                return Err(InvalidJob::Group { name, size, ranks: self.world_size });
            }
        }
        Ok(())
    }

    /// Refuses what no run can have.
    ///
    /// # Errors
    /// [`InvalidJob::Zero`] if a count is 0, [`InvalidJob::TooMany`] if there are more ranks or micro-batches than
    /// [`MOST`], [`InvalidJob::Group`] if groups do not divide the world, [`InvalidJob::TooLarge`] if bytes could overflow.
    pub fn validate(&self) -> Result<(), InvalidJob> {
        let c = &self.config;
        check_counts(self.world_size, self.micro_batches)?;
        self.check_groups()?;
        let counts = [
            ("batch size", self.batch_size),
            ("tokens per sequence", self.tokens),
            ("vocabulary", c.vocabulary),
            ("width", c.width),
            ("heads", c.heads),
            ("heads of keys and values", c.kv_heads),
            ("elements per head", c.head_dim),
            ("feed-forward width", c.feed_forward),
        ];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(InvalidJob::Zero { name });
        }
        let bytes = self.rough_bytes();
        if bytes < EXABYTE {
            Ok(())
        } else {
            Err(InvalidJob::TooLarge { exabytes: (bytes / EXABYTE) as u64 })
        }
    }

    /// An upper estimate, in floating point, of any byte count in the prediction.
    fn rough_bytes(&self) -> f64 {
        let c = &self.config;
        let layers = c.layers as f64 + 1.0;
        let rows = self.batch_size as f64 * self.tokens as f64;
        let heads = (c.heads + 2 * c.kv_heads) as f64 * c.head_dim as f64;
        let row = 8.0 * (c.width as f64 + heads + 3.0 * c.feed_forward as f64 + c.heads as f64);
        let block = c.width as f64 * (2.0 * heads + 3.0 * c.feed_forward as f64 + 2.0);
        let parameters = layers * block + 2.0 * c.vocabulary as f64 * c.width as f64;
        let activations = rows * (layers * row + 8.0 * c.vocabulary as f64);
        let traffic = (parameters + layers * self.world_size as f64) * self.micro_batches as f64;
        32.0 * (activations + traffic)
    }

    /// The model's tensors and layers.
    pub(crate) fn layout(&self) -> Layout {
        Layout::new(&self.config)
    }
}

/// Refuses numbers of ranks and micro-batches that are 0 or beyond [`MOST`].
pub(crate) fn check_counts(world_size: usize, micro_batches: usize) -> Result<(), InvalidJob> {
    for (name, count) in [("world size", world_size), ("micro-batches per step", micro_batches)] {
        match count {
            0 => return Err(InvalidJob::Zero { name }),
            1..=MOST => {}
            _ => return Err(InvalidJob::TooMany { name, count }),
        }
    }
    Ok(())
}

const EXABYTE: f64 = 1e18;
