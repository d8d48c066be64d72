//! Times of steps: their table, what they refuse, and the recording of a predicted run.

use events::Recording;
use planner::cli::run;
use serde_json::Value;
use std::process::Command;

fn output(arguments: &str) -> String {
    let arguments = std::iter::once("planner").chain(arguments.split_whitespace());
    run(arguments).unwrap_or_else(|error| format!("{error}(exit status {})\n", error.exit_code()))
}

/// Returns the lines of `text` from the one that begins with `from`.
fn lines_from(text: &str, from: &str) -> String {
    text.lines().skip_while(|line| !line.starts_with(from)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn times_of_every_stage() {
    let text = output("--model llama3-8b --gpus 64 --seq-len 8192 --on h100");
    insta::assert_snapshot!("times_llama3-8b", lines_from(&text, "step on"));
    let slow = output("--model tiny --gpus 2 --checkpoint-activations block --on rtx4090 --software eager");
    insta::assert_snapshot!("times_tiny", lines_from(&slow, "step on"));
}

#[test]
fn published_runs() {
    insta::assert_snapshot!("published", output("--published"));
    let runs: Value = serde_json::from_str(&output("--published --json")).unwrap();
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.len(), 292);
    let model = |run: &Value| run["model"] == "llama3-70b" && run["gpus"] == 64;
    assert_eq!(runs.iter().find(|run| model(run)).unwrap()["measured"], 24.7492);
}

/// A slower network makes only waiting longer.
#[test]
fn json_has_the_parts() {
    let stages = |more: &str| {
        let json = output(&format!("--model llama2-7b --gpus 16 --on a100 --json {more}"));
        serde_json::from_str::<Value>(&json).unwrap()["times"]["stages"].as_array().unwrap().clone()
    };
    let (usual, slow) = (stages(""), stages("--network 10"));
    for (usual, slow) in usual.iter().zip(&slow) {
        let part = |stage: &Value, name: &str| stage[name].as_f64().unwrap();
        assert!(part(usual, "communication") >= part(usual, "exposed_communication"), "{usual}");
        let tokens = part(usual, "tokens_per_second") * part(usual, "step");
        assert!((tokens / (16.0 * 4096.0) - 1.0).abs() < 1e-9, "{usual}");
        for same in ["compute", "update"] {
            assert_eq!(part(usual, same), part(slow, same));
        }
        assert!(part(slow, "exposed_communication") > part(usual, "exposed_communication"), "{slow}");
        assert!(part(slow, "model_flops_utilization") < part(usual, "model_flops_utilization"));
    }
}

#[test]
fn what_cannot_be_timed_is_refused() {
    let cases = [
        "--params 7e9 --on h100",
        "--model tiny --on h100 --offload-optimizer cpu",
        "--model tiny --on h100 --recipe fp32",
        "--model tiny --on h1000",
        "--model tiny --on h100 --network 0",
        "--model tiny --network 100",
        "--model tiny --record /tmp/run",
        "--model tiny --on h100 --steps 3",
        "--model tiny --gpus 2048 --on h100 --record /tmp/run",
        "--model llama3-8b --gpus 64 --grad-accum 1000 --on h100 --record /tmp/run",
        "--published --on h100",
        "--claims --on h100",
    ];
    let said: String = cases.map(|case| format!("$ planner {case}\n{}\n", output(case))).concat();
    insta::assert_snapshot!("refused_times", said);
}

#[test]
fn a_predicted_run_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.events");
    let planner = |record: &str| {
        let flags = [
            "--model", "tiny", "--gpus", "4", "--on", "a100", "--stage", "zero2", "--steps", "3", "--record",
        ];
        Command::new(env!("CARGO_BIN_EXE_planner")).args(flags).arg(record).output().unwrap()
    };
    let done = planner(file.to_str().unwrap());
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(said.contains(&format!("To watch it: cargo run -p viz -- replay {}", file.display())), "{said}");
    let recording = Recording::open(&file).unwrap();
    assert!(recording.is_complete());
    let header = recording.header();
    assert_eq!((header.stage.as_str(), header.world_size, header.steps), ("ZeRO-2 predicted", 4, 3));
    assert_eq!(header.device, "A100, simulated link (300 GB/s)");
    assert_eq!(header.capacity, Some(80_000_000_000));
    assert_eq!(recording.final_state().unwrap().history.steps.len(), 3);

    let failed = planner(dir.path().join("nowhere/run").to_str().unwrap());
    let said = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert!(said.starts_with("error: cannot create the recording") && said.contains("nowhere"), "{said}");
    assert_eq!(failed.stdout, b"");
}
