//! The collector: one thread that takes events from all ranks' rings and sends them to all
//! watchers.
//!
//! The screen in this process, the recording and viewers in other processes receive the same
//! messages. None of them can block the thread, and the thread cannot block a rank.

mod collector;

use crate::frame::Message;
use crate::header::RunHeader;
use crate::lock::lock;
use crate::pace::Pace;
use crate::recording::{Recorder, RecordingError};
use crate::ring::Receiver;
use crate::runs;
use crate::socket::Server;
use collector::Collector;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use storage::Disk;

/// Maximum number of messages that may wait for the screen. If it falls further behind, it receives
/// the current state in place of the missed events.
const SUBSCRIPTION_DEPTH: usize = 256;

/// The interval at which the end of a recording checks its disk.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Options of the collector.
#[derive(Clone, Default)]
pub struct HubOptions {
    /// The file to which it writes a recording; `None` for no recording.
    pub record: Option<PathBuf>,
    /// Whether it opens a socket for viewers in other processes.
    pub socket: bool,
    /// The pace that viewers in other processes may change.
    pub pace: Option<Arc<Pace>>,
    /// True if some ranks are other processes, whose events arrive later.
    pub remote: bool,
    /// Whether it reports on standard error, at once, that the recording has ended before the run.
    pub complains: bool,
    /// The disk for the recording; `None` for one of its own.
    pub disk: Option<Arc<Disk>>,
    /// Maximum time for which the end of a recording waits for a disk that does not answer; `None`
    /// for no limit.
    pub timeout: Option<Duration>,
}

/// The reason why a collector cannot start.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The recording cannot be created.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The thread cannot be started.
    #[error("cannot start the thread that collects events: {0}")]
    Thread(std::io::Error),
}

/// The collector's totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HubReport {
    /// The number of events collected.
    pub events: u64,
    /// The number of events lost because a ring was full.
    pub dropped: u64,
    /// The recording's file; `None` if there is no complete recording.
    pub recorded: Option<PathBuf>,
    /// The reason why the recording ended before the run, and the file that holds its events until
    /// then; `None` if it did not.
    pub recording_error: Option<String>,
}

/// State shared by the collecting thread, the hub and its subscriptions.
#[derive(Default)]
struct HubState {
    ending: AtomicBool,
    closing: AtomicBool,
    newcomers: Mutex<Vec<SyncSender<Message>>>,
    /// Processor time of the collecting thread so far, in nanoseconds.
    cpu_time: AtomicU64,
}

/// A running collector. Dropping it ends the collection.
pub struct Hub {
    header: RunHeader,
    shared: Arc<HubState>,
    thread: Option<JoinHandle<HubReport>>,
    run_name: Option<String>,
    /// The disk of the recording, and its file until it is complete.
    recording: Option<(Arc<Disk>, PathBuf)>,
    timeout: Option<Duration>,
}

/// The receiving end of a watcher in this process.
pub struct Subscription {
    /// The run's header.
    pub header: RunHeader,
    messages: mpsc::Receiver<Message>,
    shared: Arc<HubState>,
}

impl Subscription {
    /// Returns the messages since the last call. [`Message::CatchUp`] is the first message, and is
    /// sent again after the watcher has fallen behind.
    pub fn poll(&self) -> Vec<Message> {
        self.messages.try_iter().collect()
    }

    /// Returns the processor time of the collecting thread so far.
    pub fn collecting(&self) -> Duration {
        Duration::from_nanos(self.shared.cpu_time.load(Ordering::Relaxed))
    }
}

impl Hub {
    /// Starts the collecting thread.
    ///
    /// # Errors
    /// [`HubError`]. A socket that cannot be opened is not an error: the run then has no name.
    pub fn start(header: RunHeader, receivers: Vec<Receiver>, options: HubOptions) -> Result<Self, HubError> {
        let record = |path: &PathBuf| {
            let disk = options.disk.clone().unwrap_or_else(|| Arc::new(Disk::new(1)));
            let recorder = Recorder::create_on(&disk, path, &header)?;
            let partial = recorder.partial().to_path_buf();
            Ok::<_, RecordingError>((recorder, (disk, partial)))
        };
        let (recorder, recording) = options.record.as_ref().map(record).transpose()?.unzip();
        let timeout = options.timeout;
        let run_name = run_name(&header);
        let open = || Server::open(&runs::directory(), &run_name, &header).ok();
        let server = options.socket.then(open).flatten();
        let shared = Arc::new(HubState::default());
        let run_name = server.is_some().then_some(run_name);
        let collector = Collector::new(&header, receivers, (recorder, server), options, shared.clone());

        let thread = std::thread::Builder::new().name("events".into()).spawn(move || collector.run());
        let thread = Some(thread.map_err(HubError::Thread)?);
        Ok(Hub { header, shared, thread, run_name, recording, timeout })
    }

    /// Adds a watcher in this process.
    pub fn subscribe(&self) -> Subscription {
        let (sender, messages) = mpsc::sync_channel(SUBSCRIPTION_DEPTH);
        lock(&self.shared.newcomers).push(sender);
        self.wake();
        Subscription { header: self.header.clone(), messages, shared: self.shared.clone() }
    }

    /// Returns the name under which other processes can follow the run; `None` if no socket is
    /// open.
    pub fn run_name(&self) -> Option<&str> {
        self.run_name.as_deref()
    }

    /// Tells watchers that the run is over. Call it when all ranks' threads have ended.
    pub fn end(&self) {
        self.shared.ending.store(true, Ordering::Release);
        self.wake();
    }

    /// Collects the remaining events, completes the recording and closes the socket. If the disk
    /// does not answer within the hub's timeout, the recording is lost. Call it when all ranks'
    /// threads have ended.
    pub fn finish(mut self) -> HubReport {
        self.close()
    }

    fn close(&mut self) -> HubReport {
        self.shared.closing.store(true, Ordering::Release);
        self.wake();
        let Some(thread) = self.thread.take() else { return HubReport::default() };
        match self.recording.as_ref().zip(self.timeout) {
            Some(((disk, partial), timeout)) if !ends_in_time(&thread, disk, timeout) => HubReport {
                recording_error: Some(format!(
                    "the disk has not answered for {} s\nThe events recorded until then are in {}.",
                    timeout.as_secs(),
                    partial.display()
                )),
                ..HubReport::default()
            },
            _ => thread.join().unwrap_or_default(),
        }
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

/// Blocks until `thread` has ended. Returns false if `disk` has not answered for `timeout` before
/// that.
fn ends_in_time(thread: &JoinHandle<HubReport>, disk: &Disk, timeout: Duration) -> bool {
    let (mut returned, mut since) = (disk.answers().returned, Instant::now());
    while !thread.is_finished() {
        let now = disk.answers().returned;
        if now != returned {
            (returned, since) = (now, Instant::now());
        }
        if since.elapsed() >= timeout {
            return false;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    true
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns the run's name for `viz attach`, such as `STAGE-tiny-4711`.
fn run_name(header: &RunHeader) -> String {
    let word = |text: &str| {
        let kept = text.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '.');
        kept.collect::<String>().to_lowercase()
    };
    format!("{}-{}-{}", word(&header.stage), word(&header.model), std::process::id())
}
