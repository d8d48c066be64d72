//! `--print-config`: the resolved settings as a DeepSpeed configuration.

use crate::Resolved;
use crate::keys::Fate;
use crate::node::Node;
use crate::table::{SENT_IN_16_BITS, keys, saves_as_trained};
use checkpoint::ElementType;
use device::{DType, Rounding};
use events::Place;
use model::{Checkpointing, Wrap};
use prediction::{Stage, Strategy};
use settings::lr_schedule::LrSchedule;
use settings::{Communication, Config, Failure, Result, labels};
use sharding::LossScaling;

/// Lists the settings that a DeepSpeed configuration of `stage` cannot express.
pub fn left_out(config: &Config, stage: Stage) -> Vec<String> {
    let schedule = "this learning-rate schedule has no name in DeepSpeed, which would keep the rate constant: `scheduler` \
                    is left out";
    let unnamed = matches!(config.lr_schedule, LrSchedule::WarmupThenCosine { .. });
    let beside = |flag| format!("{flag} has no key in DeepSpeed: give it in addition to the file");
    let schedule = unnamed.then(|| schedule.to_string());
    let size = config.communication.sub_group_size.filter(|_| !stage.sharded().parameters);
    let sub_groups = size.map(|size| {
        format!("--sub-group-size {size} has a key in DeepSpeed only where parameters are sharded: give it in addition to the file")
    });
    let saved = config.save_format.element_type.filter(|saved| *saved != ElementType::F32);
    let saved = saved.filter(|_| !(stage.sharded().parameters && saves_as_trained(config)));
    let saved = saved.map(|saved| beside(format!("--save-dtype {}", saved.label())));
    let flags = nameless(config).into_iter().map(beside);
    schedule.into_iter().chain(flags).chain(sub_groups).chain(saved).collect()
}

/// Lists the flags that change how a run trains and have no key.
fn nameless(config: &Config) -> Vec<String> {
    let (ours, usual) = (&config.communication, Communication::default());
    [
        (config.wrap != Wrap::default(), format!("--wrap {}", config.wrap)),
        (config.strategy == Some(Strategy::ShardGradOp), "--strategy shard-grad-op".into()),
        (
            config.memory.checkpoint_activations != Checkpointing::default()
                && config.offload.activations != Place::Host,
            format!("--checkpoint-activations {}", config.memory.checkpoint_activations.label()),
        ),
        (
            ours.limit_all_gathers != usual.limit_all_gathers,
            format!("--limit-all-gathers {}", ours.limit_all_gathers),
        ),
        (
            ours.backward_prefetch != usual.backward_prefetch,
            format!("--backward-prefetch {}", labels::word(&ours.backward_prefetch)),
        ),
        (config.link.is_some(), "--link".into()),
        (config.offload.activations == Place::Disk, "--offload-activations disk".into()),
        (
            config.offload.placement().uses_disk()
                && !config.offload.has_usual_directory()
                && !config.offload.placement().states_on_disk(),
            "--offload-dir".into(),
        ),
        (config.offload.host_link.is_some(), "--host-link".into()),
        (config.offload.disk_link.is_some(), "--disk-link".into()),
    ]
    .into_iter()
    .chain(loss_scaling(config))
    .filter_map(|(said, flag)| said.then_some(flag))
    .collect()
}

/// Lists the flags about the loss scale that have no key: they have keys only if parameters are
/// fp16.
fn loss_scaling(config: &Config) -> impl Iterator<Item = (bool, String)> {
    let ours = config.loss_scaling.filter(|_| config.precision.parameters != DType::F16).unwrap_or_default();
    let usual = LossScaling::default();
    let flag = |differs, flag: &str, value: f64| (differs, format!("--{flag} {value}"));
    [
        flag(ours.fixed != usual.fixed, "loss-scale", ours.fixed.unwrap_or_default()),
        flag(ours.initial_power != usual.initial_power, "initial-scale-power", ours.initial_power.into()),
        flag(ours.window != usual.window, "loss-scale-window", ours.window.into()),
        flag(ours.hysteresis != usual.hysteresis, "hysteresis", ours.hysteresis.into()),
        (ours.consecutive_hysteresis, "--consecutive-hysteresis true".into()),
        flag(ours.minimum != usual.minimum, "min-loss-scale", ours.minimum),
    ]
    .into_iter()
}

/// Writes `config`, run by `stage`, as DeepSpeed JSON. Reading it again, with the same flags for
/// settings without a key in DeepSpeed (`--gpus`, `--steps`, those of [`left_out`], the built-in
/// schedule's `--warmup-steps`), gives the same settings.
///
/// # Errors
/// A usage failure if the file asks for another stage, or for features that are not supported yet.
pub fn print(config: &Config, stage: Stage) -> Result<String> {
    config.findings.check(stage)?;
    let resolved = Resolved { config, stage };
    let mut root = Node::Section(Vec::new());
    for key in keys() {
        if let Fate::Honoured { get, .. } = key.fate
            && (stage.sharded().parameters || !key.is_about_sharded_parameters())
            && let Some(value) = get(&resolved)
        {
            root.insert(key.path, value);
        }
    }
    if config.precision.rounding == Rounding::Bf16 {
        root.insert(SENT_IN_16_BITS, Node::List(Vec::new()));
    }
    serde_json::to_string_pretty(&root).map_err(|e| Failure::run(format!("cannot print the settings: {e}")))
}
