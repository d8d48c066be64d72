//! What readers write.

#[path = "../starters/bucket.rs"]
pub mod bucket;
#[path = "../starters/hybrid_reduction.rs"]
pub mod hybrid_reduction;
#[path = "../starters/loss_scaler.rs"]
pub mod loss_scaler;
#[path = "../starters/partition.rs"]
pub mod partition;
#[path = "../starters/planner_formula.rs"]
pub mod planner_formula;
#[path = "../starters/ring_all_reduce.rs"]
pub mod ring_all_reduce;
#[path = "../starters/shard_norm.rs"]
pub mod shard_norm;
pub mod zero1_step {
    include!(concat!(env!("OUT_DIR"), "/zero1_step.rs"));
}
pub mod zero2_reduced {
    include!(concat!(env!("OUT_DIR"), "/zero2_reduced.rs"));
}
pub mod zero3_gather {
    include!(concat!(env!("OUT_DIR"), "/zero3_gather.rs"));
}
