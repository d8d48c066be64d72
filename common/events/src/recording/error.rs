//! Errors of recordings.

use crate::frame::FrameError;
use std::io;
use std::path::{Path, PathBuf};

/// Why a recording cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be created, read, written or completed.
    #[error("cannot {action} the recording {}: {source}", path.display())]
    Io {
        /// The verb of what failed: `create`, `read`, `write` or `complete`.
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
        /// What is wrong.
        source: FrameError,
    },
    /// The file ends before the header is complete.
    #[error("{} holds no run: it ends before the run's header", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
}

/// Returns the error of a file that cannot be read, from the operating system's reason.
pub(super) fn unreadable(path: &Path) -> impl Fn(io::Error) -> RecordingError + '_ {
    move |source| RecordingError::Io { action: "read", path: path.into(), source }
}
