//! Tests from a file and flags to a configuration, and back.

mod accepted;
mod doubts;
mod examples;
mod fsdp;
mod hostile;
mod offload;
mod precision;
mod printed;
mod rows;

use super::*;
use settings::Communication;
use settings::Failure;
use settings::cli::Cli;
use settings::findings::Findings;
use settings::lr_schedule::{Climb, LrSchedule, WarmUp};

use checkpoint::ElementType;
use clap::Parser;
use sharding::MeshShape;
use std::path::PathBuf;
use tempfile::TempDir;

/// A folder with one configuration file.
pub(super) struct File {
    folder: TempDir,
    path: PathBuf,
}

impl File {
    pub(super) fn new(name: &str, text: &str) -> File {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        File { folder, path }
    }

    pub(super) fn json(text: &str) -> File {
        File::new("ds.json", text)
    }

    /// Returns the configuration of the file and `flags`, with the folder's name removed from every
    /// message.
    pub(super) fn config(&self, flags: &str) -> Result<Config> {
        let path = self.path.display().to_string();
        let words = ["zero", "--config", &path].into_iter().chain(flags.split_whitespace());
        let args = Cli::try_parse_from(words).unwrap().train;
        let mut config = configure(args).map_err(|e| Failure::usage(self.anonymous(&e.to_string())))?;
        config.findings.file = self.anonymous(&config.findings.file);
        config.findings.warnings.iter_mut().for_each(|warning| *warning = self.anonymous(warning));
        Ok(config)
    }

    fn anonymous(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.folder.path().display()), "")
    }
}

/// Returns the configuration of a JSON file with `flags`.
pub(super) fn json(text: &str, flags: &str) -> Result<Config> {
    File::json(text).config(flags)
}

/// Returns the configuration of flags without a file.
pub(super) fn plain(flags: &str) -> Config {
    let words = ["zero"].into_iter().chain(flags.split_whitespace());
    configure(Cli::try_parse_from(words).unwrap().train).unwrap()
}

const FULL: &str = r#"{
  "train_batch_size": 48, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3,
  "gradient_clipping": 0.5,
  "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.01}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-5, "warmup_max_lr": 1e-3,
    "warmup_num_steps": 5, "warmup_type": "linear", "total_num_steps": 50}},
  "zero_optimization": {"stage": 1, "reduce_bucket_size": 5e4, "reduce_scatter": false}
}"#;

const COMMUNICATION: &str = r#"{"zero_optimization": {"stage": 3, "overlap_comm": false,
  "contiguous_gradients": false, "reduce_bucket_size": 7, "allgather_bucket_size": 8, "sub_group_size": 9,
  "stage3_prefetch_bucket_size": 0, "stage3_param_persistence_threshold": 11,
  "stage3_model_persistence_threshold": 12, "stage3_max_live_parameters": 13, "stage3_max_reuse_distance": 14}}"#;

const OFFLOAD: &str = r#"{"zero_optimization": {"stage": 3,
  "offload_optimizer": {"device": "nvme", "nvme_path": "some/where", "buffer_count": 5},
  "offload_param": {"device": "cpu", "buffer_count": 5}}}"#;

#[test]
fn every_key_about_communication_says_what_a_flag_says() {
    let flags = "--no-overlap --contiguous-gradients false --reduce-bucket 7 --allgather-bucket 8 --sub-group-size 9 \
        --param-persistence-threshold 11 --model-persistence-threshold 12 --max-live-parameters 13 \
        --max-reuse-distance 14";
    let from_file = json(COMMUNICATION, "").unwrap();
    assert_eq!(from_file.findings.check(Stage::Zero3), Ok(()));
    let from_flags = Communication { prefetch_bucket: Some(0), ..plain(flags).communication };
    assert_eq!(from_file.communication, from_flags);
}

#[test]
fn a_file_sets_what_its_keys_say() {
    let config = json(FULL, "--gpus 4").unwrap();
    assert_eq!((config.batch_size, config.micro_batches), (4, 3));
    assert_eq!((config.max_grad_norm, config.weight_decay), (0.5, 0.01));
    assert_eq!((config.betas, config.eps), ((0.8, 0.99), 1e-6));
    assert_eq!(
        (config.communication.reduce_bucket, config.grad_sync),
        (Some(50_000), settings::GradSync::AllReduce)
    );
    let warmup = WarmUp { steps: 5, climb: Climb::Linear };
    assert_eq!(config.lr_schedule, LrSchedule::WarmupDecayLr { low: 1e-5, high: 1e-3, warmup, total: 50 });
    assert_eq!(config.findings.warnings, [""; 0]);
    let update = config.update(2, 2, None);
    assert_eq!((update.betas, update.eps), ((0.8, 0.99), 1e-6));
    assert_eq!((update.max_grad_norm, update.weight_decay), (0.5, 0.01));
    assert!((update.lr - (1e-5 + (1e-3 - 1e-5) / 5.0)).abs() < 1e-15);
}

