//! Sweep settings that contradict a configuration file.

use super::*;
use clap::Parser;

/// Returns the arguments of `compare` with `text` as its `--config`, and the folder of that file.
fn arguments(text: &str, flags: &str) -> (Arguments, tempfile::TempDir) {
    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        arguments: Arguments,
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(if text.starts_with('{') { "ds.json" } else { "accelerate.yaml" });
    std::fs::write(&file, text).unwrap();
    let line = format!("x --config {} --device cpu {flags}", file.display());
    (Program::parse_from(line.split_whitespace()).arguments, folder)
}

#[test]
fn the_batch_per_rank_stays_whatever_the_file_fixes() {
    for (text, gpus, batch, micro_batches) in [
        (r#"{"train_batch_size": 8}"#, 4, 2, 1),
        (r#"{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}"#, 4, 2, 2),
        (r#"{"train_batch_size": 8, "gradient_accumulation_steps": 2}"#, 4, 1, 2),
        (r#"{"train_batch_size": 6, "train_micro_batch_size_per_gpu": 3}"#, 2, 3, 1),
        ("distributed_type: MULTI_GPU\nnum_processes: 2\n", 2, 8, 1),
    ] {
        let (arguments, _folder) = arguments(text, "--model tiny");
        let base = settings(&arguments.train).unwrap();
        let of = |config: &Config| (config.world_size, config.batch_size, config.micro_batches);
        assert_eq!(of(&base), (gpus, batch, micro_batches), "{text}");
        let others = ranks(&arguments, base.world_size);
        assert_eq!(others.last(), Some(&(gpus / 2)), "{text}: its halves");
        for other in others.into_iter().chain([3, 8]) {
            let config = on_ranks(other, &arguments, &base).unwrap();
            assert_eq!(of(&config), (other, batch, micro_batches), "{text}");
            assert_eq!(config.findings, base.findings, "{text}");
        }
    }
}

#[test]
fn the_buckets_are_those_of_the_sweep_whatever_the_file_fixes() {
    let keys = r#"{"zero_optimization": {"reduce_bucket_size": 100000, "allgather_bucket_size": 100000}}"#;
    let (arguments, _folder) = arguments(keys, "--model tiny");
    let base = settings(&arguments.train).unwrap();
    let config = with_buckets(5000, &arguments, &base).unwrap();
    let buckets = &config.communication;
    assert_eq!((buckets.reduce_bucket, buckets.allgather_bucket), (Some(5000), Some(5000)));
}

#[test]
fn a_repeated_stage_is_refused() {
    let (arguments, _folder) = arguments("{}", "--stages zero1,ddp,zero1");
    let error = run(&arguments).unwrap_err().to_string();
    assert!(error.contains("ZeRO-1 twice"), "{error}");
}
