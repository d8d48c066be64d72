//! The live socket: viewers in other processes follow a run without disturbing it.
//!
//! The run's side never blocks: a viewer who does not read is dropped once it is [`BACKLOG`] bytes behind.

mod attachment;

use crate::catchup::CatchUp;
use crate::frame::{self, Decoder, Message};
use crate::header::RunHeader;
use crate::pace::{Control, Pace};
use crate::runs;
pub use attachment::Attachment;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How far a viewer may fall behind before it is dropped, in bytes.
pub const BACKLOG: usize = 8 << 20;

struct Viewer {
    stream: UnixStream,
    outgoing: VecDeque<u8>,
    incoming: Decoder,
    /// Whether it has asked to hold the run; when it goes, the run goes on.
    holds: bool,
    gone: bool,
}

/// The run's side of the socket.
pub(crate) struct Server {
    listener: UnixListener,
    path: PathBuf,
    greeting: Vec<u8>,
    viewers: Vec<Viewer>,
}

impl Server {
    /// Opens `directory/name.sock`.
    pub(crate) fn open(directory: &Path, name: &str, header: &RunHeader) -> io::Result<Self> {
        runs::private(directory)?;
        let path = directory.join(format!("{name}.sock"));
        // Nobody must find it before it answers: who lists runs takes away sockets that do not.
        let fresh = directory.join(format!("{name}.new"));
        let _ = std::fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh)?;
        std::fs::rename(&fresh, &path)?;
        listener.set_nonblocking(true)?;
        let mut greeting = frame::preamble().to_vec();
        frame::encode(&Message::Header(Box::new(header.clone())), &mut greeting);
        Ok(Server { listener, path, greeting, viewers: Vec::new() })
    }

    /// Lets new viewers in; each starts with the run's description and `state`.
    pub(crate) fn accept(&mut self, state: &CatchUp) {
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut bytes = self.greeting.clone();
            frame::encode(&Message::CatchUp(Box::new(state.clone())), &mut bytes);
            let incoming = Decoder::without_preamble();
            self.viewers.push(Viewer { stream, outgoing: bytes.into(), incoming, holds: false, gone: false });
        }
    }

    /// Whether anybody is watching.
    pub(crate) fn is_watched(&self) -> bool {
        !self.viewers.is_empty()
    }

    /// Queues an encoded frame for everybody.
    pub(crate) fn send(&mut self, frame: &[u8]) {
        for viewer in &mut self.viewers {
            viewer.outgoing.extend(frame);
            viewer.gone |= viewer.outgoing.len() > BACKLOG;
        }
    }

    /// Moves bytes as far as they go without waiting, and does what viewers ask.
    pub(crate) fn pump(&mut self, pace: Option<&Pace>) {
        for viewer in &mut self.viewers {
            viewer.write();
            for control in viewer.read() {
                viewer.holds |= control != Control::Resume;
                if let Some(pace) = pace {
                    pace.control(control);
                }
            }
            if let (true, true, Some(pace)) = (viewer.gone, viewer.holds, pace) {
                pace.resume();
            }
        }
        self.viewers.retain(|viewer| !viewer.gone);
    }

    /// Sends what is queued, for at most `patience`, and closes the socket.
    pub(crate) fn close(mut self, patience: Duration) {
        let _ = std::fs::remove_file(&self.path);
        let deadline = Instant::now() + patience;
        while self.viewers.iter().any(|viewer| !viewer.outgoing.is_empty()) && Instant::now() < deadline {
            self.pump(None);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Viewer {
    fn write(&mut self) {
        while !self.outgoing.is_empty() && !self.gone {
            match self.stream.write(self.outgoing.as_slices().0) {
                Ok(0) => self.gone = true,
                Ok(written) => drop(self.outgoing.drain(..written)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }

    fn read(&mut self) -> Vec<Control> {
        let mut bytes = [0; 256];
        while !self.gone {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.gone = true,
                Ok(read) => self.incoming.push(&bytes[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
        let controls = |message| if let Message::Control(control) = message { Some(control) } else { None };
        match self.incoming.messages() {
            Ok(messages) => messages.into_iter().filter_map(controls).collect(),
            Err(_) => {
                self.gone = true;
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests;