#[test]
fn keys_left_out_leave_flags_and_preset_alone() {
    let (plain, empty) = (plain("--lr 0.01 --model small"), json("{}", "--lr 0.01 --model small").unwrap());
    let own_settings = "betas 0.9 and 0.95, weight decay 0.1, a warm-up of 30 steps, then a cosine".into();
    let nothing = Findings { file: "ds.json".into(), own_settings, ..Findings::default() };
    assert_eq!(empty.findings, nothing);
    assert_eq!(format!("{:?}", Config { findings: Findings::default(), ..empty }), format!("{plain:?}"));
}

#[test]
fn flags_override_the_file_and_each_contradiction_is_named() {
    let flags = "--gpus 2 --grad-accum 8 --lr 0.02 --weight-decay 0.01 --max-grad-norm 2 --reduce-bucket 7";
    let config = json(FULL, flags).unwrap();
    assert_eq!((config.micro_batches, config.lr_schedule.peak(), config.max_grad_norm), (8, 0.02, 2.0));
    assert_eq!(config.communication.reduce_bucket, Some(7));
    insta::assert_snapshot!(config.findings.warnings.join("\n"));
}

#[test]
fn the_same_value_twice_is_no_contradiction() {
    let config = json(FULL, "--gpus 4 --grad-accum 3 --batch-size 4 --lr 1e-3 --warmup-steps 5").unwrap();
    assert_eq!(config.findings.warnings, [""; 0]);
}

#[test]
fn groups_of_neighbours_come_from_the_file() {
    let mics = r#"{"zero_optimization": {"stage": 3, "mics_shard_size": 2}}"#;
    let config = json(mics, "--gpus 4").unwrap();
    assert_eq!(
        (config.strategy, config.mesh),
        (Some(prediction::Strategy::HybridShard), MeshShape::Hybrid(2))
    );
    assert_eq!(config.findings.warnings, [""; 0]);
    assert_eq!(json(mics, "--gpus 4 --shard-group-size 4").unwrap().mesh, MeshShape::Hybrid(4));
    let overridden = json(mics, "--gpus 4 --strategy shard-grad-op").unwrap();
    assert_eq!(overridden.mesh, MeshShape::World);
    assert!(overridden.findings.warnings[0].contains("mics_shard_size 2 and --strategy shard-grad-op"));

    let hpz = r#"{"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}}"#;
    assert_eq!(json(hpz, "--gpus 4").unwrap().mesh, MeshShape::Secondary(2));
    let overridden = json(hpz, "--gpus 4 --secondary-shard-size 4").unwrap();
    assert_eq!((overridden.mesh, overridden.findings.warnings.len()), (MeshShape::Secondary(4), 1));
    let error = json(hpz, "--gpus 3").unwrap_err().to_string();
    assert!(error.contains("choose 1 or 3"), "{error}");
    let idle = r#"{"zero_optimization": {"stage": 2, "zero_hpz_partition_size": 2, "mics_shard_size": 2}}"#;
    assert_eq!(json(idle, "--gpus 4").unwrap().mesh, MeshShape::World);
    for text in [mics, hpz] {
        let config = json(text, "--gpus 4").unwrap();
        let printed = print(&config, Stage::Zero3).unwrap();
        assert_eq!(json(&printed, "--gpus 4").unwrap().mesh, config.mesh, "{printed}");
    }
}

