//! Times of steps: their table, what they refuse, and the recording of a predicted run.

use events::Recording;
use planner::cli::run;
use serde_json::Value;
use std::process::Command;
use timeline::{A100, Calibration, Cluster, H100};

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
    let flags = "--checkpoint-activations block --offload-activations cpu --offload-optimizer disk";
    let offloaded = output(&format!("--model llama2-7b --gpus 4 --on h100 {flags}"));
    insta::assert_snapshot!("times_offloaded", lines_from(&offloaded, "step on"));
}

/// The rates of places are a machine's: a faster CPU makes a step shorter that waits for it.
#[test]
fn rates_of_places_change_what_waits_for_them() {
    let zero3 = |more: &str| {
        let flags = "--model llama2-7b --gpus 4 --on a100 --json";
        let json: Value = serde_json::from_str(&output(&format!("{flags} {more}"))).unwrap();
        (json["times"]["stages"][3].clone(), json["times"]["offload"].clone())
    };
    let part = |stage: &Value, name: &str| stage[name].as_f64().unwrap();
    let (slow, rates) = zero3("--offload-optimizer cpu --cpu-rate 28");
    assert_eq!((part(&rates, "cpu_updates"), &rates["disk_read"]), (1e9, &Value::Null));
    let (fast, _) = zero3("--offload-optimizer cpu --cpu-rate 280");
    assert!((part(&slow, "cpu") / part(&fast, "cpu") - 10.0).abs() < 1e-9, "{slow} {fast}");
    assert!(part(&slow, "exposed_offload") > 9.0 * part(&fast, "exposed_offload"), "{slow} {fast}");
    let (disk, rates) = zero3("--offload-optimizer disk --disk-read 7 --disk-write 1");
    assert_eq!([part(&rates, "disk_read"), part(&rates, "disk_write")], [7e9, 1e9]);
    assert!(part(&disk, "step") > 80.0, "12 bytes per parameter leave at 1 GB/s: {disk}");
    let (none, rates) = zero3("");
    assert_eq!((part(&none, "exposed_offload"), rates), (0.0, Value::Null));
}

#[test]
fn published_runs() {
    insta::assert_snapshot!("published", output("--published"));
    let runs: Value = serde_json::from_str(&output("--published --json")).unwrap();
    let runs = runs.as_array().unwrap();
    assert_eq!(runs.len(), 298);
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
        "--model tiny --on h100 --cpu-rate 0",
        "--model tiny --disk-read 3",
        "--model tiny --on h100 --cpu-rate 3",
        "--model tiny --on h100 --offload-optimizer cpu --disk-write 3",
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

/// The defaults in the help text are those of the machines.
#[test]
fn help_names_the_usual_rates() {
    let help = output("--help").split_whitespace().collect::<Vec<_>>().join(" ");
    let [old, new] = [A100, H100].map(|gpu| {
        let machine = Cluster::of(gpu, 1).machine;
        let cpu = Calibration::ALL_RUNS.of(&gpu).cpu * machine.memory_rate;
        [cpu, machine.disk_read, machine.disk_write].map(|rate| rate / 1e9)
    });
    let cpu = format!("{:.1} per GPU with PCIe 4.0, {:.1} with PCIe 5.0]", old[0], new[0]);
    let disks = [1, 2].map(|at| format!("{} per GPU with PCIe 4.0, {} with PCIe 5.0]", old[at], new[at]));
    for text in [cpu, disks.concat()] {
        assert!(text.split_inclusive(']').all(|text| help.contains(text)), "{text} in {help}");
    }
}
