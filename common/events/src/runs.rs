//! Finds the runs that a viewer can follow: each has a socket in a directory that only its user can
//! enter.

use crate::frame::Message;
use crate::header::RunHeader;
use crate::history::StepRecord;
use crate::socket::{AttachError, Attachment, check_private, is_own};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A run that answers on its socket.
#[derive(Clone, Debug)]
pub struct ListedRun {
    /// Its name: stage, model and process id.
    pub name: String,
    /// Its description.
    pub header: RunHeader,
    /// How long it has been there.
    pub age: Duration,
}

/// Returns the directory of sockets: `$XDG_RUNTIME_DIR/zero-runs`, or one per user under the
/// directory for temporary files.
pub fn directory() -> PathBuf {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        return PathBuf::from(runtime).join("zero-runs");
    }
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "user".into());
    std::env::temp_dir().join(format!("zero-runs-{user}"))
}

/// Lists this user's runs, sorted by name. Removes sockets that killed runs left behind.
///
/// # Errors
/// [`AttachError::Io`] if the directory cannot be read, or is not this user's alone.
pub fn list(directory: &Path) -> Result<Vec<ListedRun>, AttachError> {
    let failed = |source| AttachError::Io { path: directory.into(), source };
    match check_private(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    }
    let entries = fs::read_dir(directory).map_err(failed)?;
    let mut runs: Vec<ListedRun> = entries.flatten().filter_map(|entry| probe(&entry.path())).collect();
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runs)
}

fn probe(path: &Path) -> Option<ListedRun> {
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?.to_string();
    let socket = fs::symlink_metadata(path).ok().filter(is_own)?;
    let age = socket.modified().ok().and_then(|opened| opened.elapsed().ok()).unwrap_or_default();
    match Attachment::open(path, &name, Duration::from_millis(500)) {
        Ok(attachment) => Some(ListedRun { name, header: attachment.header, age }),
        Err(AttachError::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(path);
            None
        }
        Err(_) => None,
    }
}

/// Returns the latest step that the run called `name` has finished, if it tells one soon.
pub fn latest_step(directory: &Path, name: &str) -> Option<StepRecord> {
    let mut attachment = attach(directory, name).ok()?;
    let deadline = Instant::now() + Duration::from_millis(500);
    while Instant::now() < deadline {
        for message in attachment.poll().ok()? {
            if let Message::CatchUp(state) = message {
                return state.history.steps.last().copied();
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    None
}

/// Connects to the run called `name`, or to the only run whose name begins with `name`.
///
/// # Errors
/// Any [`AttachError`].
pub fn attach(directory: &Path, name: &str) -> Result<Attachment, AttachError> {
    let known: Vec<String> = list(directory)?.into_iter().map(|run| run.name).collect();
    let exact = known.iter().find(|run| run.as_str() == name);
    let fitting: Vec<&String> = known.iter().filter(|run| run.starts_with(name)).collect();
    let chosen = match (exact, &fitting[..]) {
        (Some(chosen), _) => chosen,
        (None, [only]) => *only,
        (None, []) => return Err(AttachError::Unknown { name: name.into(), known }),
        (None, several) => {
            let fitting = several.iter().copied().cloned().collect();
            return Err(AttachError::Ambiguous { name: name.into(), fitting });
        }
    };
    Attachment::open(&directory.join(format!("{chosen}.sock")), chosen, Duration::from_secs(3))
}
