//! `--config` and `--print-config`, from the program's outside.

use std::process::{Command, Output};

const SHORT: &str = "--headless --gpus 2 --steps 2 --seq-len 16 --threads 1";

fn zero3(config: &str, text: &str, flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(config), text).unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_zero3"));
    program
        .current_dir(dir.path())
        .args(["--config", config])
        .args(flags.split_whitespace())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_file_trains_and_its_doubts_are_warnings_on_standard_error() {
    let yaml = "deepspeed_config:\n  zero_stage: 3\n  gradient_accumulation_steps: 2\n  allreduce_bucket_size: 5e8\n";
    let output = zero3("zero3.yaml", yaml, &format!("{SHORT} --grad-accum 1 --batch-size 1"));
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let warnings: Vec<&str> =
        errors.lines().filter(|line| line.starts_with("warning: zero3.yaml: ")).collect();
    assert_eq!(warnings.len(), 2, "{errors}");
    assert!(
        warnings[0].contains("allreduce_bucket_size") && warnings[1].contains("--grad-accum 1"),
        "{errors}"
    );
}

#[test]
fn printed_settings_are_deepspeed_json_that_trains_the_same_way() {
    let json = r#"{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 3}}}"#;
    let printed = zero3("a.json", json, &format!("{SHORT} --print-config"));
    assert!(printed.status.success() && printed.stderr.is_empty(), "{}", text(&printed.stderr));
    let printed = text(&printed.stdout);
    assert!(printed.contains("\"gradient_accumulation_steps\": 4"), "{printed}");
    let again = zero3("b.json", &printed, &format!("{SHORT} --print-config"));
    assert_eq!(text(&again.stdout), printed);
    let silent = zero3("c.json", "{}", &format!("{SHORT} --print-config"));
    assert!(text(&silent.stderr).contains("warning: this learning-rate schedule"));
}

#[test]
fn what_cannot_be_honoured_ends_the_program_before_it_starts() {
    for (json, words) in [
        (r#"{"zero_optimization": {"stage": 2}}"#, ["cargo run -p zero2", "ZeRO-2"]),
        (
            r#"{"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": 0.5}}}"#,
            ["offload_optimizer.ratio", "0.5"],
        ),
        (
            r#"{"train_batch_size": 7, "gradient_accumulation_steps": 2}"#,
            ["train_batch_size 7", "world size 2"],
        ),
    ] {
        let output = zero3("ds.json", json, SHORT);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.starts_with("error: ") && words.iter().all(|word| error.contains(word)), "{error}");
        assert!(output.stdout.is_empty());
    }
}
