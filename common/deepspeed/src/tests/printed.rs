//! `--print-config` and every flag: it is printed, named as left out, or outside DeepSpeed's
//! configuration.

use super::*;
use clap::CommandFactory;

/// A file that leaves its schedule to the flags.
const SCHEDULED: &str = r#"{"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}}"#;

/// Flags that a key stands for, each with a value other than its default, and the arguments given
/// with and without it.
const PRINTED: [(&str, &str); 38] = [
    ("--gpus 2", ""),
    ("--batch-size 3", ""),
    ("--grad-accum 2", ""),
    ("--lr 0.5", ""),
    ("--weight-decay 0.5", ""),
    ("--max-grad-norm 5", ""),
    ("--precision fp16", ""),
    ("--grad-dtype bf16", ""),
    ("--reduce-dtype bf16", ""),
    ("--grad-sync all-reduce", ""),
    ("--save-dtype bf16", "--precision bf16 --save out"),
    ("--secondary-shard-size 2", ""),
    ("--reduce-bucket 7", ""),
    ("--allgather-bucket 7", ""),
    ("--no-overlap", ""),
    ("--contiguous-gradients false", ""),
    ("--prefetch-bucket 7", ""),
    ("--max-live-parameters 7", ""),
    ("--max-reuse-distance 7", ""),
    ("--reshard-last", ""),
    ("--param-persistence-threshold 7", ""),
    ("--model-persistence-threshold 7", ""),
    ("--sub-group-size 7", ""),
    ("--offload-optimizer cpu", ""),
    ("--offload-parameters disk", ""),
    ("--offload-activations cpu", "--checkpoint-activations block"),
    ("--offload-dir some/where", "--offload-optimizer disk"),
    ("--offload-buffers 5", "--offload-optimizer cpu"),
    ("--loss-scale 8", "--precision fp16"),
    ("--initial-scale-power 5", "--precision fp16"),
    ("--loss-scale-window 7", "--precision fp16"),
    ("--hysteresis 7", "--precision fp16"),
    ("--consecutive-hysteresis true", "--precision fp16"),
    ("--min-loss-scale 2", "--precision fp16"),
    ("--steps 7", SCHEDULED),
    ("--warmup-steps 9", SCHEDULED),
    ("--strategy hybrid-shard --shard-group-size 2", ""),
    ("--shard-group-size 2", "--strategy hybrid-shard --shard-group-size 4"),
];

/// Flags that change how a run trains and have no key in DeepSpeed.
const LEFT_OUT: [&str; 11] = [
    "--wrap module",
    "--strategy shard-grad-op",
    "--checkpoint-activations block",
    "--limit-all-gathers 3",
    "--backward-prefetch post",
    "--link pcie4",
    "--offload-activations disk --checkpoint-activations block",
    "--host-link pcie4 --offload-optimizer cpu",
    "--disk-link 1us,1GB/s --offload-optimizer disk",
    "--hysteresis 5 --reduce-dtype fp16",
    "--loss-scale-window 77 --grad-dtype fp16",
];

/// Flags about the machine, the data, watching and output files: DeepSpeed's configuration has no
/// keys for them.
const ELSEWHERE: [&str; 44] = [
    "model",
    "device",
    "threads",
    "tf32",
    "collectives",
    "algorithm",
    "rank",
    "master",
    "timeout",
    "init-from",
    "seed",
    "data",
    "data-format",
    "tokenizer",
    "mask-prompt",
    "shuffle-seed",
    "val-fraction",
    "eval-every",
    "eval-batches",
    "seq-len",
    "device-memory",
    "host-memory",
    "ignore-plan",
    "headless",
    "view",
    "paused",
    "pace",
    "contributions",
    "colors",
    "ascii",
    "save",
    "max-shard-size",
    "checkpoint",
    "checkpoint-every",
    "checkpoint-wait",
    "checkpoint-keep",
    "checkpoint-timeout",
    "resume-with",
    "report",
    "metrics",
    "log-every",
    "record",
    "log-dir",
    "inject",
];

/// Flags that are about printing itself.
const PRINTING: [&str; 4] = ["config", "print-config", "help", "version"];

/// Returns the printed configuration and the settings named as left out, with `flags` or with a
/// file and flags.
fn outcome(given: &str, flags: &str) -> (String, Vec<String>) {
    let config = match given {
        SCHEDULED => json(given, flags).unwrap(),
        given => plain(&format!("{given} {flags}")),
    };
    (print(&config, Stage::Zero3).unwrap(), left_out(&config, Stage::Zero3))
}

#[test]
fn flags_are_printed_or_named_as_left_out() {
    for (flags, given) in PRINTED {
        assert_ne!(outcome(given, flags).0, outcome(given, "").0, "{flags} is not printed");
    }
    for flags in LEFT_OUT {
        let flag = flags.split(' ').next().unwrap();
        let said = outcome("", flags).1.into_iter().filter(|warning| warning.starts_with(flag)).count();
        assert_eq!(said, 1, "{flags} is not named");
    }
    assert_eq!(outcome("", "").1.len(), 1, "the schedule alone");
    let activations = "--offload-activations disk --checkpoint-activations block";
    for (flags, named) in [(activations, false), (&format!("{activations} --offload-dir some/where"), true)] {
        let unsaid = outcome("", flags).1;
        assert_eq!(unsaid.iter().any(|warning| warning.starts_with("--offload-dir")), named, "{unsaid:?}");
    }
}

#[test]
fn no_flag_is_forgotten() {
    let flags = PRINTED.iter().map(|(flags, _)| flags).chain(&LEFT_OUT);
    let named: Vec<&str> = flags.map(|flags| flags.split(' ').next().unwrap()).collect();
    for argument in Cli::command().get_arguments() {
        let Some(long) = argument.get_long() else { continue };
        let elsewhere = ELSEWHERE.iter().chain(&PRINTING).filter(|name| **name == long).count();
        let here = usize::from(named.contains(&format!("--{long}").as_str()));
        assert_eq!(elsewhere + here, 1, "--{long}: is it printed, left out, or not DeepSpeed's affair?");
    }
}

/// At stage 2 a file's keys about sharded parameters count for nothing, as in DeepSpeed.
#[test]
fn flags_are_named_as_left_out_where_their_keys_would_be_ignored() {
    let saved = "stage3_gather_16bit_weights_on_model_save\": true";
    for (flag, others, key) in [
        ("--sub-group-size 77", "", "sub_group_size\": 77"),
        ("--save-dtype bf16", "--precision bf16 --save out", saved),
    ] {
        let config = plain(&format!("{flag} {others}"));
        for stage in [Stage::Zero2, Stage::Zero3] {
            let is_printed = print(&config, stage).unwrap().contains(key);
            let warnings = left_out(&config, stage);
            let is_named = warnings.iter().any(|warning| warning.starts_with(&format!("{flag} ")));
            assert_eq!((is_printed, is_named), (stage == Stage::Zero3, stage == Stage::Zero2), "{flag}");
        }
    }
}
