//! Every flag refuses bad values on one screen, and names the allowed values.

use super::*;

/// A flag, a value that it refuses, and the allowed values that the error names.
const BAD: [(&str, &str, &str); 85] = [
    ("gpus", "0", "from 1 to 1024"),
    ("device", "tpu", "auto, cpu, cuda"),
    ("threads", "0", "from 1 to 1024"),
    ("collectives", "gloo", "auto, local, tcp, mpi, nccl"),
    ("algorithm", "tree", "direct, ring"),
    ("link", "wifi", "nvlink, pcie4, ethernet25g, or LATENCY,BANDWIDTH"),
    ("rank", "-1", "from 0 to 1023"),
    ("rank", "1024", "from 0 to 1023"),
    ("timeout", "0", "from 1 to 4294967295"),
    ("model", "enormous", "tiny"),
    ("init-from", "no/such/directory", "no/such/directory"),
    ("seed", "-1", "from 0 to 18446744073709551615"),
    ("data-format", "utf8", "bytes, u16, u32"),
    ("shuffle-seed", "x", "from 0 to 18446744073709551615"),
    ("val-fraction", "0.95", "from 0 to 0.9"),
    ("val-fraction", "nan", "from 0 to 0.9"),
    ("eval-every", "0", "from 1 to 4294967295"),
    ("eval-batches", "0", "from 1 to 4294967295"),
    ("steps", "0", "from 1 to 4294967295"),
    ("log-every", "0", "from 1 to 4294967295"),
    ("batch-size", "0", "from 1 to 4294967295"),
    ("seq-len", "1.5", "from 1 to 4294967295"),
    ("grad-accum", "0", "from 1 to 65536"),
    ("grad-accum", "65537", "from 1 to 65536"),
    ("lr", "0", "above 0"),
    ("lr", "inf", "above 0"),
    ("warmup-steps", "-1", "from 0 to 4294967295"),
    ("weight-decay", "1", "from 0 up to, not including, 1"),
    ("weight-decay", "-0.1", "from 0 up to, not including, 1"),
    ("max-grad-norm", "0", "above 0"),
    ("precision", "fp8", "fp32, bf16, fp16, autocast"),
    ("grad-dtype", "int8", "fp32, bf16, fp16"),
    ("reduce-dtype", "float", "fp32, bf16, fp16"),
    ("loss-scale", "-1", "from 2^-64 up to 2^64"),
    ("initial-scale-power", "65", "from 0 to 64"),
    ("loss-scale-window", "0", "from 1 to 4294967295"),
    ("hysteresis", "0", "from 1 to 4294967295"),
    ("consecutive-hysteresis", "maybe", "true, false"),
    ("min-loss-scale", "0", "from 2^-64 up to 2^64"),
    ("strategy", "some-shard", "full-shard, shard-grad-op, no-shard, hybrid-shard"),
    ("shard-group-size", "0", "from 1 to 1024"),
    ("secondary-shard-size", "0", "from 1 to 1024"),
    ("wrap", "layer", "model, block, module, parameter, or size:N"),
    ("wrap", "size:0", "at least 1"),
    ("grad-sync", "gossip", "reduce-scatter, all-reduce"),
    ("device-memory", "lots", "512MiB"),
    ("device-memory", "0", "at least one byte"),
    ("host-memory", "lots", "512MiB"),
    ("offload-optimizer", "nvme", "none, cpu, disk"),
    ("offload-parameters", "gpu", "none, cpu, disk"),
    ("offload-activations", "true", "none, cpu, disk"),
    ("offload-buffers", "0", "from 1 to 16"),
    ("offload-buffers", "17", "from 1 to 16"),
    ("host-link", "pcie2", "pcie3, pcie4, pcie5, nvlink-c2c, or LATENCY,BANDWIDTH"),
    ("disk-link", "nvme", "write LATENCY,BANDWIDTH such as 100us,3GB/s"),
    ("disk-link", "100us,3GB", "such as 3GB/s"),
    ("checkpoint-activations", "all", "none, block, selective"),
    ("reduce-bucket", "0", "from 1 to 2^53"),
    ("allgather-bucket", "1.5", "from 1 to 2^53"),
    ("contiguous-gradients", "maybe", "true, false"),
    ("prefetch-bucket", "-1", "from 0 to 2^53"),
    ("backward-prefetch", "early", "pre, post, none"),
    ("limit-all-gathers", "65", "from 1 to 64"),
    ("max-live-parameters", "lots", "from 0 to 2^53"),
    ("max-reuse-distance", "1e17", "from 0 to 2^53"),
    ("param-persistence-threshold", "0.1", "from 0 to 2^53"),
    ("model-persistence-threshold", "x", "from 0 to 2^53"),
    ("sub-group-size", "0", "from 1 to 2^53"),
    ("view", "movie", "overview, shards, memory, streams, traffic, compare"),
    ("pace", "0", "from 0.001 to 1"),
    ("pace", "2", "from 0.001 to 1"),
    ("save-dtype", "fp8", "choose one of f32, bf16, f16"),
    ("max-shard-size", "lots", "512MiB"),
    ("max-shard-size", "0", "at least one byte"),
    ("checkpoint-every", "0", "from 1 to 4294967295"),
    ("checkpoint-keep", "0", "from 1 to 4294967295"),
    ("checkpoint-timeout", "0", "from 1 to 4294967295"),
    ("resume-with", "luck", "lr, steps, data, order, precision, batch, clipping"),
    ("colors", "many", "truecolor, 256, 16, never"),
    ("inject", "flood@rank1", "panic, error, stall"),
    ("inject", "panic@rank4", "0 to 3"),
    ("tokens", "-1", "from 0 to 4294967295"),
    ("temperature", "-0.5", "from 0"),
    ("temperature", "inf", "from 0"),
    ("samples", "0", "from 1 to 4294967295"),
];

