//! Every row of the table, at least once.

use super::*;
use crate::keys::{Auto, Fate, Kind};
use crate::node::Node;
use crate::table::{AUTOCAST_DTYPE, GRADIENTS, SENT, SENT_IN_16_BITS, find, is_accelerates, keys};

/// Returns a file with one value, and the keys that switch its section on.
fn file_with(path: &str, value: Node) -> File {
    let mut root = Node::Section(Vec::new());
    let ends_nowhere = value.as_text().is_some_and(|name| name.eq_ignore_ascii_case("WarmupLR"));
    let word = value.as_text().unwrap_or_default().to_ascii_lowercase();
    let is_fp16 = ["fp16", "float16", "half", "torch.float16"].contains(&&*word);
    root.insert(path, value);
    if let Some((section, name)) = path.rsplit_once('.') {
        let device = Node::text(if name == "nvme_path" { "nvme" } else { "cpu" });
        for (switch, on) in [("enabled", Node::Flag(true)), ("device", device)] {
            if name != switch && find(&format!("{section}.{switch}")).is_some() {
                root.insert(&format!("{section}.{switch}"), on);
            }
        }
    }
    if path.ends_with("_16bit_weights_on_model_save") {
        root.insert("bf16.enabled", Node::Flag(true));
    }
    if path.starts_with("aio.") {
        root.insert("zero_optimization.offload_optimizer.device", Node::text("nvme"));
    }
    if path.starts_with("torch_autocast.") {
        let others = [(AUTOCAST_DTYPE, Node::text("bfloat16")), (SENT_IN_16_BITS, Node::List(vec![]))];
        others.into_iter().filter(|(other, _)| *other != path).for_each(|(other, on)| root.insert(other, on));
    }
    if path.starts_with("scheduler.params") {
        let name = if path.ends_with("_ratio") { "WarmupCosineLR" } else { "WarmupDecayLR" };
        root.insert("scheduler.type", Node::text(name));
    }
    if path.starts_with("optimizer.params") {
        root.insert("optimizer.type", Node::text("Adam"));
    }
    if [SENT, GRADIENTS].contains(&path) && is_fp16 {
        root.insert("fp16.enabled", Node::Flag(true));
    }
    if path == "optimizer.params.adam_w_mode" {
        root.insert("optimizer.params.weight_decay", Node::Number(0.1));
    }
    if path == "fsdp_config.fsdp_reshard_after_forward" {
        root.insert("fsdp_config.fsdp_version", Node::Number(2.0));
    }
    if path == "scheduler.params.total_num_steps" {
        root.insert("scheduler.params.warmup_num_steps", Node::Number(0.0));
    } else if path.starts_with("scheduler.") && !ends_nowhere {
        root.insert("scheduler.params.total_num_steps", Node::Number(1e6));
    }
    File::json(&serde_json::to_string(&root).unwrap())
}

/// Returns values that the kind allows and that differ from most defaults.
fn good(kind: Kind) -> Vec<Node> {
    match kind {
        Kind::Flag => vec![Node::Flag(true), Node::Flag(false), Node::text("yes")],
        Kind::Count(low, high) => [low, low + 3, 12, 1000, 1 << 53]
            .into_iter()
            .filter(|n| (low..=high).contains(n))
            .map(|n| Node::Number(n as f64))
            .collect(),
        Kind::Number(low, high) => {
            vec![Node::Number(low), Node::Number((low + 0.5).min(high)), Node::Number(high)]
        }
        Kind::Positive(high) => vec![Node::Number(1e-9), Node::Number(high)],
        Kind::Pair => vec![Node::List(vec![Node::Number(0.5), Node::Number(0.75)])],
        Kind::Choice(words) => words.iter().map(|word| Node::text(&word.to_uppercase())).collect(),
        Kind::Text => vec![Node::text("words")],
        Kind::Any => vec![Node::Section(vec![("enabled".into(), Node::Flag(true))]), Node::Number(1.0)],
    }
}

