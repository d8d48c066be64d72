//! Finds the Python for peers.

use std::io::Write;
use std::process::Command;

/// Returns the Python that can import `packages` (`torch, transformers`): the one that
/// `PEER_PYTHON` names, or the system's. If there is none, prints on the terminal that `test` was
/// skipped, even if test output is captured.
pub fn python(test: &str, packages: &str) -> Option<String> {
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".into());
    let imports = Command::new(&python).args(["-c", &format!("import {packages}")]).output();
    if imports.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    let why = format!("{python} cannot import {packages}; PEER_PYTHON names a Python that can");
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
    None
}