#[test]
fn gathered_16_bit_weights_are_of_the_type_that_is_trained() {
    let saved = |key: &str, precision: &str, flags: &str| {
        let zero = format!(r#""zero_optimization": {{"stage": 3, "{key}": true}}"#);
        let config = json(&format!("{{{precision}{zero}}}"), flags).unwrap();
        (config.save_format.element_type, config.findings.warnings)
    };
    let (bf16, fp16) = (r#""bf16": {"enabled": true}, "#, r#""fp16": {"enabled": true}, "#);
    let silently = |element_type| (Some(element_type), vec![]);
    for key in [
        "stage3_gather_16bit_weights_on_model_save",
        "gather_16bit_weights_on_model_save",
        "stage3_gather_fp16_weights_on_model_save",
    ] {
        assert_eq!(saved(key, bf16, ""), silently(ElementType::Bf16), "{key}");
        assert_eq!(saved(key, fp16, ""), silently(ElementType::F16), "{key}");
        assert_eq!(saved(key, "", ""), silently(ElementType::F32), "{key}");
        assert_eq!(saved(key, bf16, "--save out --save-dtype f16"), silently(ElementType::F16), "{key}");
        let (element_type, warnings) = saved(key, bf16, "--save out --save-dtype f32");
        assert_eq!((element_type, warnings.len()), (Some(ElementType::F32), 1), "{warnings:?}");
        assert!(warnings[0].contains("--save-dtype f32"), "{warnings:?}");
    }
    let yaml = "deepspeed_config:\n  zero3_save_16bit_model: true\n  zero_stage: 3\nmixed_precision: bf16\n";
    let config = File::new("accelerate.yaml", yaml).config("").unwrap();
    assert_eq!(config.save_format.element_type, Some(ElementType::Bf16));
    let unasked = json(&format!(r#"{{{bf16}"zero_optimization": {{"stage": 3}}}}"#), "").unwrap();
    assert_eq!(unasked.save_format.element_type, None);
}

#[test]
fn two_keys_of_one_file_can_contradict_each_other() {
    let text = r#"{"optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1}}}"#;
    let config = json(text, "").unwrap();
    assert_eq!(config.lr_schedule.peak(), 0.1);
    insta::assert_snapshot!(config.findings.warnings.join("\n"));
}

#[test]
fn auto_is_what_transformers_would_put_there() {
    let text = r#"{"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "fp16": {"enabled": "auto", "loss_scale": 0},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
            "warmup_num_steps": "auto", "total_num_steps": "auto"}},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}}"#;
    let flags = "--steps 200 --lr 0.004 --grad-accum 2";
    let (config, plain) = (json(text, flags).unwrap(), plain(flags));
    let width = plain.model.width;
    assert_eq!(config.communication.reduce_bucket, Some(width * width));
    assert_eq!((config.batch_size, config.micro_batches), (plain.batch_size, 2));
    assert_eq!(
        (config.betas, config.eps, config.max_grad_norm),
        (plain.betas, plain.eps, plain.max_grad_norm)
    );
    let warmup = WarmUp { steps: 20, climb: Climb::Log };
    assert_eq!(config.lr_schedule, LrSchedule::WarmupDecayLr { low: 0.0, high: 0.004, warmup, total: 200 });
    assert_eq!(config.findings.check(Stage::Zero2), Ok(()));
}

#[test]
fn parameters_of_nothing_named_are_not_read() {
    let text = r#"{"optimizer": {"params": {"lr": 0.5}}, "scheduler": {"params": {"warmup_max_lr": 0.5, "warmup_num_steps": 2}}}"#;
    let config = json(text, "").unwrap();
    assert_eq!(config.lr_schedule, plain("").lr_schedule);
    assert_eq!(
        config.findings.warnings,
        [
            "ds.json: optimizer.params.lr changes nothing: DeepSpeed reads optimizer.params only together with optimizer.type",
            "ds.json: scheduler.params.warmup_max_lr, scheduler.params.warmup_num_steps change nothing: \
             DeepSpeed reads scheduler.params only together with scheduler.type"
        ]
    );
}

