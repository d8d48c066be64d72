//! The viewer's side of the socket, and the errors of a run that cannot be followed.

use crate::frame::{self, Decoder, FrameError, Message};
use crate::header::RunHeader;
use crate::pace::Control;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    #[error("the names of {} runs begin with {name}: {}; type more of the name", fitting.len(), fitting.join(", "))]
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
        /// The defect of the stream.
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

/// A run in another process, followed through its socket.
#[derive(Debug)]
pub struct Attachment {
    /// The run's name.
    pub name: String,
    /// The run's header.
    pub header: RunHeader,
    path: PathBuf,
    timeout: Duration,
    stream: UnixStream,
    decoder: Decoder,
    early: Vec<Message>,
    /// True once the run has sent its end.
    over: bool,
}

impl Attachment {
    /// Connects to the socket at `path` and waits for the run's header, for at most `timeout`.
    ///
    /// # Errors
    /// Any [`AttachError`] except `Unknown` and `Ambiguous`.
    pub fn open(path: &Path, name: &str, timeout: Duration) -> Result<Self, AttachError> {
        let failed = |source| AttachError::Io { path: path.into(), source };
        let mut stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_millis(50))).map_err(failed)?;
        let (mut decoder, deadline) = (Decoder::default(), Instant::now() + timeout);
        while Instant::now() < deadline {
            match decoder.read_from(&mut stream) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
                Err(error) => return Err(failed(error)),
            }
            let mut messages = decoder.messages().map_err(AttachError::frame(name))?.into_iter();
            if let Some(Message::Header(header)) = messages.next() {
                stream.set_nonblocking(true).map_err(failed)?;
                let (name, header, path) = (name.into(), *header, path.into());
                let early = messages.collect();
                return Ok(Attachment { name, header, path, timeout, stream, decoder, early, over: false });
            }
        }
        Err(AttachError::Silent { name: name.into() })
    }

    /// Returns the messages that have arrived since the last call, without blocking. The end of the
    /// stream is also returned as [`Message::End`].
    ///
    /// A run in progress disconnects a viewer that has fallen behind. In that case this connects
    /// again, for which it may block as long as [`Self::open`], and returns the run's state.
    ///
    /// # Errors
    /// [`AttachError::Frame`] if the stream is damaged.
    pub fn poll(&mut self) -> Result<Vec<Message>, AttachError> {
        let mut messages = std::mem::take(&mut self.early);
        let ended = self.decoder.read_ready(&mut self.stream);
        messages.extend(self.decoder.messages().map_err(AttachError::frame(&self.name))?);
        self.over |= messages.iter().any(|message| matches!(message, Message::End));
        if !ended {
            return Ok(messages);
        }
        match self.reconnected() {
            Some(again) => {
                *self = again;
                messages.append(&mut self.early);
            }
            None => {
                self.over = true;
                messages.push(Message::End);
            }
        }
        Ok(messages)
    }

    /// Connects to the run again; `None` if the run is over or its process has ended.
    fn reconnected(&self) -> Option<Self> {
        if self.over {
            return None;
        }
        let again = Attachment::open(&self.path, &self.name, self.timeout).ok()?;
        (again.header == self.header).then_some(again)
    }

    /// Asks the run to hold or to continue.
    ///
    /// # Errors
    /// [`AttachError::Io`] if the run has closed the socket.
    pub fn control(&mut self, control: Control) -> Result<(), AttachError> {
        let failed = |source| AttachError::Io { path: self.name.clone().into(), source };
        self.stream.write_all(&frame::encoded(&Message::Control(control))).map_err(failed)
    }
}
