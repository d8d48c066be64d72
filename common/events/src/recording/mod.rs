//! Recordings: the events of a run in a file.
//!
//! [`Recorder`] appends frames to a file with a temporary name, and renames it when the recording
//! is complete. It queues frames for the disk: a killed process loses only events that were not
//! written yet, and leaves `NAME.partial`. [`Recording`] reads the file back, up to the last
//! complete frame if the file ends early, and skips damaged frames. [`Growth`] continues to read
//! while the file grows.

mod growth;
mod reading;
mod recorder;
mod salvage;

use crate::frame::FrameError;
pub use growth::Growth;
pub use reading::{Gap, Recording};
pub use recorder::Recorder;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The reason why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be created, read, written or completed.
    #[error("cannot {action} the recording {}: {source}", path.display())]
    Io {
        /// The verb of the failed action: `create`, `read`, `write` or `complete`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The file is damaged, or is not a recording of this version.
    #[error("{} cannot be replayed: {source}", path.display())]
    Frame {
        /// The file.
        path: PathBuf,
        /// The defect.
        source: FrameError,
    },
    /// The path is a directory, or a pipe or device, which may never end.
    #[error("{} cannot be replayed: it is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file ends before the header is complete.
    #[error("{} holds no run: it ends before the run's header", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the error of a file that cannot be read, from the operating system's reason.
fn unreadable(path: &Path) -> impl Fn(io::Error) -> RecordingError + '_ {
    move |source| RecordingError::Io { action: "read", path: path.into(), source }
}

/// Opens a recording, which may still be written, for reading. Does not wait for the other end of a
/// pipe.
fn open(path: &Path) -> Result<File, RecordingError> {
    storage::open_regular(File::options().read(true), path).map_err(|error| match error.kind() {
        ErrorKind::NotSeekable => RecordingError::NotAFile { path: path.into() },
        _ => unreadable(path)(error),
    })
}