/// Returns values that the kind does not allow.
fn bad(kind: Kind) -> Vec<Node> {
    let mut values = vec![Node::Section(vec![]), Node::List(vec![Node::Null])];
    values.extend(match kind {
        Kind::Flag => vec![Node::Number(2.0), Node::text("maybe")],
        Kind::Count(low, _) => {
            vec![Node::Number(low as f64 - 1.0), Node::Number(1.5), Node::Number(1e300), Node::text("5e8")]
        }
        Kind::Number(low, _) => vec![Node::Number(low - 1.0), Node::Flag(true)],
        Kind::Positive(_) => vec![Node::Number(0.0), Node::Number(-1.0), Node::Number(1e300)],
        Kind::Pair => vec![Node::Number(0.9), Node::List(vec![Node::Number(0.9), Node::Number(1.0)])],
        Kind::Choice(_) => vec![Node::text("neither of them"), Node::Number(77.0)],
        Kind::Text => vec![Node::Number(1.0)],
        Kind::Any => return vec![],
    });
    values
}

#[test]
fn paths_are_unique_and_none_is_a_section_of_another() {
    let paths: Vec<&str> = keys().map(|key| key.path).collect();
    for (i, path) in paths.iter().enumerate() {
        assert!(!paths[..i].contains(path), "{path}");
        assert!(!paths.iter().any(|other| other.starts_with(&format!("{path}."))), "{path}");
    }
}

#[test]
fn the_flags_of_rows_exist() {
    let command = <Cli as clap::CommandFactory>::command();
    for key in keys() {
        let Fate::Honoured { flag: Some(id), .. } = key.fate else { continue };
        let flag = command.get_arguments().find(|argument| argument.get_id() == id).unwrap();
        assert_eq!(key.flag(), flag.get_long().map(|name| format!("--{name}")));
    }
}

#[test]
fn every_default_is_a_value_of_its_kind() {
    for key in keys().filter(|key| !key.default.is_empty() && !key.default.starts_with("true in")) {
        let default = hjson::parse(key.default).unwrap();
        assert!(
            default == Node::Null || key.check(&default).is_ok() || key.path.contains("model_persistence"),
            "{}",
            key.path
        );
    }
}

#[test]
fn every_row_takes_its_values_and_does_what_it_says() {
    for key in keys().filter(|key| key.path != table::CONFIG_FILE) {
        for value in good(key.kind) {
            let flags = if key.path == "num_processes" { "" } else { "--gpus 1" };
            let outcome = file_with(key.path, value.clone()).config(flags);
            let config = match outcome {
                Ok(config) => config,
                // Some counts are above the flags' limits: the error says which.
                Err(failure) => {
                    let message = failure.to_string();
                    assert!(message.contains("--") || message.contains("config"), "{}: {message}", key.path);
                    continue;
                }
            };
            let missing = config.findings.missing.iter().any(|missing| missing.path == key.path);
            match key.fate {
                Fate::NotYet { harmless } => assert_eq!(missing, !harmless(&value), "{} {value}", key.path),
                _ => assert!(!missing, "{} {value}", key.path),
            }
            let missed = matches!(key.fate, Fate::Accepted { harmless } if !harmless(&value))
                // The key needs another key next to it.
                || key.name() == "fsdp_min_num_params" && value.as_number() > Some(0.0);
            assert_eq!(config.findings.warnings.len(), usize::from(missed), "{:?}", config.findings.warnings);
        }
    }
}

