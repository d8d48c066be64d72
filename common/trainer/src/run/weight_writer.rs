//! Hashes and writes the final weights on a thread of rank 0. The ranks exchange heartbeats until
//! it is done, so a slow disk causes no timeout.

use crate::plan::Plan;
use crate::rank_error::{Result, other};
use checkpoint::{Destination, Writer};
use device::Buffer;
use model::TensorId;
use settings::machine::not_started;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use storage::Disk;

/// How long a save waits for another writer, or a probe, that holds its directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// A request to the writer thread.
enum Request {
    /// Hash and write a tensor: these elements of a unit.
    Tensor(Buffer, TensorId, Range<usize>),
    /// Flush and publish.
    Finish,
}

/// A reply of the writer thread.
pub(super) enum Reply {
    /// A tensor is written; the unit's buffer comes back.
    Written(Buffer),
    /// All weights are published; their hash.
    Published(String),
}

/// Rank 0's side of the thread.
pub(super) struct WeightWriter {
    requests: Sender<Request>,
    replies: Receiver<std::result::Result<Reply, String>>,
    disk: Arc<Disk>,
    /// How long the disk may take for one request.
    timeout: Duration,
    began: Instant,
}

impl WeightWriter {
    /// Starts the thread. Without `--save` it only hashes.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(plan: &Plan) -> Result<Self> {
        let config = &plan.config;
        let disk = Arc::new(Disk::with_faults(1, config.save_faults.clone()));
        let (model, model_files) = (plan.model.clone(), plan.model_files.clone());
        // Shorter than the disk's timeout, so that a locked directory is not blamed on the disk.
        let lock_timeout = LOCK_TIMEOUT.min(config.output.checkpoint_timeout / 2);
        let (save, format, on) = (config.output.save.clone(), config.save_format, disk.clone());
        let create = move || match &save {
            None => Ok(None),
            Some(directory) => {
                let destination = Destination { path: directory, disk: on, timeout: lock_timeout };
                Writer::on(destination, &model.config, &model.layout, format, &model_files).map(Some)
            }
        };
        let (requests, received) = channel();
        let (answer, replies) = channel();
        let work = move || process(create, &received, &answer);
        let thread = std::thread::Builder::new().name("weights".into()).spawn(work);
        thread.map_err(|error| other(not_started("the thread that writes weights", &error)))?;
        let timeout = config.output.checkpoint_timeout;
        Ok(WeightWriter { requests, replies, disk, timeout, began: Instant::now() })
    }

    /// Asks the thread to write `tensor`, which is elements `range` of `unit`.
    pub(super) fn write(&mut self, unit: Buffer, tensor: TensorId, range: Range<usize>) {
        self.send(Request::Tensor(unit, tensor, range));
    }

    /// Asks the thread to flush and publish.
    pub(super) fn finish(&mut self) {
        self.send(Request::Finish);
    }

    fn send(&mut self, request: Request) {
        self.began = Instant::now();
        // Fails only if the thread has ended, which the next `reply` reports.
        let _ = self.requests.send(request);
    }

    /// Waits for the reply to the latest request, at most for `time`. `None` if it has not come.
    ///
    /// # Errors
    /// The thread's, or a timeout of the disk.
    pub(super) fn reply(&self, time: Duration) -> Result<Option<Reply>> {
        match self.replies.recv_timeout(time) {
            Ok(reply) => reply.map(Some).map_err(other),
            Err(RecvTimeoutError::Disconnected) => {
                Err(other("the thread that writes the weights has panicked"))
            }
            Err(RecvTimeoutError::Timeout) if self.began.elapsed() < self.timeout => Ok(None),
            Err(RecvTimeoutError::Timeout) => {
                Err(other(timeout_message(&self.disk, "write the weights", self.timeout)))
            }
        }
    }
}

/// How long a rank that fails waits for its thread to remove an unfinished save.
const GRACE: Duration = Duration::from_secs(1);

impl Drop for WeightWriter {
    fn drop(&mut self) {
        // Closes the channel: the thread then ends, and removes an unfinished save.
        self.requests = channel().0;
        while self.replies.recv_timeout(GRACE).is_ok() {}
    }
}

/// Returns the timeout message: names the oldest pending disk call, or `what` if there is none.
pub(super) fn timeout_message(disk: &Disk, what: &str, timeout: Duration) -> String {
    let call = disk.answers().oldest.map(|call| format!("{} {}", call.kind, call.path.display()));
    let what = call.unwrap_or(what.into());
    format!("the disk did not {what} within {timeout:?} (--checkpoint-timeout)")
}

/// Processes requests until one fails or the channel closes.
fn process(
    create: impl FnOnce() -> checkpoint::Result<Option<Writer>>,
    requests: &Receiver<Request>,
    answer: &Sender<std::result::Result<Reply, String>>,
) {
    let mut writer = match create() {
        Ok(writer) => writer,
        Err(error) => return drop(answer.send(Err(error.to_string()))),
    };
    let mut hasher = blake3::Hasher::new();
    for request in requests {
        let reply = match request {
            Request::Tensor(unit, tensor, range) => {
                let bytes = &unit.bytes()[range.start * size_of::<f32>()..range.end * size_of::<f32>()];
                hasher.update(bytes);
                let values = bytemuck::cast_slice(bytes);
                let written = match &mut writer {
                    Some(writer) => writer.write(tensor, values),
                    None => Ok(()),
                };
                written.map(|()| Reply::Written(unit))
            }
            Request::Finish => {
                let published = match writer.take() {
                    Some(writer) => writer.finish(),
                    None => Ok(()),
                };
                published.map(|()| Reply::Published(hasher.finalize().to_hex().to_string()))
            }
        };
        // Fails if the rank no longer waits, because the disk missed the timeout.
        if answer.send(reply.map_err(|error| error.to_string())).is_err() {
            return;
        }
    }
}
