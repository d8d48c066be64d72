//! The command as a user runs it.

use std::process::{Command, Output, Stdio};

fn bandwidth(flags: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bandwidth")).args(flags.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_engine_and_operation_is_measured_and_plotted() {
    let output = bandwidth("--gpus 3 --engine local,ring,tcp --max 64");
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{error}");
    for engine in ["local", "ring", "tcp"] {
        for operation in ["all-reduce", "reduce-scatter", "all-gather", "broadcast"] {
            let row = |line: &&str| line.starts_with(operation) && line.contains(&format!(" {engine} "));
            let rows: Vec<&str> = out.lines().filter(row).collect();
            assert_eq!(rows.len(), 4, "{operation}, {engine}: {out}");
            for row in rows {
                let number = |from_end: usize| {
                    row.split_whitespace().rev().nth(from_end).unwrap().parse::<f64>().unwrap()
                };
                let (algorithm, bus) = (number(2), number(1));
                let factor = match operation {
                    "all-reduce" => 4.0 / 3.0,
                    "broadcast" => 1.0,
                    _ => 2.0 / 3.0,
                };
                assert!((bus - algorithm * factor).abs() < 0.02, "{row}");
            }
        }
    }
    assert!(out.contains("Every result was right"));
    assert_eq!(out.matches("bus bandwidth in GB/s over the size").count(), 4);
    assert_eq!(out.matches("l local, r ring, t tcp").count(), 4);
}

/// `bandwidth | head -1` closes the pipe early.
#[test]
fn a_closed_pipe_does_not_end_in_a_panic() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandwidth"));
    command.args(["--gpus", "2", "--engine", "local", "--max", "64"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", text(&ended.stderr));
}

#[test]
fn senseless_flags_are_usage_errors() {
    for (flags, word) in [
        ("--min 0", "--min"),
        ("--max 9999999", "1 GiB"),
        ("--factor 1", "--factor"),
        ("--gpus 0", "--gpus"),
        ("--engine mpi", "mpirun"),
        ("--rank 1 --gpus 2", "--master"),
    ] {
        let output = bandwidth(flags);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {error}");
        assert!(error.starts_with("error: ") && error.contains(word), "{flags}: {error}");
    }
}

/// With `--help` appended, flags are parsed and nothing is measured.
#[test]
fn documents_tell_to_type_what_the_program_takes() {
    for command in tests::documents::commands_of("bandwidth") {
        let output = bandwidth(&format!("{} --help", command.arguments.join(" ")));
        assert!(output.status.success(), "{}: {}", command.place, text(&output.stderr));
    }
}
