//! Tests of the files that the program writes.

use crate::support::path;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// Runs `script` in `directory`. In it, `$0` is the program and `$1` a recording.
fn shell(script: &str, directory: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_viz")]).arg(path("zero3", "events"));
    command.current_dir(directory).output().unwrap()
}

/// Returns the trace of the recording.
fn trace() -> String {
    let printed = shell(r#""$0" trace "$1" -"#, Path::new("/"));
    assert!(printed.status.success());
    String::from_utf8(printed.stdout).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// The file's limit stands for a full disk.
#[test]
fn an_output_without_room_leaves_the_old_file_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("old"), "old").unwrap();
    for script in [
        r#"ulimit -f 8; "$0" trace "$1" old"#,
        r#"ulimit -f 8; "$0" trace "$1" new"#,
        r#"ulimit -f 8; "$0" export "$1" --svg old"#,
        r#"ulimit -f 8; "$0" export "$1" --cast old"#,
    ] {
        let output = shell(script, dir.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{script}: {error}");
        assert!(error.starts_with("error: cannot write ") && error.contains("too large"), "{error}");
        assert_eq!(names(dir.path()), ["old"], "{script}");
        assert_eq!(fs::read_to_string(dir.path().join("old")).unwrap(), "old", "{script}");
    }
}

/// Links stay links and permissions stay, also if a link's file does not exist yet.
#[test]
fn what_a_link_leads_to_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("kept")).unwrap();
    fs::write(at("kept/old"), "old").unwrap();
    fs::set_permissions(at("kept/old"), PermissionsExt::from_mode(0o640)).unwrap();
    symlink("kept/old", at("to-old")).unwrap();
    symlink(at("kept/new"), at("to-new")).unwrap();
    for name in ["old", "new"] {
        let output = shell(&format!(r#""$0" trace "$1" to-{name}"#), dir.path());
        assert!(output.status.success(), "{output:?}");
        assert_eq!(fs::read_to_string(at("kept").join(name)).unwrap(), trace());
        assert!(at(&format!("to-{name}")).is_symlink());
    }
    assert_eq!(fs::metadata(at("kept/old")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(names(&at("kept")), ["new", "old"]);
}

#[test]
fn pipes_devices_and_descriptors_are_written_to_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let (pipe, kept) = (dir.path().join("pipe"), dir.path().join("kept"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = r#"cat pipe > read & "$0" trace "$1" pipe && wait"#;
    assert!(shell(script, dir.path()).status.success());
    assert_eq!(fs::read_to_string(dir.path().join("read")).unwrap(), trace());
    assert!(shell(r#""$0" trace "$1" /dev/null"#, dir.path()).status.success());
    fs::write(&kept, "old").unwrap();
    let number = fs::metadata(&kept).unwrap().ino();
    assert!(shell(r#""$0" trace "$1" /dev/stdout > kept"#, dir.path()).status.success());
    assert_eq!((fs::metadata(&kept).unwrap().ino(), fs::read_to_string(&kept).unwrap()), (number, trace()));
    assert_eq!(names(dir.path()), ["kept", "pipe", "read"]);
}

/// The one would silently replace the other. Nothing is written.
#[test]
fn two_outputs_to_one_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    symlink("a", dir.path().join("link")).unwrap();
    for other in ["a", "./a", "link"] {
        let output = shell(&format!(r#""$0" export "$1" --svg a --cast {other}"#), dir.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--svg and --cast are one file, "), "{error}");
        assert_eq!(names(dir.path()), ["link"], "{other}");
    }
    let output = shell(r#""$0" export "$1" --svg /dev/stdout --cast /dev/stdout > both"#, dir.path());
    assert_eq!((output.status.code(), fs::read(dir.path().join("both")).unwrap()), (Some(2), vec![]));
}

#[test]
fn a_directory_is_no_output() {
    let dir = tempfile::tempdir().unwrap();
    for directory in ["missing/", "."] {
        let output = shell(&format!(r#""$0" trace "$1" {directory}"#), dir.path());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with(&format!("error: cannot write {directory}: ")), "{error}");
        assert_eq!(output.status.code(), Some(1), "{error}");
    }
    assert!(names(dir.path()).is_empty());
}

/// Help is an output like any other. A reader that closes its pipe has seen enough.
#[cfg(target_os = "linux")]
#[test]
fn help_that_cannot_be_written_is_an_error() {
    for flag in ["--help", "--version", "trace --help"] {
        let output = shell(&format!(r#""$0" {flag} > /dev/full"#), Path::new("/"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{flag}: {error}");
        assert!(error.starts_with("error: cannot write to standard output: "), "{error}");
        let script = format!(r#"mkfifo pipe; : < pipe & exec 3> pipe; wait; "$0" {flag} >&3"#);
        let closed = shell(&script, tempfile::tempdir().unwrap().path());
        assert!(closed.status.success() && closed.stderr.is_empty(), "{flag}: {closed:?}");
    }
}
