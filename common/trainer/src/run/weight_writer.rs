//! The thread of rank 0 that hashes and writes the weights, so that ranks can tell each other while
//! it works: a disk that takes long makes no rank miss another's timeout.

use crate::plan::Plan;
use crate::rank_error::{Result, other};
use checkpoint::Writer;
use device::Buffer;
use model::TensorId;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use storage::Disk;

/// How long a save waits for another writer, or a probe, that holds its directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// What the thread is given.
enum Job {
    /// A tensor, in these elements of a unit.
    Tensor(Buffer, TensorId, Range<usize>),
    /// To flush and publish.
    Finish,
}

/// What the thread has done.
pub(super) enum Done {
    /// It has written a tensor, and gives the unit back.
    Written(Buffer),
    /// All is published; the hash of the weights.
    Published(String),
}

/// Rank 0's side of the thread.
pub(super) struct WeightWriter {
    jobs: Sender<Job>,
    done: Receiver<std::result::Result<Done, String>>,
    disk: Arc<Disk>,
    /// How long the disk may take for one job.
    timeout: Duration,
    began: Instant,
}

impl WeightWriter {
    /// Starts the thread, which writes nothing without `--save`.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(plan: &Plan) -> Result<Self> {
        let config = &plan.config;
        let disk = Arc::new(match config.save_faults.clone() {
            none if none.is_empty() => Disk::new(1),
            faults => Disk::with_faults(1, faults),
        });
        let (model, companions) = (plan.model.clone(), plan.companions.clone());
        // A disk that is late is named by another deadline.
        let patience = LOCK_TIMEOUT.min(config.output.checkpoint_timeout / 2);
        let (save, format, on) = (config.output.save.clone(), config.save_format, disk.clone());
        let create = move || match &save {
            None => Ok(None),
            Some(directory) => {
                Writer::on((on, patience), directory, (&model.config, &model.layout), format, &companions)
                    .map(Some)
            }
        };
        let (jobs, given) = channel();
        let (tell, done) = channel();
        let work = move || write(create, &given, &tell);
        std::thread::Builder::new().name("weights".into()).spawn(work).map_err(other)?;
        let timeout = config.output.checkpoint_timeout;
        Ok(WeightWriter { jobs, done, disk, timeout, began: Instant::now() })
    }

    /// Gives the thread `tensor`, which is elements `range` of `unit`.
    pub(super) fn give(&mut self, unit: Buffer, tensor: TensorId, range: Range<usize>) {
        self.begin(Job::Tensor(unit, tensor, range));
    }

    /// Asks the thread to flush and publish.
    pub(super) fn finish(&mut self) {
        self.begin(Job::Finish);
    }

    fn begin(&mut self, job: Job) {
        self.began = Instant::now();
        // Fails only if the thread has ended, which the next look says.
        let _ = self.jobs.send(job);
    }

    /// Returns what the thread has done with its latest job; waits for that, at most for `time`.
    ///
    /// # Errors
    /// The writer's, or that the disk has taken too long.
    pub(super) fn done(&self, time: Duration) -> Result<Option<Done>> {
        match self.done.recv_timeout(time) {
            Ok(done) => done.map(Some).map_err(other),
            Err(RecvTimeoutError::Disconnected) => {
                Err(other("the thread that writes the weights has panicked"))
            }
            Err(RecvTimeoutError::Timeout) if self.began.elapsed() < self.timeout => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(other(late(&self.disk, "write the weights", self.timeout))),
        }
    }
}

/// How long a rank that gives up waits for its thread to remove what it has written.
const GRACE: Duration = Duration::from_secs(1);

impl Drop for WeightWriter {
    fn drop(&mut self) {
        // The thread ends where no jobs are left, and removes an unfinished save.
        self.jobs = channel().0;
        while self.done.recv_timeout(GRACE).is_ok() {}
    }
}

/// Says what `disk` has not done in time; `what`, if no call to it is under way.
pub(super) fn late(disk: &Disk, what: &str, timeout: Duration) -> String {
    let call = disk.answers().oldest.map(|call| format!("{} {}", call.kind, call.path.display()));
    let what = call.unwrap_or(what.into());
    format!("the disk did not {what} within {timeout:?} (--checkpoint-timeout)")
}

/// Does the jobs that are given, until one fails or the rank gives none any more.
fn write(
    create: impl FnOnce() -> checkpoint::Result<Option<Writer>>,
    jobs: &Receiver<Job>,
    tell: &Sender<std::result::Result<Done, String>>,
) {
    let mut writer = match create() {
        Ok(writer) => writer,
        Err(error) => return drop(tell.send(Err(error.to_string()))),
    };
    let mut hasher = blake3::Hasher::new();
    for job in jobs {
        let done = match job {
            Job::Tensor(unit, tensor, range) => {
                let bytes = &unit.bytes()[range.start * size_of::<f32>()..range.end * size_of::<f32>()];
                hasher.update(bytes);
                let values = bytemuck::cast_slice(bytes);
                let written = writer.as_mut().map_or(Ok(()), |writer| writer.write(tensor, values));
                written.map(|()| Done::Written(unit))
            }
            Job::Finish => {
                let published = writer.take().map_or(Ok(()), Writer::finish);
                published.map(|()| Done::Published(hasher.finalize().to_hex().to_string()))
            }
        };
        // The rank no longer waits if the disk was late.
        if tell.send(done.map_err(|error| error.to_string())).is_err() {
            return;
        }
    }
}
