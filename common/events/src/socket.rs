//! The live socket: viewers in other processes follow a run without disturbing it.
//!
//! The run's side never blocks: a viewer who does not read is dropped once it is [`BACKLOG`] bytes behind.

use crate::catchup::CatchUp;
use crate::frame::{self, Decoder, Message};
use crate::header::RunHeader;
use crate::pace::{Control, Pace};
use crate::runs::{self, AttachError};
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
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
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

/// A viewer's side of the socket.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, What};
    use crate::frame::Batch;
    use crate::header::Sharded;
    use crate::pace::Boundary;

    fn header() -> RunHeader {
        RunHeader {
            stage: "ZeRO-1".into(),
            model: "test".into(),
            parameters: 1,
            world_size: 1,
            device: "CPU".into(),
            precision: "fp32".into(),
            communicated_bytes: 4,
            algorithm: "direct".into(),
            steps: 1,
            micro_batches: 1,
            batch_size: 1,
            sequence_length: 1,
            capacity: None,
            sharded: Sharded { parameters: false, gradients: false, optimizer: true },
            units: Vec::new(),
            predicted_memory: Vec::new(),
            predicted_total: Vec::new(),
            replicated_total: Vec::new(),
            predicted_traffic: Vec::new(),
            version: String::new(),
        }
    }

    fn batch(step: u32) -> Vec<u8> {
        let events = vec![Event { at: u64::from(step), rank: 0, what: What::StepStarted { step } }];
        let mut bytes = Vec::new();
        frame::encode(&Message::Batch(Batch { dropped: 0, events }), &mut bytes);
        bytes
    }

    /// A run with one viewer who has seen the greeting.
    fn watched(directory: &Path) -> (Server, Attachment) {
        let mut server = Server::open(directory, "run", &header()).unwrap();
        let socket = directory.join("run.sock");
        let viewer = std::thread::spawn(move || Attachment::open(&socket, "run", Duration::from_secs(20)));
        while !viewer.is_finished() {
            server.accept(&CatchUp::new(1, 0));
            server.pump(None);
            std::thread::yield_now();
        }
        (server, viewer.join().unwrap().unwrap())
    }

    fn directory() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("runs");
        (dir, path)
    }

    #[test]
    fn a_viewer_gets_the_description_the_state_and_what_follows() {
        let (_dir, directory) = directory();
        let (mut server, mut viewer) = watched(&directory);
        assert_eq!(viewer.header(), &header());
        server.send(&batch(7));
        server.close(Duration::from_secs(20));
        let messages = viewer.poll().unwrap();
        assert!(matches!(&messages[0], Message::CatchUp(_)));
        assert!(
            matches!(&messages[1], Message::Batch(b) if b.events[0].what == What::StepStarted { step: 7 })
        );
        assert!(matches!(messages.last(), Some(Message::End)));
    }

    #[test]
    fn a_stalled_viewer_is_dropped_and_never_waited_for() {
        let (_dir, directory) = directory();
        let (mut server, viewer) = watched(&directory);
        let frame = batch(1).repeat(1000);
        let needed = BACKLOG / frame.len() + 200;
        for _ in 0..needed {
            server.send(&frame);
            server.pump(None);
        }
        assert!(!server.is_watched());
        drop(viewer);
    }

    #[test]
    fn a_viewer_that_goes_lets_the_run_go_on() {
        let (_dir, directory) = directory();
        let (mut server, mut viewer) = watched(&directory);
        let pace = Pace::new();
        viewer.control(Control::Step(Boundary::Unit)).unwrap();
        while !pace.is_paused() {
            server.pump(Some(&pace));
        }
        drop(viewer);
        while server.is_watched() {
            server.pump(Some(&pace));
        }
        assert!(!pace.is_paused());
    }

    #[test]
    fn runs_are_listed_and_sockets_left_behind_are_removed() {
        let (_dir, directory) = directory();
        assert!(runs::list(&directory).unwrap().is_empty());
        runs::private(&directory).unwrap();
        drop(UnixListener::bind(directory.join("dead.sock")).unwrap());
        assert!(runs::list(&directory).unwrap().is_empty());
        assert!(!directory.join("dead.sock").exists());
        let error = runs::attach(&directory, "zero3").err().unwrap().to_string();
        assert!(error.contains("no run is called zero3"), "{error}");
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(Server::open(dir.path(), "run", &header()).is_err());
    }
}
