//! The settings that result from flags.

use super::*;
use crate::cli::Cli;
use crate::machine;
use clap::Parser;

fn config(flags: &str) -> Result<Config> {
    let words = ["zero"].into_iter().chain(flags.split_whitespace());
    Config::new(Cli::try_parse_from(words).map_err(Failure::usage)?.train)
}

#[test]
fn the_learning_rate_warms_up_and_decays_to_a_tenth() {
    let config = config("--steps 110 --warmup-steps 10 --lr 0.01").unwrap();
    for (step, expected) in [(0, 0.001), (9, 0.01), (10, 0.01), (60, 0.0055)] {
        assert!((config.lr_schedule.rate(step) - expected).abs() < 1e-12, "step {step}");
    }
    assert!(config.lr_schedule.rate(109) < 0.00101);
}

#[test]
fn senseless_flags_are_usage_failures_that_name_the_flag() {
    for (flags, named) in [
        ("--gpus 0", "--gpus"),
        ("--steps 0", "--steps"),
        ("--lr -1", "--lr"),
        ("--lr nan", "--lr"),
        ("--val-fraction 2", "--val-fraction"),
        ("--eval-every 5", "--val-fraction"),
        ("--model enormous", "enormous"),
        ("--model no/such/config.json", "no/such"),
        ("--inject panic@rank4", "rank 4"),
        ("--steps 5 --inject panic@rank1,step5", "0 to 4"),
        ("--model tiny --init-from /nowhere", "--init-from"),
        ("--loss-scale 8", "--precision fp16"),
        ("--precision bf16 --hysteresis 2", "--precision fp16"),
        ("--precision fp16 --hysteresis 0", "--hysteresis"),
        ("--precision fp16 --loss-scale-window 0", "--loss-scale-window"),
        ("--precision fp16 --loss-scale nan", "up to 2^64"),
        ("--precision fp16 --initial-scale-power 65", "0 to 64"),
        ("--precision fp16 --min-loss-scale 0", "--min-loss-scale"),
        ("--precision fp16 --initial-scale-power 2 --min-loss-scale 8", "2^2"),
        ("--precision fp16 --loss-scale 8 --hysteresis 2", "--hysteresis"),
        ("--precision fp16 --loss-scale 8 --min-loss-scale 1", "--loss-scale 8 is fixed"),
        ("--headless --pace 0.5", "'--headless'"),
        ("--eval-batches 3", "--eval-every STEPS"),
        ("--checkpoint-timeout 5", "--checkpoint DIR or --save DIR"),
        ("--max-shard-size 5GB", "--save DIR"),
        ("--data-format u16", "--data-format u16 needs --data FILE"),
        ("--data-format jsonl", "--data-format jsonl needs --data FILE"),
    ] {
        let flags_ = flags.replace("--lr -1", "--lr=-1");
        let failure = config(&flags_).unwrap_err();
        assert_eq!(failure.code(), 2, "{flags}");
        assert!(failure.to_string().contains(named), "{flags}: {failure}");
    }
}

#[test]
fn a_process_has_a_limited_number_of_threads() {
    let threads = |flags: &str| config(flags).map(|config| config.threads);
    assert_eq!(threads("--device cpu --gpus 512 --threads 8"), Ok(8));
    let failure = threads("--device cpu --gpus 512 --threads 9").unwrap_err();
    assert_eq!(failure.code(), 2);
    assert_eq!(
        failure.to_string(),
        "--threads 9 on each of 512 ranks makes 4,608 threads, and a process has at most 4,096\n\
         Give --threads 8 or less."
    );
    for gpus in [1, 3, 512, 1024] {
        assert!(threads(&format!("--device cpu --gpus {gpus}")).unwrap() * gpus <= machine::THREADS);
    }
}

#[test]
fn flags_that_change_something_are_taken() {
    for flags in [
        "--pace 0.5",
        "--eval-every 2 --val-fraction 0.1 --eval-batches 3",
        "--checkpoint-timeout 5 --save some/where",
        "--checkpoint-timeout 5 --checkpoint some/where",
        "--precision fp16 --loss-scale 0 --hysteresis 2",
        "--precision fp16 --loss-scale 8",
    ] {
        assert!(config(flags).is_ok(), "{flags}: {:?}", config(flags).err());
    }
}

/// DeepSpeed's files may have keys about dynamic scaling next to a fixed scale.
#[test]
fn a_file_may_fix_the_loss_scale_beside_keys_that_find_it() {
    let cli = Cli::try_parse_from(["zero", "--precision", "fp16"]).unwrap();
    let mut args = cli.train;
    (args.types.loss_scale, args.types.hysteresis) = (Some(128.0), Some(4));
    assert_eq!(Config::new(args).unwrap().loss_scaling.unwrap().fixed, Some(128.0));
}
