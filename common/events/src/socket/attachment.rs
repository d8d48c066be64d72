//! The viewer's side of the socket.

use crate::frame::{self, Decoder, Message};
use crate::header::RunHeader;
use crate::pace::Control;
use crate::runs::{self, AttachError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A run in another process, followed through its socket.
pub struct Attachment {
    stream: UnixStream,
    decoder: Decoder,
    header: RunHeader,
    early: Vec<Message>,
    name: String,
}

impl Attachment {
    /// Connects and waits for the run's description.
    ///
    /// # Errors
    /// Any [`AttachError`] but `Unknown`.
    pub fn open(path: &Path, name: &str, patience: Duration) -> Result<Self, AttachError> {
        let failed = |source| AttachError::Io { path: path.into(), source };
        let mut stream = UnixStream::connect(path).map_err(failed)?;
        stream.set_read_timeout(Some(Duration::from_millis(50))).map_err(failed)?;
        let (mut decoder, deadline) = (Decoder::default(), Instant::now() + patience);
        let mut bytes = [0; 1 << 16];
        while Instant::now() < deadline {
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => decoder.push(&bytes[..read]),
                Err(error) if is_pause(&error) => continue,
                Err(error) => return Err(failed(error)),
            }
            let mut early = decoder.messages().map_err(AttachError::frame(name))?;
            if let Some(header) = runs::header_of(&mut early) {
                stream.set_nonblocking(true).map_err(failed)?;
                return Ok(Attachment { stream, decoder, header, early, name: name.into() });
            }
        }
        Err(AttachError::Silent { name: name.into() })
    }

    /// The run's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The run's description.
    pub fn header(&self) -> &RunHeader {
        &self.header
    }

    /// What has arrived since the last call, without waiting. [`Message::End`] also when the run's process is gone.
    ///
    /// # Errors
    /// [`AttachError::Frame`] if the stream is damaged.
    pub fn poll(&mut self) -> Result<Vec<Message>, AttachError> {
        let mut messages = std::mem::take(&mut self.early);
        let mut bytes = vec![0; 1 << 16];
        let mut ended = false;
        for _ in 0..64 {
            match self.stream.read(&mut bytes) {
                Ok(0) => {
                    ended = true;
                    break;
                }
                Ok(read) => self.decoder.push(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_pause(&error) => break,
                Err(_) => {
                    ended = true;
                    break;
                }
            }
        }
        messages.extend(self.decoder.messages().map_err(AttachError::frame(&self.name))?);
        if ended {
            messages.push(Message::End);
        }
        Ok(messages)
    }

    /// Asks the run to hold or go on.
    ///
    /// # Errors
    /// [`AttachError::Io`] if the run is gone.
    pub fn control(&mut self, control: Control) -> Result<(), AttachError> {
        let mut bytes = Vec::new();
        frame::encode(&Message::Control(control), &mut bytes);
        let failed = |source| AttachError::Io { path: self.name.clone().into(), source };
        self.stream.write_all(&bytes).map_err(failed)
    }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
