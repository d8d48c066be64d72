//! Accelerate's file: processes and devices, and its own names for some of DeepSpeed's keys.

use super::{empty, flag, from, number, off};
use crate::keys::Kind::{Any, Choice, Count, Flag, Number, Text};
use crate::keys::{Auto, Key, Kind};
use crate::node::{Node, is_none};
use settings::cli::DeviceChoice;

/// The key that names a DeepSpeed file, whose keys take precedence over those next to it.
pub(crate) const CONFIG_FILE: &str = "deepspeed_config.deepspeed_config_file";

const LAUNCH: &str = "how Accelerate starts processes";
const HOSTS: &str = "which hosts Accelerate starts processes on; torchrun, mpirun or srun start them here";
const OTHER: &str = "another device or library of Accelerate's";
const COMPILED: &str = "kernels are compiled with the program";
const DEVICE: Kind = Choice(&["none", "cpu", "nvme"]);
const PRECISION: Kind = Choice(&["no", "fp16", "bf16", "fp8"]);

/// Makes the row of a key in `deepspeed_config`.
macro_rules! plugin {
    ($name:literal, $($rest:expr),+) => { Key::new(concat!("deepspeed_config.", $name), $($rest),+) };
}

pub(super) static KEYS: &[Key] = &[
    Key::new("num_processes", Count(1, 1024), "1", "world size")
        .sets(Some("gpus"), |args, value| args.gpus = super::count(value)),
    Key::new(
        "mixed_precision",
        PRECISION,
        "\"no\"",
        "fp16 and bf16 switch those sections on; bf16 is autocast under DDP; FSDP adds up gradients in fp32",
    )
    .means(mixed_precision),
    Key::new("distributed_type", Text, "\"NO\"", "the crate decides"),
    Key::new("compute_environment", Text, "\"LOCAL_MACHINE\"", LAUNCH),
    Key::new(
        "num_machines",
        from(1),
        "1",
        "torchrun, mpirun or srun start processes on them; without, all ranks run on this machine",
    )
    .missed_unless(|value| number(value) <= 1.0),
    Key::new("machine_rank", from(0), "0", LAUNCH),
    Key::new("main_process_ip", Any, "null", LAUNCH),
    Key::new("main_process_port", Any, "null", LAUNCH),
    Key::new("main_training_function", Text, "\"main\"", LAUNCH),
    Key::new("rdzv_backend", Text, "\"static\"", LAUNCH),
    Key::new("same_network", Flag, "true", LAUNCH),
    Key::new("enable_cpu_affinity", Flag, "false", "ranks are not bound to cores").missed_unless(off),
    Key::new("gpu_ids", Any, "null", "`CUDA_VISIBLE_DEVICES` chooses GPUs").missed_unless(all_gpus),
    Key::new("commands", Any, "null", LAUNCH),
    Key::new("command_file", Any, "null", LAUNCH),
    Key::new("mpirun_config", Any, "", LAUNCH),
    Key::new("debug", Flag, "false", "collectives always compare what ranks ask for"),
    Key::new("use_cpu", Flag, "false", "true computes on the CPU, GPUs or not").sets(
        Some("device"),
        |args, value| {
            if flag(value) {
                args.device = DeviceChoice::Cpu;
            }
        },
    ),
    Key::new("downcast_bf16", Any, "\"no\"", OTHER),
    Key::new("tpu_name", Any, "null", OTHER),
    Key::new("tpu_zone", Any, "null", OTHER),
    Key::new("tpu_vm", Any, "null", OTHER),
    Key::new("tpu_env", Any, "[]", OTHER),
    Key::new("tpu_use_cluster", Flag, "false", OTHER).missed_unless(off),
    Key::new("tpu_use_sudo", Flag, "false", OTHER),
    Key::new("ipex_config", Any, "{}", OTHER),
    Key::new("dynamo_config", Any, "{}", COMPILED),
    Key::new("dynamo_backend", Any, "\"NO\"", COMPILED),
    Key::new("megatron_lm_config", Any, "{}", "Megatron-LM").not_yet(empty),
    Key::new("fp8_config", Any, "{}", "8-bit training").not_yet(empty),
    Key::new(CONFIG_FILE, Text, "null", "the DeepSpeed file to read").sets(None, |_, _| {}),
    plugin!("zero_stage", Count(0, 3), "2", "zero_optimization.stage")
        .means(|value| Some(("zero_optimization.stage", value.clone()))),
    plugin!("gradient_accumulation_steps", from(1), "1", "gradient_accumulation_steps")
        .auto(Auto::Flags)
        .means(|value| Some(("gradient_accumulation_steps", value.clone()))),
    plugin!("gradient_clipping", Number(0.0, 1e12), "null", "gradient_clipping")
        .auto(Auto::Flags)
        .means(|value| Some(("gradient_clipping", value.clone()))),
    plugin!("offload_optimizer_device", DEVICE, "\"none\"", "zero_optimization.offload_optimizer.device")
        .means(|value| Some(("zero_optimization.offload_optimizer.device", value.clone()))),
    plugin!("offload_optimizer_nvme_path", Text, "\"none\"", "zero_optimization.offload_optimizer.nvme_path")
        .means(|value| some_path("zero_optimization.offload_optimizer.nvme_path", value)),
    plugin!("offload_param_device", DEVICE, "\"none\"", "zero_optimization.offload_param.device")
        .means(|value| Some(("zero_optimization.offload_param.device", value.clone()))),
    plugin!("offload_param_nvme_path", Text, "\"none\"", "zero_optimization.offload_param.nvme_path")
        .means(|value| some_path("zero_optimization.offload_param.nvme_path", value)),
    plugin!("zero3_save_16bit_model", Flag, "false", "stage3_gather_16bit_weights_on_model_save")
        .means(|value| Some(("zero_optimization.stage3_gather_16bit_weights_on_model_save", value.clone()))),
    plugin!("zero3_init_flag", Flag, "false", "weights are always made shard by shard here"),
    plugin!("deepspeed_multinode_launcher", Text, "\"pdsh\"", LAUNCH),
    plugin!("deepspeed_hostfile", Any, "null", HOSTS).missed_unless(empty),
    plugin!("deepspeed_exclusion_filter", Any, "null", HOSTS).missed_unless(empty),
    plugin!("deepspeed_inclusion_filter", Any, "null", HOSTS).missed_unless(empty),
    plugin!("deepspeed_moe_layer_cls_names", Any, "null", "experts: the models here have none")
        .missed_unless(empty),
];

fn some_path(target: &'static str, value: &Node) -> Option<(&'static str, Node)> {
    (!is_none(value)).then(|| (target, value.clone()))
}

/// Every GPU, which ranks use anyway.
fn all_gpus(value: &Node) -> bool {
    empty(value) || value.as_text().is_some_and(|text| text.eq_ignore_ascii_case("all"))
}

/// `no` asks for nothing.
fn mixed_precision(value: &Node) -> Option<(&'static str, Node)> {
    match value.as_text().unwrap_or("").to_ascii_lowercase().as_str() {
        "fp16" => Some(("fp16.enabled", Node::Flag(true))),
        "bf16" => Some(("bf16.enabled", Node::Flag(true))),
        "fp8" => Some(("fp8_config", Node::text("fp8"))),
        _ => None,
    }
}
