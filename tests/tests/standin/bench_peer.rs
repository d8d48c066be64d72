//! `gpu-bench` and PyTorch train the same model and take turns, and `gpu-bench` measures its own
//! side even if PyTorch fails. Times are meaningless on the stand-in driver.

use prediction::Stage;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tests::peer::python;
use tests::{fixture, standin_or_return, train};

const PACKAGES: &str = "torch, safetensors";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the smallest benchmark, with `python` as its peer. Files that it leaves in the folder for
/// temporary files fail the test.
fn bench(python: &str, more: &[&str]) -> Output {
    let temporary = tempfile::tempdir().unwrap();
    let model = fixture("three-heads.json");
    let size = ["--model", &model, "--seq-len", "8", "--micro-batches", "1", "--steps", "1", "--rounds", "2"];
    let less =
        ["--stages", "ddp", "--ranks", "2", "--buffer-bytes", "4096", "--peak", "100", "--python", python];
    let command = env!("CARGO_BIN_EXE_gpu-bench");
    let mut command = Command::new(command);
    let output = command.args(size.iter().chain(&less).chain(more)).env("TMPDIR", temporary.path()).output();
    let mut left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().flatten().collect();
    // PyTorch's compiled code, kept for its next run.
    left.retain(|entry| !entry.file_name().to_string_lossy().starts_with("torchinductor"));
    assert!(left.is_empty(), "left behind: {left:?}");
    output.unwrap()
}

#[test]
fn its_model_has_our_loss_and_gradients_with_our_weights() {
    let Some(python) = python("its_model_has_our_loss_and_gradients_with_our_weights", PACKAGES) else {
        return;
    };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/peers/check_bench.py");
    let output = Command::new(python).arg(script).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_live_pytorch_takes_turns() {
    let Some(python) = python("a_live_pytorch_takes_turns", PACKAGES) else { return };
    standin_or_return!();
    let output = bench(&python, &["--peer-with", "--device cpu --no-compile", "--precision", "fp32"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}{}", text(&output.stderr));
    let ours = format!(
        "--model {} --gpus 1 --batch-size 1 --seq-len 8 --steps 1 --device cpu",
        fixture("three-heads.json")
    );
    let parameters = train(Stage::Ddp, &ours).unwrap().model.parameters;
    let peer = format!(" on CPU, {parameters} parameters: PyTorch FSDP2 over one rank, nothing compiled");
    for words in [peer.as_str(), "| PyTorch FSDP2 | 1 | "] {
        assert!(shown.contains(words), "{words:?} is missing\n{shown}");
    }
    assert!(shown.contains("| 1.00 × |"), "PyTorch to itself\n{shown}");
    assert!(!shown.contains("not measured"), "{shown}");
}

/// Writes a script that stands in for Python.
fn fake(folder: &Path, script: &str) -> String {
    let file = folder.join("python");
    std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    file.to_str().unwrap().into()
}

#[test]
fn a_peer_that_fails_costs_its_own_row_alone() {
    standin_or_return!();
    let hello = "echo no JSON; printf '\\377\\376\\n[1]\\n'; echo '{\"torch\": \"0\", \"device\": \"none\", \"parameters\": 1, \"by\": \"PyTorch FSDP2\", \"how\": \"not at all\"}'";
    let answer = "read line; echo '{\"tokens_per_second\": 5.0}'";
    let folder = tempfile::tempdir().unwrap();
    for (script, words, rows) in [
        (format!("{hello}; read line; kill -9 $$"), "PyTorch's process has ended", 0),
        (format!("{hello}; {answer}; {answer}; read line; echo '{{}}'; cat"), "PyTorch gave no speed", 1),
        (format!("{hello}; {answer}; {answer}; exec sleep 600"), "PyTorch has said nothing for 3 s", 1),
    ] {
        let output = bench(&fake(folder.path(), &script), &["--peer-timeout", "3"]);
        let (shown, error) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{script}\n{shown}{error}");
        assert!(
            error.contains("PyTorch did not take part to the end") && error.contains(words),
            "{script}\n{error}"
        );
        assert_eq!(shown.matches("| PyTorch FSDP2 |").count(), rows, "{script}\n{shown}");
        for ours in ["PyTorch is left out from here on", "| DDP | 1 | ", "| matmul | ", "| all-gather | 2 | "]
        {
            assert!(shown.contains(ours), "{script}: {ours:?} is missing\n{shown}");
        }
        let (first, _) = shown.split_once("PyTorch is left out").unwrap_or_default();
        assert!(
            first.contains("| all-gather | 2 | "),
            "what takes no PyTorch is printed before it is waited for\n{shown}"
        );
    }
}

#[test]
fn a_python_that_is_not_there_is_named() {
    standin_or_return!();
    let output = bench("/nowhere/python", &[]);
    let error = text(&output.stderr);
    assert!(error.contains("--python /nowhere/python") && error.contains("--no-peer"), "{error}");
}
