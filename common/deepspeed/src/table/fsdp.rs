//! Accelerate's `fsdp_config`: FSDP's own words.

use super::{count, empty, flag, from};
use crate::keys::Kind::{Any, Choice, Flag, Number};
use crate::keys::{Key, Kind};
use crate::node::Node;
use events::Place;
use model::{Checkpointing, Wrap};
use prediction::{BackwardPrefetch, Strategy};
use settings::cli::TrainArgs;

const STRATEGY: Kind =
    Choice(&["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "1", "2", "3", "4"]);
const RESHARD: Kind = Choice(&["true", "false", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"]);
const POLICY: Kind = Choice(&["TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP"]);
const STATE_DICT: Kind =
    Choice(&["FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT", "1", "2", "3"]);
const STATE_DICTS: &str = "full is what `--save` writes, sharded what `--checkpoint` does; a local one fits one number of ranks alone";
const PREFETCH: Kind = Choice(&["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"]);
/// Parameters of a unit unless `fsdp_min_num_params` says otherwise: PyTorch's own default.
const UNIT: u64 = 100_000_000;

/// Makes the row of a key in `fsdp_config`.
macro_rules! fsdp {
    ($name:literal, $($rest:expr),+) => { Key::new(concat!("fsdp_config.fsdp_", $name), $($rest),+) };
}

pub(super) static KEYS: &[Key] = &[
    fsdp!("sharding_strategy", STRATEGY, "\"FULL_SHARD\"", "how far FSDP shards; hybrid within a machine")
        .sets(Some("strategy"), shard),
    fsdp!("reshard_after_forward", RESHARD, "true", "false keeps parameters until backward is done")
        .sets(Some("strategy"), shard),
    fsdp!("auto_wrap_policy", POLICY, "", "a unit per block, per number of parameters, or one for all").sets(
        Some("wrap"),
        |args, value| {
            args.sharding.wrap = match word(value).as_str() {
                "SIZE_BASED_WRAP" => Wrap::Size(UNIT),
                "NO_WRAP" => Wrap::Model,
                _ => Wrap::Block,
            }
        },
    ),
    fsdp!("min_num_params", from(0), "1e8", "parameters of a unit, with SIZE_BASED_WRAP; 0 for one unit")
        .sets(None, |args, value| {
            if matches!(args.sharding.wrap, Wrap::Size(_)) && args.given.typed("wrap").is_none() {
                // In that case Accelerate wraps nothing.
                args.sharding.wrap = match count(value) {
                    0 => Wrap::Model,
                    size => Wrap::Size(size as u64),
                };
            }
        }),
    fsdp!("transformer_layer_cls_to_wrap", Any, "null", "blocks are the model's own"),
    fsdp!("backward_prefetch", PREFETCH, "\"BACKWARD_PRE\"", "when backward gathers ahead").sets(
        Some("backward_prefetch"),
        |args, value| {
            args.communication.backward_prefetch = Some(match word(value).as_str() {
                "BACKWARD_POST" => BackwardPrefetch::Post,
                "NO_PREFETCH" => BackwardPrefetch::None,
                _ => BackwardPrefetch::Pre,
            });
        },
    ),
    fsdp!("ignored_modules", Any, "null", "modules that stay whole on every rank").not_yet(empty),
    fsdp!("forward_prefetch", Flag, "false", "forward gathers ahead anyway"),
    fsdp!("activation_checkpointing", Flag, "false", "true keeps each block's input alone").sets(
        Some("checkpoint_activations"),
        |args, value| {
            if flag(value) {
                args.memory.checkpoint_activations = Checkpointing::Block;
            }
        },
    ),
    fsdp!(
        "activation_checkpointing_offload",
        Flag,
        "false",
        "true keeps each block's input alone, in main memory"
    )
    .sets(Some("offload_activations"), super::rest::checkpoint_in_main_memory),
    fsdp!(
        "offload_params",
        Flag,
        "false",
        "true (CPUOffload; in version 2 CPUOffloadPolicy): parameters and optimizer in main memory"
    )
    .sets(None, offload),
    fsdp!("state_dict_type", STATE_DICT, "\"FULL_STATE_DICT\"", STATE_DICTS)
        .not_yet(|value| !matches!(word(value).as_str(), "LOCAL_STATE_DICT" | "2")),
    fsdp!("cpu_ram_efficient_loading", Flag, "true", "weights are always made shard by shard"),
    fsdp!("sync_module_states", Flag, "true", "ranks always compare their initial weights"),
    fsdp!("use_orig_params", Flag, "true", "how PyTorch shows parameters"),
    fsdp!("version", Number(1.0, 2.0), "1", "an implementation of PyTorch's"),
];

/// Returns the strategy's word, number or truth value, in capitals.
fn word(value: &Node) -> String {
    value.word().unwrap_or_default().to_ascii_uppercase()
}

/// Offloads the states that FSDP offloads, unless a flag says otherwise.
fn offload(args: &mut TrainArgs, value: &Node) {
    if !flag(value) {
        return;
    }
    let typed = |id| args.given.typed(id).is_some();
    if !typed("offload_parameters") {
        args.offload.parameters = Place::Host;
    }
    if !typed("offload_optimizer") {
        args.offload.optimizer = Place::Host;
    }
}

/// Sets the strategy. Hybrid sharding is within a machine unless a flag says otherwise. Processes
/// whose launcher gives no count per machine count as one each; they need `--shard-group-size`.
fn shard(args: &mut TrainArgs, value: &Node) {
    let strategy = match word(value).as_str() {
        "SHARD_GRAD_OP" | "2" | "FALSE" => Strategy::ShardGradOp,
        "NO_SHARD" | "3" => Strategy::NoShard,
        "HYBRID_SHARD" | "4" => Strategy::HybridShard,
        _ => Strategy::FullShard,
    };
    args.sharding.strategy = Some(strategy);
    if args.given.typed("shard_group_size").is_none() {
        let machine = Some(args.on_this_machine.unwrap_or(args.gpus));
        args.sharding.shard_group_size =
            machine.filter(|&here| strategy == Strategy::HybridShard && (here > 1 || args.gpus == 1));
    }
}
