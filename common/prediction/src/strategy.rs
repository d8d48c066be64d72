//! FSDP's sharding strategies (Zhao et al., "PyTorch FSDP", 2023, section 3.2).

use crate::stage::Stage;
use serde::Serialize;

/// FSDP's name for how far it shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Everything is sharded over all ranks; full parameters are freed after forward and gathered
    /// again for backward.
    #[default]
    FullShard,
    /// Sharded as `FullShard` between steps; full parameters stay from forward until backward is
    /// done with them: as little traffic as with replicated parameters.
    ShardGradOp,
    /// Nothing is sharded.
    NoShard,
    /// Full-shard inside groups of neighbours, replicated between them. Groups exchange their sums
    /// of gradients in f32, FSDP in the type in which it reduces them.
    HybridShard,
}

events::labels! {
    Strategy {
        FullShard => "full-shard",
        ShardGradOp => "shard-grad-op",
        NoShard => "no-shard",
        HybridShard => "hybrid-shard",
    }
}

impl Strategy {
    /// Returns the stage that trains this way: all strategies but one shard parameters between
    /// steps.
    pub const fn stage(self) -> Stage {
        match self {
            Strategy::NoShard => Stage::REPLICATED,
            Strategy::FullShard | Strategy::ShardGradOp | Strategy::HybridShard => Stage::SHARDS_PARAMETERS,
        }
    }

    /// True if full parameters are freed after forward and gathered again for backward.
    pub const fn reshards_after_forward(self) -> bool {
        matches!(self, Strategy::FullShard | Strategy::HybridShard)
    }

    /// True if ranks form groups, each of which has a copy of the model states:
    /// `--shard-group-size`.
    pub const fn forms_groups(self) -> bool {
        matches!(self, Strategy::HybridShard)
    }

    /// True if backward may gather from secondary shards: `--secondary-shard-size`.
    pub const fn takes_secondary_shards(self) -> bool {
        matches!(self, Strategy::FullShard)
    }
}
