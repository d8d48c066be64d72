//! The command as a user runs it.

use clap::Parser;
use collectives::local::Link;
use serde_json::Value;
use settings::cli::Cli;
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
    let links: Vec<&str> = out.lines().filter_map(|line| Some(line.split_once("--link ")?.1)).collect();
    assert_eq!(links.len(), 3, "{out}");
    assert!(links.into_iter().map(link).all(|link| link.bandwidth > 1e3), "{out}");
}

/// As root, it runs as another user, because the limit of threads does not hold for root.
#[test]
#[cfg(target_os = "linux")]
fn a_rank_without_a_thread_is_an_error_with_a_remedy() {
    let within = |threads: u32, flags: &str| {
        let user = "setpriv --reuid=65532 --regid=65532 --clear-groups";
        let script = format!("ulimit -u {threads}; exec {user} {} {flags}", env!("CARGO_BIN_EXE_bandwidth"));
        Command::new("bash").args(["-c", &script]).current_dir("/").output().unwrap()
    };
    if !within(1, "--help").status.success() {
        events::complain!(
            "skipped: a limit of threads is tested as root, with setpriv, where others may run the program"
        );
        return;
    }
    for (threads, rank) in [(1, 0), (3, 2)] {
        let output = within(threads, "--gpus 4 --max 4 --timeout 1 --engine local");
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with(&format!("error: cannot start the thread of rank {rank}: ")), "{error}");
        assert!(error.contains("--gpus") && error.contains("`ulimit -u`"), "{error}");
    }
}

/// Returns the link that `--link value` means to a run.
fn link(value: &str) -> Link {
    Cli::try_parse_from(["zero3", "--link", value]).unwrap().train.link.unwrap().link
}

/// The figures in numbers are those of the flag, to its three digits.
#[test]
fn json_has_every_row_and_the_link_that_a_run_takes() {
    let output = bandwidth("--gpus 2 --engine local,ring --operation all-reduce,broadcast --max 256 --json");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = document["rows"].as_array().unwrap();
    assert_eq!((document["ranks"].as_u64(), rows.len()), (Some(2), 2 * 2 * 5));
    for row in rows {
        let (bytes, seconds) = (row["bytes"].as_f64().unwrap(), row["median_seconds"].as_f64().unwrap());
        let ratio = row["algorithm_bandwidth"].as_f64().unwrap() * seconds / bytes;
        assert!((ratio - 1.0).abs() < 1e-6 && row["best_seconds"].as_f64().unwrap() <= seconds, "{row}");
    }
    let links = document["links"].as_array().unwrap();
    assert_eq!(links.iter().map(|link| &link["engine"]).collect::<Vec<_>>(), ["local", "ring"]);
    for fitted in links {
        let read = link(fitted["flag"].as_str().unwrap());
        let near =
            |read: f64, name: &str| (read - fitted[name].as_f64().unwrap()).abs() <= 0.005 * read + 1e-9;
        assert!(near(read.bandwidth, "bytes_per_second"), "{fitted}");
        assert!(near(read.latency.as_secs_f64(), "latency_seconds"), "{fitted}");
    }
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
        ("--min 8 --max 4", "--max"),
        ("--max 9999999", "write a whole number from 1 to 1048576"),
        ("--factor 1", "--factor"),
        ("--gpus 0", "--gpus"),
        ("--gpus x", "write a whole number from 1 to 64"),
        ("--engine mpi", "mpirun"),
        ("--rank 1 --gpus 2", "--master"),
    ] {
        let output = bandwidth(flags);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {error}");
        assert!(error.starts_with("error: ") && error.contains(word), "{flags}: {error}");
    }
}

/// The sums of their numbers would not be exact.
#[test]
fn a_job_of_too_many_processes_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bandwidth"));
    let output = command.envs([("RANK", "0"), ("WORLD_SIZE", "65")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(text(&output.stderr).trim(), "error: WORLD_SIZE: choose 1 to 64");
}

/// With different engines processes would wait for each other until the timeout.
#[test]
fn processes_with_different_engines_learn_of_it() {
    let port = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let engines = ["tcp", "nccl"];
    let start = |(rank, engine): (usize, &str)| {
        let flags = format!("--rank {rank} --gpus 2 --master 127.0.0.1:{port} --engine {engine} --max 1");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bandwidth"));
        command.args(flags.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let processes: Vec<_> = engines.into_iter().enumerate().map(start).collect();
    for process in processes {
        let output = process.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("rank 0: --engine tcp") && error.contains("rank 1: --engine nccl"), "{error}");
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

/// As of every other program: completions and a manual that know the flags, and a version with the
/// commit of the sources.
#[test]
fn shells_get_completions_and_a_manual() {
    let printed = |flags: &str| {
        let output = bandwidth(flags);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    for shell in ["bash", "zsh", "fish"] {
        assert!(printed(&format!("completions {shell}")).contains("reduce-scatter"), "{shell}");
    }
    let manual = printed("man");
    assert!(manual.contains(".TH bandwidth 1") && manual.contains("\\-\\-factor"), "{manual}");
    assert_eq!(printed("--version").trim(), concat!("bandwidth ", env!("VERSION")));
}
