//! Where running programs can be found: a directory of sockets that only their owner can enter.

use crate::frame::{FrameError, Message};
use crate::header::RunHeader;
use crate::socket::Attachment;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A run that cannot be found or followed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No run of that name.
    #[error("no run is called {name}; {}", listing(known))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The runs there are.
        known: Vec<String>,
    },
    /// Several runs' names begin so.
    #[error("{} runs are called {name}…: {}", fitting.len(), fitting.join(", "))]
    Ambiguous {
        /// The name asked for.
        name: String,
        /// The runs that it fits.
        fitting: Vec<String>,
    },
    /// The directory or the socket cannot be used.
    #[error("cannot reach {}: {source}", path.display())]
    Io {
        /// Directory or socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The run speaks another version, or is no run.
    #[error("{name} cannot be followed: {source}")]
    Frame {
        /// The run.
        name: String,
        /// What is wrong.
        source: FrameError,
    },
    /// The run did not describe itself in time.
    #[error("{name} does not answer; it may be suspended")]
    Silent {
        /// The run.
        name: String,
    },
}

fn listing(known: &[String]) -> String {
    if known.is_empty() {
        "nothing is running now".into()
    } else {
        format!("running now: {}", known.join(", "))
    }
}

/// A run that can be followed.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its name: stage, model and process id.
    pub name: String,
    /// Its description.
    pub header: RunHeader,
}

/// The directory: `$XDG_RUNTIME_DIR/zero-runs`, or one per user among the temporary files.
pub fn directory() -> PathBuf {
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty()) {
        return PathBuf::from(runtime).join("zero-runs");
    }
    let user = std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "user".into());
    std::env::temp_dir().join(format!("zero-runs-{user}"))
}

/// Makes sure that `directory` exists and that nobody else can enter it.
pub(crate) fn private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() || found.mode() & 0o077 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "others can enter the directory"));
    }
    Ok(())
}

/// The runs of this user, by name. Sockets that a killed run left behind are removed.
///
/// # Errors
/// [`AttachError::Io`] if the directory cannot be read.
pub fn list(directory: &Path) -> Result<Vec<Run>, AttachError> {
    let failed = |source| AttachError::Io { path: directory.into(), source };
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(failed)?,
    };
    let mut runs: Vec<Run> = entries.flatten().filter_map(|entry| probe(&entry.path())).collect();
    runs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(runs)
}

fn probe(path: &Path) -> Option<Run> {
    let name = path.file_name()?.to_str()?.strip_suffix(".sock")?.to_string();
    match Attachment::open(path, &name, Duration::from_millis(500)) {
        Ok(attachment) => Some(Run { name, header: attachment.header().clone() }),
        Err(AttachError::Io { source, .. }) if source.kind() == io::ErrorKind::ConnectionRefused => {
            let _ = fs::remove_file(path);
            None
        }
        Err(_) => None,
    }
}

/// Follows the run called `name` (or the only one whose name begins so).
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

impl AttachError {
    pub(crate) fn frame(name: &str) -> impl Fn(FrameError) -> AttachError + '_ {
        move |source| AttachError::Frame { name: name.into(), source }
    }
}

/// The first description among `messages`.
pub(crate) fn header_of(messages: &mut Vec<Message>) -> Option<RunHeader> {
    let position = messages.iter().position(|message| matches!(message, Message::Header(_)))?;
    match messages.remove(position) {
        Message::Header(header) => Some(*header),
        _ => None,
    }
}
