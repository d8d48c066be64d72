//! The command under mpirun. Built with `--features mpi` only, since it needs an MPI:
//! `scripts/test-mpi`.

#![cfg(feature = "mpi")]
#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

use std::time::Duration;
use tests::job::{OPEN_MPI, start};

const TIMEOUT: Duration = Duration::from_secs(90);

#[test]
fn processes_of_an_mpi_job_are_measured_and_checked() {
    let bandwidth = env!("CARGO_BIN_EXE_bandwidth");
    let ended = start("mpirun", &format!("-n 3 {bandwidth} --max 64"), OPEN_MPI).end(TIMEOUT);
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.error);
    assert!(ended.out.contains("3 ranks (processes), f32"), "{}", ended.out);
    for operation in ["all-reduce", "reduce-scatter", "all-gather", "broadcast"] {
        let row = |line: &&str| line.starts_with(operation) && line.contains(" mpi ");
        assert_eq!(ended.out.lines().filter(row).count(), 4, "{operation}: {}", ended.out);
    }
    assert!(ended.out.contains("Every result was right") && ended.out.contains("m mpi"), "{}", ended.out);
}