#[test]
fn every_honoured_row_reads_back_what_it_was_given() {
    for key in keys() {
        let Fate::Honoured { get, .. } = key.fate else { continue };
        for value in good(key.kind) {
            let Ok(config) = file_with(key.path, value.clone()).config("--gpus 1") else { continue };
            let stage = config.findings.stage.unwrap_or(Stage::Zero3);
            let back = get(&Resolved { config: &config, stage });
            let same = match (&back, &value) {
                (None, Node::Number(0.0)) if key.name() == "sub_group_size" => true,
                (None, _) => {
                    let ours = ["num_processes", "use_cpu", table::CONFIG_FILE].contains(&key.path);
                    ours || ["fsdp_config.", "parallelism_config."]
                        .iter()
                        .any(|section| key.path.starts_with(section))
                }
                // Without an element type of its own, the key has that of the parameters.
                (Some(Node::Text(back)), Node::Text(value)) if value.eq_ignore_ascii_case("none") => {
                    back == "fp32" || back == "none"
                }
                (Some(Node::Text(back)), Node::Text(value)) => {
                    // Several words mean the same.
                    let named = ["optimizer.type", AUTOCAST_DTYPE, GRADIENTS].contains(&key.path);
                    back.eq_ignore_ascii_case(value) || named
                }
                // A bucket of 0 elements holds a tensor at a time; a piece of 0 elements is a unit.
                (back, Node::Number(0.0))
                    if key.name().ends_with("bucket_size") && key.name() != "stage3_prefetch_bucket_size" =>
                {
                    *back == Some(Node::Number(1.0))
                }
                // Sizes of groups below one rank are other words for none.
                (Some(Node::Number(a)), Node::Number(b))
                    if *b < 1.0 && key.name() == "zero_hpz_partition_size" =>
                {
                    *a == 1.0
                }
                (Some(Node::Number(a)), Node::Number(b)) if *b < 1.0 && key.name() == "mics_shard_size" => {
                    *a == -1.0
                }
                (Some(Node::Number(a)), Node::Number(b)) => (a - b).abs() <= 1e-6 * b.abs(),
                (Some(back), value) => back == value || back.as_flag() == value.as_flag(),
            };
            assert!(same, "{} {value} came back as {back:?}", key.path);
        }
    }
}

#[test]
fn every_row_refuses_other_values_and_names_itself() {
    for key in keys() {
        for value in bad(key.kind) {
            let error = file_with(key.path, value.clone()).config("").unwrap_err().to_string();
            assert!(
                error.contains(key.path) && error.contains(&key.expected()),
                "{} {value}: {error}",
                key.path
            );
        }
        let auto = file_with(key.path, Node::text("auto")).config("--gpus 1");
        match key.auto {
            Auto::LeftOut | Auto::No
                if (key.auto == Auto::No || is_accelerates(key))
                    && !matches!(key.kind, Kind::Any | Kind::Text) =>
            {
                assert!(auto.unwrap_err().to_string().contains(key.path), "{}", key.path)
            }
            _ if is_accelerates(key) => {}
            _ => assert_eq!(auto.unwrap().findings.check(Stage::Zero3), Ok(()), "{}", key.path),
        }
    }
}

#[test]
fn sections_that_are_switched_off_ask_for_nothing() {
    for text in [
        r#"{"fp16": {"enabled": false, "loss_scale": 128}, "zero_optimization": {"offload_optimizer": {"device": "none", "ratio": 0.5}}}"#,
        r#"{"fp16": {"loss_scale_window": 5}, "zero_optimization": {"offload_param": {"max_in_cpu": 5}}}"#,
        r#"{"zero_optimization": {"stage": 2, "stage3_prefetch_bucket_size": 5e8, "offload_param": {"device": "cpu"}}}"#,
        r#"{"zero_optimization": {"stage": 1, "zero_hpz_partition_size": 2, "mics_shard_size": 3}}"#,
        r#"{"fp16": null, "elasticity": {"enabled": false}}"#,
        r#"{"fp16": {"enabled": false, "fp16_master_weights_and_grads": true}}"#,
    ] {
        let config = json(text, "").unwrap();
        assert_eq!(config.findings.check(config.findings.stage.unwrap_or(Stage::Zero3)), Ok(()), "{text}");
    }
}

#[test]
fn how_many_there_are_of_each_fate() {
    let count = |label: &str| keys().filter(|key| key.label() == label).count();
    let counts = ["honoured", "accepted", "not yet", "another name"].map(|label| (label, count(label)));
    insta::assert_snapshot!(counts.map(|(label, count)| format!("{label}: {count}")).join("\n"));
}
