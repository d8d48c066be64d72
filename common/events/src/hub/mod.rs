//! The collector: one thread that takes events from all ranks' rings and hands them to whoever watches.
//!
//! The screen in this process, the recording and viewers in other processes get the same messages. None of them can
//! hold up the thread, and the thread cannot hold up a rank.

mod collector;

use crate::frame::Message;
use crate::header::RunHeader;
use crate::pace::Pace;
use crate::recording::{Recorder, RecordingError};
use crate::ring::Receiver;
use crate::runs;
use crate::socket::Server;
use collector::Collector;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Batches that the screen may be behind before it is sent a fresh state instead.
const SUBSCRIPTION_DEPTH: usize = 256;

/// What the collector does beside collecting.
#[derive(Clone, Default)]
pub struct HubOptions {
    /// Write a recording to this file.
    pub record: Option<PathBuf>,
    /// Open a socket for viewers in other processes.
    pub socket: bool,
    /// What viewers in other processes may hold.
    pub pace: Option<Arc<Pace>>,
    /// Whether some ranks are other processes, whose events take time to come here.
    pub remote: bool,
}

/// A collector that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The recording cannot be created.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The thread cannot be started.
    #[error("cannot start the thread that collects events: {0}")]
    Thread(std::io::Error),
}

/// What the collector saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubReport {
    /// Events collected.
    pub events: u64,
    /// Events lost because a ring was full.
    pub dropped: u64,
    /// The recording, if one was written to its end.
    pub recorded: Option<PathBuf>,
    /// Why the recording stopped before the run did.
    pub recording_error: Option<String>,
}

#[derive(Default)]
struct Signals {
    ending: AtomicBool,
    closing: AtomicBool,
    newcomers: Mutex<Vec<SyncSender<Message>>>,
    /// CPU time of the collecting thread so far, in nanoseconds.
    taken: AtomicU64,
}

/// A running collector.
pub struct Hub {
    header: RunHeader,
    signals: Arc<Signals>,
    thread: Option<JoinHandle<HubReport>>,
    run_name: Option<String>,
    socket_problem: Option<String>,
}

/// The screen's end.
pub struct Subscription {
    /// The run's description.
    pub header: RunHeader,
    messages: mpsc::Receiver<Message>,
    signals: Arc<Signals>,
}

impl Subscription {
    /// What has happened since the last call; [`Message::CatchUp`] comes first, and again after falling behind.
    pub fn poll(&self) -> Vec<Message> {
        self.messages.try_iter().collect()
    }

    /// CPU time that collecting has taken so far.
    pub fn collecting(&self) -> Duration {
        Duration::from_nanos(self.signals.taken.load(Ordering::Relaxed))
    }
}

impl Hub {
    /// Starts collecting.
    ///
    /// # Errors
    /// [`HubError`]. A socket that cannot be opened is no error: see [`Self::socket_problem`].
    pub fn start(header: RunHeader, receivers: Vec<Receiver>, options: HubOptions) -> Result<Self, HubError> {
        let recorder = options.record.as_deref().map(|path| Recorder::create(path, &header)).transpose()?;
        let run_name = run_name(&header);
        let opened = options.socket.then(|| Server::open(&runs::directory(), &run_name, &header));
        let (server, socket_problem) = match opened {
            Some(Err(error)) => (None, Some(error.to_string())),
            other => (other.and_then(Result::ok), None),
        };
        let signals = Arc::new(Signals::default());
        let run_name = server.is_some().then_some(run_name);
        let collector = Collector::new(&header, receivers, (recorder, server), options, signals.clone());

        let thread = std::thread::Builder::new().name("events".into()).spawn(move || collector.run());
        let thread = Some(thread.map_err(HubError::Thread)?);
        Ok(Hub { header, signals, thread, run_name, socket_problem })
    }

    /// A new watcher in this process.
    pub fn subscribe(&self) -> Subscription {
        let (sender, messages) = mpsc::sync_channel(SUBSCRIPTION_DEPTH);
        self.signals.newcomers.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        self.wake();
        Subscription { header: self.header.clone(), messages, signals: self.signals.clone() }
    }

    /// The name under which other processes can follow the run, if a socket is open.
    pub fn run_name(&self) -> Option<&str> {
        self.run_name.as_deref()
    }

    /// Why no socket is open although one was asked for.
    pub fn socket_problem(&self) -> Option<&str> {
        self.socket_problem.as_deref()
    }

    /// Tells watchers that nothing will follow: every rank's thread has ended.
    pub fn end(&self) {
        self.signals.ending.store(true, Ordering::Release);
        self.wake();
    }

    /// Takes what is left, completes the recording, closes the socket. Call it when all ranks' threads have ended.
    pub fn finish(mut self) -> HubReport {
        self.close()
    }

    fn close(&mut self) -> HubReport {
        self.signals.closing.store(true, Ordering::Release);
        self.wake();
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.close();
        }
    }
}

/// What `viz attach` calls the run: the stage's program, the model and the process, as in `STAGE-tiny-4711`.
fn run_name(header: &RunHeader) -> String {
    let word = |text: &str| {
        let kept = text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.');
        kept.collect::<String>().to_lowercase()
    };
    format!("{}-{}-{}", word(&header.stage), word(&header.model), std::process::id())
}
