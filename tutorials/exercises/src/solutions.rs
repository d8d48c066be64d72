//! One way to write it.

#[path = "../solutions/bucket.rs"]
pub mod bucket;
#[path = "../solutions/hybrid_reduction.rs"]
pub mod hybrid_reduction;
#[path = "../solutions/loss_scaler.rs"]
pub mod loss_scaler;
#[path = "../solutions/partition.rs"]
pub mod partition;
#[path = "../solutions/planner_formula.rs"]
pub mod planner_formula;
#[path = "../solutions/ring_all_reduce.rs"]
pub mod ring_all_reduce;
#[path = "../solutions/shard_norm.rs"]
pub mod shard_norm;
