//! NCCL, and the cost of the layer over it, on the stand-ins ([`tests::standin`]): these tests
//! check that it is measured, not the amount.

use std::process::{Command, Output};
use tests::standin_or_return;

fn bandwidth(flags: &str, set: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandwidth"));
    command.args(flags.split_whitespace()).envs(set.iter().copied()).output().unwrap()
}

#[test]
fn nccl_is_measured_beside_its_own_calls() {
    standin_or_return!();
    let output = bandwidth("--gpus 2 --engine nccl --max 16 --operation all-reduce,broadcast", &[]);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{error}");
    for operation in ["all-reduce", "broadcast"] {
        let rows = out.lines().filter(|line| line.starts_with(operation) && line.contains(" nccl "));
        assert_eq!(rows.count(), 3, "{out}");
        let cost = |line: &&str| {
            line.starts_with(operation) && line.contains("at 16 KiB") && line.contains("raw NCCL")
        };
        assert_eq!(out.lines().filter(cost).count(), 1, "{out}");
    }
    assert!(out.contains("Every result was right") && out.contains("n nccl"), "{out}");
    let output = bandwidth("--gpus 2 --engine nccl --max 16", &[("STANDIN_NCCL_VERSION", "22809")]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.starts_with("error: ") && error.contains("2.30"), "{error}");
}
