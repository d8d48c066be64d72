//! Runs the scripts that start jobs, unchanged. Stand-ins replace `cargo`, since the programs are
//! already built, and the launcher that a test provides.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a script of `scripts/launch` from `folder` with `words` and the variables `set`. `stage` is
/// a program that acts as any stage, by name. `played` are stand-in programs on the script's path,
/// as names with shell text.
///
/// # Panics
/// If the folder cannot be written or the script cannot be run.
pub fn launch(
    stage: &str,
    folder: &Path,
    script: &str,
    words: &str,
    set: &[(&str, String)],
    played: &[(&str, &str)],
) -> Output {
    let programs = folder.join("programs");
    std::fs::create_dir_all(folder.join("target/release")).unwrap();
    std::fs::create_dir_all(&programs).unwrap();
    write(&folder.join("target/release/zero3"), &format!("exec {stage} zero3 \"$@\""));
    for (name, body) in [("cargo", "exit 0")].iter().chain(played) {
        write(&programs.join(name), body);
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let script = format!("{}/../scripts/launch/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new(script);
    command.args(words.split_whitespace()).current_dir(folder).env("PATH", path);
    command.env("CARGO_TARGET_DIR", folder.join("target"));
    command.envs(set.iter().map(|(name, value)| (name, value))).output().unwrap()
}

fn write(file: &Path, body: &str) {
    std::fs::write(file, format!("#!/bin/sh\n{body}\n")).unwrap();
    std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).unwrap();
}

/// # Panics
/// If the script has failed.
pub fn succeeded(output: &Output) {
    let text = |bytes| String::from_utf8_lossy(bytes);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
