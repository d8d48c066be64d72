//! What ZeRO-3 may do otherwise, a file for each question that the stage asks. Variants compose.
//!
//! * [`residency`]: does a gathered unit stay? FSDP's shard-grad-op, DeepSpeed's reuse distance and
//!   persistent parameters;
//! * [`source`]: which shard does a pass gather from, and among which ranks? ZeRO++'s hpZ, whose
//!   second copy is [`secondary`]; ZeRO-Infinity's shards beyond the device, which [`fetch`]
//!   brings;
//! * [`prefetch`]: when does a pass gather ahead? FSDP's backward prefetch.
//!
//! Hybrid sharding has no file here. Its groups are smaller ([`sharding::Mesh`]), and its gradient
//! shards are summed over replicas by what follows a reduction ([`sharding::GradientShards`]).

mod context;
pub mod fetch;
pub mod prefetch;
pub mod residency;
pub mod secondary;
pub mod source;

use planner::Strategy;

pub use context::ShardContext;
pub use prefetch::Prefetch;
pub use residency::{Residency, Stay};
pub use source::ShardSource;

/// FSDP's strategies that this stage trains with, the default first.
pub const STRATEGIES: &[Strategy] = &[Strategy::FullShard, Strategy::ShardGradOp, Strategy::HybridShard];
