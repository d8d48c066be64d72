//! Variants of ZeRO-3: one file per question that the stage asks. They compose.
//!
//! * [`residency`]: does a gathered unit stay? FSDP's shard-grad-op, DeepSpeed's reuse distance and
//!   persistent parameters;
//! * [`source`]: from which shards does a pass gather, and among which ranks? ZeRO++'s hpZ, whose
//!   second copy is in [`secondary`]; ZeRO-Infinity's shards beyond the device, which are fetched
//!   by [`fetch`];
//! * [`prefetch`]: when does a pass gather ahead? FSDP's backward prefetch.
//!
//! Hybrid sharding has no file here: its groups are smaller ([`sharding::Mesh`]), and
//! [`sharding::GradientShards`] sums its gradient shards over replicas.

mod context;
pub mod fetch;
pub mod prefetch;
pub mod residency;
pub mod secondary;
pub mod source;

use prediction::Strategy;

pub use context::ShardContext;
pub use prefetch::Prefetch;
pub use residency::{Residency, ResidencyPolicy};
pub use source::ShardSource;

/// FSDP's strategies that this stage implements, the default first.
pub const STRATEGIES: &[Strategy] = &[Strategy::FullShard, Strategy::ShardGradOp, Strategy::HybridShard];
