//! Why a run cannot be followed.

use crate::frame::FrameError;
use std::io;
use std::path::PathBuf;

/// A run that cannot be found or followed.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// No run has that name.
    #[error("no run is called {name}; {}", listing(known))]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names of all runs.
        known: Vec<String>,
    },
    /// The names of several runs begin with the name asked for.
    #[error("{} runs are called {name}…: {}", fitting.len(), fitting.join(", "))]
    Ambiguous {
        /// The name asked for.
        name: String,
        /// The names that begin with it.
        fitting: Vec<String>,
    },
    /// The directory or the socket cannot be used.
    #[error("cannot reach {}: {source}", path.display())]
    Io {
        /// Directory or socket.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The stream is damaged, or the run writes another version of the format.
    #[error("{name} cannot be followed: {source}")]
    Frame {
        /// The run.
        name: String,
        /// What is wrong with the stream.
        source: FrameError,
    },
    /// The run did not send its header in time.
    #[error("{name} does not answer; it may be suspended")]
    Silent {
        /// The run.
        name: String,
    },
}

impl AttachError {
    /// Returns a function that turns an error of the run `name`'s stream into
    /// [`AttachError::Frame`].
    pub(crate) fn frame(name: &str) -> impl Fn(FrameError) -> AttachError + '_ {
        move |source| AttachError::Frame { name: name.into(), source }
    }
}

fn listing(known: &[String]) -> String {
    if known.is_empty() {
        "nothing is running now".into()
    } else {
        format!("running now: {}", known.join(", "))
    }
}