/// Flags whose values are names of files to write or read, or of a machine: they are checked when
/// they are used.
const NAMES: [&str; 14] = [
    "config",
    "offload-dir",
    "data",
    "tokenizer",
    "save",
    "checkpoint",
    "report",
    "metrics",
    "record",
    "log-dir",
    "master",
    "from",
    "to",
    "prompt",
];

/// Returns the flags that take values, of the program and its subcommands.
fn flags() -> Vec<(&'static str, String)> {
    let mut command = shell::command::<Cli>();
    command.build();
    let of = |name: &'static str, command: &clap::Command| -> Vec<(&'static str, String)> {
        let valued = command.get_arguments().filter(|argument| argument.get_action().takes_values());
        valued.filter_map(|argument| Some((name, argument.get_long()?.to_string()))).collect()
    };
    let inner = ["generate", "export", "explain", "doctor"]
        .map(|name| of(name, command.find_subcommand(name).unwrap()));
    inner.concat().into_iter().chain(of("", &command)).collect()
}

/// Returns the text that the program prints if `flag` is `value`.
fn error(subcommand: &str, flag: &str, value: &str) -> String {
    let flag = format!("--{flag}");
    let words = ["zero", subcommand, &flag, value].into_iter().filter(|word| !word.is_empty());
    match shell::try_parse_from::<Cli>(words) {
        Err(error) => error.to_string(),
        Ok(cli) => crate::config::Config::new(cli.train).unwrap_err().to_string(),
    }
}

#[test]
fn bad_values_of_every_flag_are_refused_on_one_screen_with_what_is_allowed() {
    let mut problems = Vec::new();
    for (subcommand, flag) in flags().into_iter().filter(|(_, flag)| !NAMES.contains(&flag.as_str())) {
        let bad: Vec<_> = BAD.iter().filter(|(named, ..)| *named == flag).collect();
        if bad.is_empty() {
            problems.push(format!("no bad value of --{flag} is tried"));
        }
        for (_, value, allowed) in bad {
            let error = error(subcommand, &flag, value);
            let says = error.contains(&format!("--{flag}")) && error.contains(allowed);
            if !says || error.lines().count() > 24 {
                problems.push(format!("--{flag} {value} must name the flag and say {allowed:?}:\n{error}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_bad_value_is_of_a_flag_that_there_is() {
    let flags = flags();
    for name in BAD.iter().map(|(flag, ..)| *flag).chain(NAMES) {
        assert!(flags.iter().any(|(_, flag)| flag == name), "--{name}");
    }
}
