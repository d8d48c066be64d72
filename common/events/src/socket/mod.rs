//! The live socket: viewers in other processes follow a run without disturbing it.
//!
//! The run's side never blocks. It disconnects a viewer that has fallen [`BACKLOG`] bytes behind.
//! The viewer then connects again, and continues with the run's state at that time.

mod attachment;
mod holds;

use crate::frame::{self, Decoder, Message};
use crate::header::RunHeader;
use crate::history::CatchUp;
use crate::pace::{Control, Pace};
pub use attachment::{AttachError, Attachment};
use holds::Holds;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that may be queued for a viewer before it is disconnected.
pub const BACKLOG: usize = 8 << 20;

struct Viewer {
    /// The number of viewers before it.
    number: u64,
    stream: UnixStream,
    outgoing: VecDeque<u8>,
    /// Bytes of the state that the viewer received first; they do not count as backlog.
    greeting: usize,
    incoming: Decoder,
    gone: bool,
}

/// The run's side of the socket.
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    greeting: Vec<u8>,
    viewers: Vec<Viewer>,
    /// The number of viewers so far.
    accepted: u64,
    holds: Holds,
}

impl Server {
    /// Opens `directory/name.sock`, and makes the directory if it does not exist.
    ///
    /// # Errors
    /// If others can enter the directory, or the system refuses the socket.
    pub fn open(directory: &Path, name: &str, header: &RunHeader) -> io::Result<Self> {
        make_private(directory)?;
        let path = directory.join(format!("{name}.sock"));
        // A viewer that lists runs removes sockets that refuse connections, so the socket gets its
        // name after it listens.
        let fresh = directory.join(format!("{name}.new"));
        let _ = fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh)?;
        fs::rename(&fresh, &path)?;
        listener.set_nonblocking(true)?;
        let mut greeting = frame::preamble().to_vec();
        frame::encode(&Message::Header(Box::new(header.clone())), &mut greeting);
        let (viewers, holds) = (Vec::new(), Holds::default());
        Ok(Server { listener, path, greeting, viewers, accepted: 0, holds })
    }

    /// Accepts new viewers and queues the run's header and `state` for each. Returns true if there
    /// are any.
    pub fn accept(&mut self, state: &CatchUp) -> bool {
        let known = self.viewers.len();
        while let Ok((stream, _)) = self.listener.accept() {
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let mut bytes = self.greeting.clone();
            frame::encode(&Message::CatchUp(Box::new(state.clone())), &mut bytes);
            let incoming = Decoder::of_requests();
            let greeting = bytes.len();
            let (number, outgoing) = (self.accepted, bytes.into());
            self.viewers.push(Viewer { number, stream, outgoing, greeting, incoming, gone: false });
            self.accepted += 1;
        }
        self.viewers.len() > known
    }

    /// Returns the number of connected viewers.
    pub fn viewers(&self) -> usize {
        self.viewers.len()
    }

    /// Queues an encoded frame for every viewer.
    pub fn send(&mut self, frame: &[u8]) {
        for viewer in &mut self.viewers {
            viewer.outgoing.extend(frame);
            viewer.gone |= viewer.outgoing.len() > viewer.greeting + BACKLOG;
        }
    }

    /// Reads and writes as much as possible without blocking, and applies viewers' requests to
    /// `pace`. When a viewer that holds or slows the run disconnects, the run returns to the pace
    /// before that, unless another request has been made since.
    pub fn pump(&mut self, pace: Option<&Pace>) {
        for viewer in &mut self.viewers {
            viewer.write();
            for control in viewer.read() {
                if let Some(pace) = pace {
                    self.holds.ask(viewer.number, control, pace);
                }
            }
            if let Some(pace) = pace.filter(|_| viewer.gone) {
                self.holds.leave(viewer.number, pace);
            }
        }
        self.viewers.retain(|viewer| !viewer.gone);
    }

    /// Removes the socket and sends the queued frames, for at most `timeout`.
    pub fn close(mut self, timeout: Duration) {
        let _ = fs::remove_file(&self.path);
        let deadline = Instant::now() + timeout;
        while self.viewers.iter().any(|viewer| !viewer.outgoing.is_empty()) && Instant::now() < deadline {
            self.pump(None);
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Creates `directory` if it does not exist, and checks it.
pub(crate) fn make_private(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_private(directory)
}

/// True if the file, which is not a link, belongs to this process's user.
pub(crate) fn is_own(file: &fs::Metadata) -> bool {
    file.uid() == rustix::process::geteuid().as_raw()
}

/// Checks that a directory belongs to this user and that no other can enter it.
///
/// # Errors
/// `PermissionDenied` with the owner and the mode, and the system's errors.
pub(crate) fn check_private(directory: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(directory)?;
    let (mode, owner) = (found.mode() & 0o777, found.uid());
    if found.is_dir() && mode & 0o077 == 0 && is_own(&found) {
        return Ok(());
    }
    let problem = format!(
        "it must be this user's own directory, of mode 700 (it has owner {owner}, mode {mode:03o}); remove it, or \
         set XDG_RUNTIME_DIR to a directory of your own"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, problem))
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
        self.gone = self.gone || self.incoming.read_ready(&mut self.stream);
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
