//! Checkpoints while training continues: every rank writes its file, and rank 0 publishes the
//! files.
//!
//! A save has two phases, in each of which a thread works for the rank: every rank writes; then
//! rank 0 publishes, or removes the files of a failed save. Before every update the ranks
//! exchange whether their threads are done, and enter the next phase together, so that all ranks
//! agree on the state of a save. Ranks that wait for a save exchange heartbeats: a slow disk causes
//! no timeout, but a rank that hangs does.

mod publish;
mod states;
mod work;

use super::exchange::exchange_busy;
use super::weight_writer::timeout_message;
use crate::checkpoints::disk;
use crate::plan::Plan;
use crate::rank_error::{Result, other};
use crate::resume::TrainingProgress;
use crate::stage::StageStates;
use checkpoint::{Checkpoints, FileRecord, Manifest, ModelFiles, RunLock, ShardLayout, ShardWriter};
use collectives::{ControlChannel, Topic};
use device::{Buffer, DType};
use prediction::Saving;
use serde_json::Value;
use settings::cli::OutputArgs;
use sharding::{Optimizer, Partition, Rank, TrainingState, UnitId};
use states::PieceBuffers;
use std::cell::Cell;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use work::{PeerResult, Work, Writing, write_copy};

/// How often a rank that waits for its thread checks whether it is done.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// How often ranks that wait for a save exchange heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_millis(100);

/// How long a run that fails waits for its threads.
pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// One rank's side of all saves of a run.
pub(super) struct Saver {
    rank: Rc<Rank>,
    checkpoints: Checkpoints,
    lock: Option<Arc<RunLock>>,
    /// The part that all manifests have in common, on the rank that publishes.
    manifest: Option<Manifest>,
    /// The small files that are saved with the weights.
    model_files: Arc<ModelFiles>,
    keep: usize,
    timeout: Duration,
    /// Damaged checkpoints that are newer than the resumed one; they do not count.
    damaged: Vec<String>,
    layout: Arc<ShardLayout>,
    /// Per unit: the elements that this rank saves.
    parts: Vec<Range<usize>>,
    /// The maximum number of elements that any rank saves: the length of `copy`.
    elements: usize,
    /// A buffer for a copy of this rank's elements; `None` while a thread has it.
    copy: Option<Buffer>,
    /// Buffers through which the elements are written, if they are not copied.
    pieces: Option<PieceBuffers>,
    /// A thread that has missed the save's timeout, and still has the buffer.
    late: Option<Writing>,
    /// Number of saves begun, so that each has a directory of its own.
    attempts: u32,
    phase: SavePhase,
    /// The channel on which ranks exchange the progress of a save.
    channel: ControlChannel,
    /// The time of the last exchange.
    last_exchange: Cell<Instant>,
}

/// The phase of a save.
enum SavePhase {
    Idle,
    /// All ranks write.
    Writing(Save, Writing),
    /// Rank 0 publishes.
    Publishing(Save, Option<Work<PeerResult<()>>>),
    /// Rank 0 removes the files of a failed save.
    Removing(SaveOutcome, Option<Work<()>>),
}

/// A save in progress.
struct Save {
    steps: u32,
    partial: PathBuf,
    /// The training progress that its manifest records.
    progress: Value,
}

/// The outcome of a save, the same on all ranks.
pub(super) struct SaveOutcome {
    /// The number of steps that were done when it began.
    pub(super) steps: u32,
    /// An error says why the save failed.
    pub(super) result: PeerResult<()>,
}

