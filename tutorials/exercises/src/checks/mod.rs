//! The checks.

pub(crate) mod bucket;
pub(crate) mod hybrid_reduction;
pub(crate) mod loss_scaler;
pub(crate) mod partition;
pub(crate) mod planner_formula;
pub(crate) mod provenance;
pub(crate) mod ring_all_reduce;
pub(crate) mod shard_norm;
pub(crate) mod stage;
