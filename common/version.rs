//! The build script of the programs. It sets `VERSION` to the package's version and the commit that
//! the sources are of.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let folders = sources();
    for folder in &folders {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    println!("cargo::rerun-if-changed={}", root().join("common/version.rs").display());
    println!("cargo::rustc-env=VERSION={version}{}", commit(&folders).unwrap_or_default());
}

/// Returns the workspace's folder, as seen from the package.
fn root() -> &'static Path {
    let folder = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from).unwrap_or_default();
    let is_common = folder.parent().is_some_and(|parent| parent.join("version.rs").exists());
    Path::new(if is_common { "../.." } else { ".." })
}

/// Returns the folders of the sources that the program is built from.
fn sources() -> Vec<PathBuf> {
    let root = root();
    // Crates that others stand on are built before most sources.
    let below: &[&str] = match env::var("CARGO_PKG_NAME").as_deref() {
        Ok("viz") => &["common/events/src", "common/shell/src", "viz/screen/src", "viz/src"],
        Ok("planner") => &[
            "common/events/src",
            "common/shell/src",
            "common/model/src",
            "common/prediction/src",
            "common/planner/src",
        ],
        _ => &[],
    };
    if !below.is_empty() {
        return below.iter().map(|folder| root.join(folder)).collect();
    }
    let crates = [root.to_path_buf(), root.join("common"), root.join("viz")];
    let entries = crates.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let parts = entries.flat_map(|folder| ["src", "program"].map(|part| folder.join(part)));
    let mut folders: Vec<PathBuf> = parts
        .filter(|part| {
            part.is_dir() && part.parent().is_some_and(|parent| parent.join("Cargo.toml").exists())
        })
        .collect();
    folders.sort();
    folders
}

/// Returns the commit in words, and whether the sources have changed since; `None` if there is no
/// Git or no repository.
fn commit(folders: &[PathBuf]) -> Option<String> {
    let hash = git(&["rev-parse", "--short=8", "HEAD"], &[])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no", "--"], folders)?;
    let changes = if changed.is_empty() { "" } else { " and changes" };
    Some(format!(" ({hash}{changes})"))
}

/// Returns what Git prints, if it succeeds.
fn git(arguments: &[&str], folders: &[PathBuf]) -> Option<String> {
    let output =
        Command::new("git").arg("--no-optional-locks").args(arguments).args(folders).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