impl Saver {
    /// Returns the saver of `rank`, which holds `optimizer`. As `plan` says, allocates a buffer for
    /// a copy of the rank's states, or buffers through which they are streamed. `None` if the run
    /// saves no checkpoints.
    ///
    /// # Errors
    /// If main memory is full.
    pub(super) fn new(plan: &Plan, rank: Rc<Rank>, optimizer: &Optimizer) -> Result<Option<Self>> {
        let Some(checkpoints) = &plan.checkpoints else { return Ok(None) };
        let disk = Arc::new(disk(&plan.config, rank.number()));
        let OutputArgs { checkpoint_keep: keep, checkpoint_timeout: timeout, .. } = plan.config.output;
        let units = 0..plan.partition.units.len();
        let parts: Vec<_> =
            units.map(|unit| part(&rank, &plan.partition, unit, optimizer.slice(unit))).collect();
        let elements: usize = parts.iter().map(|(part, _)| TrainingState::ALL.len() * part).sum();
        let parts: Vec<Range<usize>> = parts.into_iter().map(|(_, range)| range).collect();
        let ranges = |(unit, part): (UnitId, &Range<usize>)| {
            let parts = plan.partition.parts(unit, part);
            parts.map(|part| checkpoint::ElementRange { tensor: part.tensor, range: part.elements }).collect()
        };
        let groups: Vec<_> = parts.iter().enumerate().map(ranges).collect();
        let (copy, pieces) = match plan.saving {
            Saving::Copying => (Some(copy_buffer(&rank, elements)?), None),
            Saving::Streaming => (None, Some(PieceBuffers::new(&rank, elements)?)),
            Saving::Never => return Ok(None),
        };
        Ok(Some(Saver {
            checkpoints: Checkpoints::new(checkpoints.directory(), disk),
            lock: plan.lock.clone(),
            manifest: (rank.number() == 0).then(|| publish::manifest(plan)).transpose()?,
            model_files: plan.model_files.clone(),
            keep,
            timeout,
            damaged: plan.damaged(),
            layout: Arc::new(ShardLayout::new(&plan.model.layout, &groups)),
            parts,
            elements,
            copy,
            pieces,
            late: None,
            attempts: 0,
            phase: SavePhase::Idle,
            channel: rank.group.control_channel(Topic::Saving),
            last_exchange: Cell::new(Instant::now()),
            rank,
        }))
    }

    /// True while a thread of this rank works on a save.
    pub(super) fn is_busy(&self) -> bool {
        match &self.phase {
            SavePhase::Writing(_, work) => work.is_busy(self.timeout),
            SavePhase::Publishing(_, Some(work)) => work.is_busy(self.timeout),
            SavePhase::Removing(_, Some(work)) => work.is_busy(self.timeout),
            SavePhase::Idle | SavePhase::Publishing(_, None) | SavePhase::Removing(_, None) => false,
        }
    }

