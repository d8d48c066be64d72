//! The stages, and the table of which model states each shards.

use clap::ValueEnum;
use events::header::Sharded;
use serde::{Deserialize, Serialize};

/// How far the model states are sharded over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
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

events::labels! { Stage { Ddp => "DDP", Zero1 => "ZeRO-1", Zero2 => "ZeRO-2", Zero3 => "ZeRO-3" } }

impl Stage {
    /// The stage in which nothing is sharded: the others are compared with it.
    pub const REPLICATED: Stage = Stage::Ddp;

    /// The stages of the ZeRO paper.
    pub const SHARDED: [Stage; 3] = [Stage::Zero1, Stage::Zero2, Stage::Zero3];

    /// The first stage that shards optimizer states.
    pub const SHARDS_OPTIMIZER: Stage = Stage::Zero1;

    /// The first stage that shards gradients.
    pub const SHARDS_GRADIENTS: Stage = Stage::Zero2;

    /// The first stage that shards parameters, and so everything.
    pub const SHARDS_PARAMETERS: Stage = Stage::Zero3;

    /// The stage that holds full gradients and needs a shard of their sum: it may all-reduce them,
    /// the textbook version, in place of a reduce-scatter.
    pub const SUPPORTS_TEXTBOOK_ALL_REDUCE: Stage = Stage::Zero1;

    /// Returns the package that trains this way.
    pub const fn package(self) -> &'static str {
        match self {
            Stage::Ddp => "zero0-ddp",
            Stage::Zero1 => "zero1",
            Stage::Zero2 => "zero2",
            Stage::Zero3 => "zero3",
        }
    }

    /// Returns which model states are sharded: a rank keeps only its shard of them between steps.
    pub fn sharded(self) -> Sharded {
        Sharded {
            optimizer: self >= Stage::SHARDS_OPTIMIZER,
            gradients: self >= Stage::SHARDS_GRADIENTS,
            parameters: self >= Stage::SHARDS_PARAMETERS,
        }
    }

    /// True if gradients are all-reduced: where every rank updates everything, or in the `textbook`
    /// version of ZeRO-1.
    pub fn all_reduces(self, textbook: bool) -> bool {
        self == Stage::REPLICATED || textbook && self == Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE
    }

    /// Returns the number of slices that a unit is cut into for `world_size` ranks: one where
    /// nothing is sharded.
    pub fn shard_count(self, world_size: usize) -> u64 {
        if self == Stage::REPLICATED { 1 } else { world_size as u64 }
    }
}