#[test]
fn a_scheduler_takes_its_own_parameters_alone() {
    for (name, parameter) in [
        ("WarmupLR", "total_num_steps"),
        ("WarmupDecayLR", "cos_min_ratio"),
        ("warmupcosinelr", "warmup_max_lr"),
        ("WarmupCosineLR", "warmup_min_lr"),
    ] {
        let text = format!(r#"{{"scheduler": {{"type": "{name}", "params": {{"{parameter}": 1}}}}}}"#);
        let error = json(&text, "").unwrap_err().to_string();
        assert!(
            error.contains(&format!("scheduler.params.{parameter} is no parameter of Warmup")),
            "{error}"
        );
    }
}

/// A named scheduler has DeepSpeed's defaults, unless a flag says otherwise.
#[test]
fn a_scheduler_that_is_named_has_deepspeeds_defaults() {
    let warmup = WarmUp { steps: 1000, climb: Climb::Log };
    let text = r#"{"optimizer": {"type": "AdamW", "params": {"lr": 0.5}}, "scheduler": {"type": "NAME", "params": {"total_num_steps": 2000}}}"#;
    let decay = |flags| json(&text.replace("NAME", "WarmupDecayLR"), flags).unwrap().lr_schedule;
    assert_eq!(decay(""), LrSchedule::WarmupDecayLr { low: 0.0, high: 0.001, warmup, total: 2000 });
    let alone = r#"{"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 2000}}}"#;
    let own = json(alone, "").unwrap().findings.own_settings;
    assert!(own.contains("weight decay") && !own.contains("learning rate"), "{own}");
    let warmup = WarmUp { steps: 7, ..warmup };
    let typed = LrSchedule::WarmupDecayLr { low: 0.0, high: 0.25, warmup, total: 2000 };
    assert_eq!(decay("--lr 0.25 --warmup-steps 7"), typed);
    let cosine = json(&text.replace("NAME", "WarmupCosineLR"), "").unwrap().lr_schedule;
    assert_eq!((cosine.peak(), cosine.warm_up().unwrap().steps), (0.5, 1000));
}

#[test]
fn a_decay_that_ends_before_the_warm_up_is_named() {
    let text = |total| {
        format!(
            r#"{{"scheduler": {{"type": "WarmupCosineLR", "params": {{"warmup_num_steps": 9, "total_num_steps": {total}}}}}}}"#
        )
    };
    let short = json(&text(9), "").unwrap();
    assert!(short.findings.warnings[0].contains("total_num_steps 9"), "{:?}", short.findings.warnings);
    assert_eq!(json(&text(10), "").unwrap().findings.warnings, [""; 0]);
}

#[test]
fn clipping_at_0_never_clips() {
    let config = json(r#"{"gradient_clipping": 0}"#, "").unwrap();
    let update = config.update(0, 0, None);
    assert_eq!(update.clip(1e30), update.clip(0.0), "nothing is clipped");
    let flagged = json(r#"{"gradient_clipping": 0}"#, "--max-grad-norm 3").unwrap();
    assert_eq!((flagged.max_grad_norm, flagged.findings.warnings.len()), (3.0, 1));
}

#[test]
fn another_stage_names_the_crate_to_run() {
    for (number, stage) in Stage::ALL.into_iter().enumerate() {
        let config = json(&format!(r#"{{"zero_optimization": {{"stage": {number}}}}}"#), "").unwrap();
        assert_eq!(config.findings.check(stage), Ok(()));
        for other in Stage::ALL.into_iter().filter(|&other| other != stage) {
            let error = config.findings.check(other).unwrap_err().to_string();
            let run = format!("cargo run -p {} -- --config ds.json", stage.package());
            assert!(error.contains(&run) && error.contains(other.label()), "{error}");
        }
    }
}

#[test]
fn what_is_printed_reads_back_as_the_same_settings() {
    let schedulers = [
        r#""type": "WarmupLR", "params": {"warmup_num_steps": 9}"#,
        r#""type": "WarmupCosineLR", "params": {"total_num_steps": 70, "warmup_num_steps": 9, "warmup_min_ratio": 0.1, "cos_min_ratio": 0.2}"#,
        "",
    ];
    let others = schedulers.map(|keys| format!(r#"{{"scheduler": {{{keys}}}, "gradient_clipping": 0}}"#));
    for text in others.iter().map(String::as_str).chain([FULL, COMMUNICATION, OFFLOAD, "{}"]) {
        let flags = "--gpus 4 --steps 60";
        let first = json(text, flags).unwrap();
        let stage = first.findings.stage.unwrap_or(Stage::Zero1);
        let printed = print(&first, stage).unwrap();
        let second = json(&printed, flags).unwrap();
        assert_eq!(second.findings.warnings, [""; 0]);
        assert_eq!(print(&second, stage).unwrap(), printed);
        let forget = |config| Config { findings: Findings::default(), ..config };
        assert_eq!(format!("{:?}", forget(first)), format!("{:?}", forget(second)), "{printed}");
    }
}

#[test]
fn the_settings_in_deepspeeds_words() {
    insta::assert_snapshot!(print(&json(FULL, "--gpus 4").unwrap(), Stage::Zero1).unwrap());
    assert!(print(&json(FULL, "--gpus 4").unwrap(), Stage::Zero3).is_err());
}

#[test]
fn the_books_table() {
    insta::assert_snapshot!(markdown());
}

#[test]
fn momentum_and_variance_may_go_uncorrected() {
    let text = |corrected| {
        format!(r#"{{"optimizer": {{"type": "Adam", "params": {{"bias_correction": {corrected}}}}}}}"#)
    };
    for corrected in [true, false] {
        let config = json(&text(corrected), "").unwrap();
        assert_eq!(config.update(0, 0, None).bias_correction, corrected);
        assert_eq!(config.findings.check(Stage::Zero1), Ok(()));
    }
}
