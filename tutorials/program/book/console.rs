//! `console` blocks: commands that are executed, and their output.

use super::redacted::{REDACTED, redacted};
use crate::programs;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;
use trainer::{Failure, Result};

/// The port that the book's commands name. They run on a free one instead.
const PORT: &str = "29511";

/// The environment variables that commands see: none of a launcher or of a developer's settings.
const KEPT: [&str; 4] = ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH"];

/// Runs commands in a writable folder that looks like the workspace.
pub(super) struct Console {
    folder: TempDir,
    program: PathBuf,
    outputs: BTreeMap<String, Said>,
    /// The free port that replaces [`PORT`] in commands.
    port: String,
}

/// Commands that run in the background. Those still running are killed at the end.
#[derive(Default)]
struct Background<'a>(Vec<(&'a str, Child)>);

impl Drop for Background<'_> {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // The process may have ended already.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

/// The output of a command, and its exit status.
#[derive(Clone)]
struct Said {
    lines: Vec<String>,
    code: i32,
}

impl Console {
    /// Returns a console whose programs are all in `program`.
    pub(super) fn new(root: &Path, program: PathBuf) -> Result<Self> {
        let fail = |e: std::io::Error| Failure::run(format!("cannot prepare a folder for commands: {e}"));
        let folder = tempfile::tempdir().map_err(fail)?;
        for entry in std::fs::read_dir(root).map_err(fail)?.flatten() {
            if entry.file_name() != "target" {
                std::os::unix::fs::symlink(entry.path(), folder.path().join(entry.file_name()))
                    .map_err(fail)?;
            }
        }
        let port =
            TcpListener::bind(("127.0.0.1", 0)).and_then(|socket| socket.local_addr()).map_err(fail)?;
        Ok(Console { folder, program, outputs: BTreeMap::new(), port: port.port().to_string() })
    }

    /// Runs the commands of block `old` and returns the block with their output. Only times and
    /// speeds are redacted. A `recorded` block keeps them, because they come from a file.
    ///
    /// # Errors
    /// If a command is unknown or does not end as expected.
    pub(super) fn block(&mut self, old: &[&str], options: &BTreeMap<&str, &str>) -> Result<Vec<String>> {
        let mut fresh = Vec::new();
        // Commands that end with `&`.
        let mut background = Background::default();
        let commands: Vec<&str> = old.iter().filter_map(|line| line.strip_prefix("$ ")).collect();
        for command in commands {
            fresh.push(format!("$ {command}"));
            if let Some(command) = command.strip_suffix(" &") {
                let child = self.process(command)?.stdout(Stdio::null()).spawn();
                let child = child.map_err(|e| Failure::run(format!("{command}: {e}")))?;
                background.0.push((command, child));
                continue;
            }
            let said = self.say(command)?;
            let expected = options.get("fails").map_or(Ok(0), |code| code.parse());
            let text = said.lines.join("\n");
            let redact = |line: &String| {
                if options.contains_key("recorded") { line.clone() } else { redacted(line) }
            };
            let lines: Vec<String> = said.lines.iter().map(redact).collect();
            if expected != Ok(said.code) {
                return Err(Failure::run(format!("{command} ended with code {}:\n{text}", said.code)));
            }
            let lines = shown(&lines, options.get("show").copied())
                .map_err(|problem| Failure::run(format!("{command}: {problem} in:\n{text}")))?;
            fresh.extend(lines);
        }
        for (command, child) in &mut background.0 {
            let status = child.wait().map_err(|e| Failure::run(format!("{command} &: {e}")))?;
            if !status.success() {
                return Err(Failure::run(format!("{command} & ended with {status}")));
            }
        }
        Ok(fresh)
    }

    /// Runs a command as a reader would type it. Each command runs once per chapter.
    fn say(&mut self, command: &str) -> Result<Said> {
        if let Some(said) = self.outputs.get(command) {
            return Ok(said.clone());
        }
        let output = self.process(command)?.output();
        let output = output.map_err(|e| Failure::run(format!("{command}: {e}")))?;
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let lines = text.lines().map(String::from).collect();
        let said = Said { lines, code: output.status.code().unwrap_or(-1) };
        self.outputs.insert(command.into(), said.clone());
        Ok(said)
    }

    /// Returns a process for a command as a reader would type it. It runs a program of this build.
    fn process(&self, command: &str) -> Result<Command> {
        let unknown = || Failure::run(format!("{command}: the book runs only `cargo run -p PROGRAM -- …`"));
        let rest = command.strip_prefix("cargo run -p ").ok_or_else(unknown)?;
        let (package, arguments) = rest.split_once(" -- ").unwrap_or((rest, ""));
        let mut process = Command::new(&self.program);
        if programs::NAMES.contains(&package) {
            process.args(["program", package]);
        } else if package != "tutorials" {
            return Err(unknown());
        }
        process
            .args(stages::split_arguments(&arguments.replace(PORT, &self.port)))
            .current_dir(self.folder.path())
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| KEPT.iter().any(|kept| name == kept)))
            .env("COLUMNS", "100")
            .env("NO_COLOR", "1")
            // The book shows CPU runs, even on machines with GPUs.
            .env("CUDA_VISIBLE_DEVICES", "");
        Ok(process)
    }
}

/// Returns the lines from FROM to TO for every `FROM .. TO` in `show`, or all lines; `…` replaces
/// the omitted lines.
///
/// # Errors
/// If FROM matches no line or several, or TO matches none or several from there on.
fn shown(lines: &[String], show: Option<&str>) -> std::result::Result<Vec<String>, String> {
    let lines: Vec<&String> = lines.iter().skip_while(|line| line.is_empty()).collect();
    let Some(show) = show else { return Ok(trimmed(lines.into_iter().cloned().collect())) };
    let mut out = Vec::new();
    let mut next = 0;
    for stretch in show.split("; ") {
        let (from, to) = stretch.split_once(" .. ").unwrap_or((stretch, stretch));
        let first = only(&lines, 0, from)?;
        let last = only(&lines, first, to)?;
        if first < next {
            return Err(format!("{from:?} is above what is shown before it"));
        }
        if first > next {
            out.push(REDACTED.to_string());
        }
        out.extend(lines[first..=last].iter().map(|line| line.to_string()));
        next = last + 1;
    }
    if lines[next..].iter().any(|line| !line.is_empty()) {
        out.push(REDACTED.to_string());
    }
    Ok(trimmed(out))
}

/// Returns the index of the only line from `start` on that contains `pattern`.
fn only(lines: &[&String], start: usize, pattern: &str) -> std::result::Result<usize, String> {
    let mut found = (start..lines.len()).filter(|&at| lines[at].contains(pattern));
    let first = found.next().ok_or_else(|| format!("{pattern:?} is not found"))?;
    match found.count() {
        0 => Ok(first),
        more => Err(format!("{pattern:?} is found {} times", more + 1)),
    }
}

fn trimmed(mut lines: Vec<String>) -> Vec<String> {
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.into_iter().map(|line| line.trim_end().to_string()).collect()
}

#[cfg(test)]
mod tests;
