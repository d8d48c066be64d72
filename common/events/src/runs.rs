//! Finds the runs that a viewer can follow: each has a socket in a directory that only its user can
//! enter.

use crate::frame::Message;
use crate::history::StepRecord;
use crate::socket::{AttachError, Attachment, check_private, is_own};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A run that answers on its socket.
#[derive(Debug)]
pub struct ListedRun {
    /// The connection to it.
    pub attachment: Attachment,
    /// Time since the run opened its socket.
    pub age: Duration,
}

impl ListedRun {
    /// Returns the latest step that the run has finished; `None` if the run does not report one
    /// soon.
    pub fn latest_step(&mut self) -> Option<StepRecord> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            for message in self.attachment.poll().ok()? {
                if let Message::CatchUp(state) = message {
                    return state.history.steps.last().copied();
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        None
    }
}

/// Maximum time for which a viewer waits for a run's answer.
const TIMEOUT: Duration = Duration::from_millis(500);

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
/// [`AttachError::Io`] if the directory cannot be read, or is not a directory of this user that no
/// other user may access.
pub fn list(directory: &Path) -> Result<Vec<ListedRun>, AttachError> {
    Ok(names(directory)?.iter().filter_map(|name| probe(&socket(directory, name), name)).collect())
}

fn socket(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.sock"))
}

/// Returns the names of all runs that have sockets, sorted.
fn names(directory: &Path) -> Result<Vec<String>, AttachError> {
    let failed = |source| AttachError::Io { path: directory.into(), source };
    match check_private(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    }
    let entries = fs::read_dir(directory).map_err(failed)?.flatten();
    let own = entries.filter(|entry| entry.metadata().is_ok_and(|file| is_own(&file)));
    let name = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".sock")?.to_string());
    let mut names: Vec<String> = own.filter_map(name).collect();
    names.sort();
    Ok(names)
}

fn probe(path: &Path, name: &str) -> Option<ListedRun> {
    let opened = fs::metadata(path).and_then(|socket| socket.modified()).ok();
    let age = opened.and_then(|opened| opened.elapsed().ok()).unwrap_or_default();
    match Attachment::open(path, name, TIMEOUT) {
        Ok(attachment) => Some(ListedRun { attachment, age }),
        Err(AttachError::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(path);
            None
        }
        Err(_) => None,
    }
}

/// Connects to the run called `name`, or to the only run whose name begins with `name`.
///
/// # Errors
/// Any [`AttachError`].
pub fn attach(directory: &Path, name: &str) -> Result<Attachment, AttachError> {
    let mut answering = list(directory)?.into_iter().map(|run| run.attachment);
    // The remaining sockets include those of runs that do not answer.
    let known = names(directory)?;
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
    let found = answering.find(|run| run.name == *chosen);
    found.map_or_else(|| Attachment::open(&socket(directory, chosen), chosen, TIMEOUT), Ok)
}
