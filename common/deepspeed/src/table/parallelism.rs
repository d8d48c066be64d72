//! Accelerate's `parallelism_config`: how ranks form a mesh. Neighbours share the shards, so shard
//! size and replicate size are the two dimensions of hybrid sharding.

use super::number;
use crate::keys::Kind::{Any, Count, Flag};
use crate::keys::{Key, Kind};
use crate::node::Node;
use settings::cli::RANKS;

/// Ranks that share one copy of the model states.
pub(crate) const SHARD: &str = "parallelism_config.parallelism_config_dp_shard_size";
/// Copies of the model states.
pub(crate) const REPLICATE: &str = "parallelism_config.parallelism_config_dp_replicate_size";
/// Ranks that share one sequence, or one layer.
pub(crate) const SPLITS: [&str; 3] = [
    "parallelism_config.parallelism_config_tp_size",
    "parallelism_config.parallelism_config_cp_size",
    "parallelism_config.parallelism_config_sp_size",
];
const SIZE: Kind = Count(1, RANKS);
const SPLIT: &str = "matters where sequences are split";

pub(super) static KEYS: &[Key] = &[
    Key::new(SHARD, SIZE, "1", "ranks that share one copy of the model states, in ZeRO-3 only")
        .sets(None, |_, _| {}),
    Key::new(
        REPLICATE,
        SIZE,
        "1",
        "copies of the model states: hybrid sharding, or DDP if nothing is sharded",
    )
    .sets(None, |_, _| {}),
    Key::new(SPLITS[0], SIZE, "1", "tensor parallelism").not_yet(is_one),
    Key::new(SPLITS[1], SIZE, "1", "context parallelism").not_yet(is_one),
    Key::new(SPLITS[2], SIZE, "1", "sequence parallelism").not_yet(is_one),
    Key::new("parallelism_config.parallelism_config_cp_backend", Any, "\"torch\"", SPLIT),
    Key::new("parallelism_config.parallelism_config_cp_comm_strategy", Any, "\"allgather\"", SPLIT),
    Key::new("parallelism_config.parallelism_config_sp_backend", Any, "\"deepspeed\"", SPLIT),
    Key::new("parallelism_config.parallelism_config_sp_seq_length", Any, "null", SPLIT),
    Key::new("parallelism_config.parallelism_config_sp_seq_length_is_variable", Flag, "true", SPLIT),
    Key::new("parallelism_config.parallelism_config_sp_attn_implementation", Any, "null", SPLIT),
];

fn is_one(value: &Node) -> bool {
    number(value) == 1.0
}
