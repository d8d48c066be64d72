//! The exit codes of the program.

use std::fs::File;
use std::process::Command;

#[test]
fn output_to_a_full_disk_is_an_error() {
    let printed = |place: &str| {
        let out = File::options().write(true).open(place).unwrap();
        let run = Command::new(env!("CARGO_BIN_EXE_planner")).args(["--model", "tiny"]).stdout(out).output();
        let run = run.unwrap();
        (run.status.code(), String::from_utf8(run.stderr).unwrap())
    };
    assert_eq!(printed("/dev/null"), (Some(0), String::new()));
    if cfg!(target_os = "linux") {
        let (code, said) = printed("/dev/full");
        assert!(code == Some(1) && said.contains("the disk is full"), "{said}");
    }
}