    /// True if no save is in progress.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, SavePhase::Idle)
    }

    /// Begins a save of `states`, which training has reached with `progress`. All ranks call it
    /// while no save is in progress. Returns the outcome if the save has ended already.
    ///
    /// # Errors
    /// A kernel's or a transfer's, or the group's failure.
    pub(super) fn begin(
        &mut self,
        states: StageStates<'_>,
        progress: TrainingProgress,
    ) -> Result<Option<SaveOutcome>> {
        self.attempts += 1;
        let partial = self.checkpoints.partial(progress.steps, self.attempts);
        let (steps, progress) = (progress.steps, serde_json::to_value(progress).map_err(other)?);
        let save = Save { steps, partial, progress };
        let name = format!("rank-{:05}-of-{:05}.safetensors", self.rank.number(), self.rank.world_size());
        let (checkpoints, layout, partial) =
            (self.checkpoints.clone(), self.layout.clone(), save.partial.clone());
        let create = move || {
            checkpoints.disk().create_directory(&partial)?;
            ShardWriter::create(checkpoints.disk(), &partial, &name, &layout)
        };
        if let Some(pieces) = self.pieces.take() {
            let work = self.stream(&states, pieces, create)?;
            self.phase = SavePhase::Writing(save, work);
            return self.wait();
        }
        let work = match self.take_copy_buffer()? {
            None => Work::start(|| (None, Err("a write of the previous checkpoint still hangs".into()))),
            Some(mut copy) => {
                self.copy(&states, &mut copy)?;
                let bytes = self.layout.data_bytes();
                Work::start(move || write_copy(copy, bytes, create))
            }
        };
        self.phase = SavePhase::Writing(save, work);
        Ok(None)
    }

    /// Returns the buffer for a copy; `None` if a write that hangs still has it. Allocates it again
    /// if a thread has lost it.
    fn take_copy_buffer(&mut self) -> Result<Option<Buffer>> {
        if let Some(late) = self.late.take_if(|work| work.is_done()) {
            self.copy = late.take().ok().and_then(|(copy, _)| copy);
        }
        if self.copy.is_none() && self.late.is_none() {
            self.copy = Some(copy_buffer(&self.rank, self.elements)?);
        }
        Ok(self.copy.take())
    }

    /// Sends the other ranks a heartbeat, saying that this one is busy, if the last exchange was a
    /// while ago.
    fn send_heartbeat_if_due(&self) -> Result<()> {
        if self.last_exchange.get().elapsed() >= HEARTBEAT {
            self.exchange_busy(true)?;
        }
        Ok(())
    }

    /// Exchanges as [`exchange_busy`] does, and notes when.
    fn exchange_busy(&self, busy: bool) -> Result<bool> {
        let any_busy = exchange_busy(&self.channel, busy)?;
        self.last_exchange.set(Instant::now());
        Ok(any_busy)
    }

    /// Enters the next phase. All ranks call it, once none is busy. Returns the outcome if the save
    /// has ended.
    ///
    /// # Errors
    /// The group's failure.
    pub(super) fn advance(&mut self) -> Result<Option<SaveOutcome>> {
        match std::mem::replace(&mut self.phase, SavePhase::Idle) {
            SavePhase::Idle => Ok(None),
            SavePhase::Writing(save, work) => {
                let mine = self.take_written(work);
                self.written(save, mine)
            }
            SavePhase::Publishing(save, work) => {
                let mine = match work {
                    None => Ok(()),
                    Some(work) if work.is_done() => work.take().unwrap_or_else(Err),
                    Some(_) => Err(self.timeout_message()),
                };
                let mine = mine.map_err(|why| format!("rank {}: {why}", self.rank.number()));
                let result = self.exchange(&mine)?.swap_remove(0);
                Ok(Some(SaveOutcome { steps: save.steps, result }))
            }
            // The next run removes files that are left.
            SavePhase::Removing(outcome, _) => Ok(Some(outcome)),
        }
    }

    /// Returns the record of the file that the thread has written, and takes the buffer back.
    fn take_written(&mut self, work: Writing) -> PeerResult<FileRecord> {
        if !work.is_done() {
            self.late = Some(work);
            return Err(self.timeout_message());
        }
        let (copy, written) = work.take().unwrap_or_else(|panicked| (None, Err(panicked)));
        self.copy = copy;
        written
    }

    /// Returns the message for a disk that missed the timeout.
    fn timeout_message(&self) -> String {
        timeout_message(self.checkpoints.disk(), "write the checkpoint", self.timeout)
    }

    /// Exchanges the ranks' file records. If all ranks have written their file, rank 0 begins to
    /// publish.
    fn written(&mut self, save: Save, mine: PeerResult<FileRecord>) -> Result<Option<SaveOutcome>> {
        let all = self.exchange(&mine)?;
        let failed = all.iter().enumerate().find_map(|(rank, written)| Some((rank, written.as_ref().err()?)));
        self.phase = match failed {
            Some((rank, error)) => self.start_removing(save, format!("rank {rank}: {error}")),
            None => self.start_publishing(save, all.into_iter().filter_map(PeerResult::ok).collect()),
        };
        Ok(None)
    }

    fn exchange<T>(&self, mine: &PeerResult<T>) -> Result<Vec<PeerResult<T>>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let all = self.channel.exchange(&serde_json::to_vec(mine).map_err(other)?)?;
        all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(other)).collect()
    }

    /// Blocks until no save is in progress. All ranks call it. Returns the outcome of the last
    /// save; `None` if none was in progress.
    ///
    /// # Errors
    /// The group's failure.
    pub(super) fn wait(&mut self) -> Result<Option<SaveOutcome>> {
        let mut outcome = None;
        while !self.is_idle() {
            let since = Instant::now();
            while self.is_busy() && since.elapsed() < HEARTBEAT {
                std::thread::sleep(POLL_INTERVAL);
            }
            if !self.exchange_busy(self.is_busy())? {
                outcome = self.advance()?;
            }
        }
        Ok(outcome)
    }
}

impl Drop for Saver {
    /// Waits for a thread that publishes or writes, unless the disk takes long.
    fn drop(&mut self) {
        let since = Instant::now();
        while self.is_busy() && since.elapsed() < SHUTDOWN_GRACE {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Returns the maximum number of elements of `unit` that a rank saves, and those that `rank` saves,
/// without padding: an equal part of `slice`, which it updates and other ranks may hold too.
fn part(rank: &Rank, partition: &Partition, unit: UnitId, slice: Range<usize>) -> (usize, Range<usize>) {
    let holders = rank.world_size() / partition.shards;
    let part = slice.len().div_ceil(holders);
    let start = slice.start + rank.number() / partition.shards * part;
    // A slice that begins in the padding saves nothing.
    let end = (start + part).min(slice.end).min(partition.units[unit].parameters).max(slice.start);
    (part, start.min(end)..end)
}

/// Allocates a buffer in main memory for `elements` f32, and touches all of its pages.
fn copy_buffer(rank: &Rank, elements: usize) -> Result<Buffer> {
    let mut buffer = rank.transfers.staging(DType::F32, elements)?;
    buffer.bytes_mut().fill(0);
    Ok(buffer)
}
