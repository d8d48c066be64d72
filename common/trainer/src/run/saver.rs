//! Checkpoints while training goes on: every rank writes its part, and rank 0 publishes what all have
//! written.
//!
//! A save goes through two phases, in each of which a thread works for the rank: writing, on every
//! rank; then publishing, on rank 0. Ranks learn from each other at the end of every step whether all
//! threads are done, and go on to the next phase together. So all of them know the same of a save.

use super::places;
use crate::checkpoints::disk;
use crate::plan::Plan;
use crate::rank_error::{Result, other};
use crate::resume::{Writer, identity};
use checkpoint::{CheckpointError, Checkpoints, FileRecord, Manifest, RunLock, ShardLayout, ShardWriter};
use collectives::{ControlChannel, Topic};
use device::{Buffer, DType};
use offload::Cargo;
use planner::Saving;
use serde_json::Value;
use sharding::{
    AdamWShard, Optimizer, Partition, Rank, StateRest, TrainingState, UnitBuffers, UnitId, read_stretch,
};
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a rank that waits for its thread looks whether it is done.
const LOOK: Duration = Duration::from_millis(1);

/// How long a run that fails waits for its threads.
const LEAVING: Duration = Duration::from_secs(5);

/// One rank's side of all saves of a run.
pub(super) struct Saver {
    rank: Rc<Rank>,
    checkpoints: Checkpoints,
    lock: Option<Arc<RunLock>>,
    keep: usize,
    timeout: Duration,
    /// Newer checkpoints than the resumed one, which are damaged and do not count.
    damaged: Vec<String>,
    layout: Arc<ShardLayout>,
    /// Per unit: the elements that this rank saves.
    parts: Vec<Range<usize>>,
    /// Most elements that are written at a time, if not all are copied.
    piece: usize,
    /// Room for a copy of all of them, unless a thread has it.
    room: Option<Buffer>,
    copies: bool,
    /// Saves begun, so that each has a directory of its own.
    attempts: u32,
    phase: Phase,
    /// Where ranks meet to go on to the next phase, without a timeout.
    channel: ControlChannel,
}

/// How far a save is.
enum Phase {
    Idle,
    /// All ranks write.
    Writing(Save, Work<(Option<Buffer>, Written)>),
    /// Rank 0 publishes.
    Publishing(Save, Option<Work<Outcome>>),
}

/// What a rank has written, or why not.
type Written = std::result::Result<FileRecord, String>;
/// Why a save failed.
type Outcome = std::result::Result<(), String>;

/// A save that is under way.
struct Save {
    steps: u32,
    partial: PathBuf,
    /// Its manifest but for the files.
    manifest: Manifest,
}

/// How a save ended, on all ranks alike.
pub(super) struct Saved {
    /// Steps that were done when it began.
    pub(super) steps: u32,
    /// Why there is no checkpoint of them.
    pub(super) outcome: Outcome,
}

/// Work of a thread.
struct Work<T> {
    thread: JoinHandle<T>,
    began: Instant,
}

impl<T: Send + 'static> Work<T> {
    fn start(work: impl FnOnce() -> T + Send + 'static) -> Result<Self> {
        let thread = std::thread::Builder::new().name("checkpoint".into()).spawn(work).map_err(other)?;
        Ok(Work { thread, began: Instant::now() })
    }

    /// True until the work is done or has taken longer than `timeout`.
    fn is_busy(&self, timeout: Duration) -> bool {
        !self.thread.is_finished() && self.began.elapsed() < timeout
    }

    /// Returns what the work returned; `Err` with words if it is not done, or has panicked.
    fn take(self) -> std::result::Result<T, String> {
        if !self.thread.is_finished() {
            return Err(format!("the disk has not taken it after {} s", self.began.elapsed().as_secs()));
        }
        self.thread.join().map_err(|_| "the thread that writes it has panicked".into())
    }
}

/// A buffer in main memory that a thread reads.
struct Room(Buffer);

impl AsRef<[u8]> for Room {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Saver {
    /// The saver of `rank`, which holds `states`, with room for a copy of its part if `plan` says so.
    ///
    /// # Errors
    /// If main memory is full.
    pub(super) fn new(plan: &Plan, rank: Rc<Rank>, optimizer: &Optimizer) -> Result<Option<Self>> {
        let (Some(checkpoint), Some(checkpoints)) = (&plan.config.checkpoint, &plan.checkpoints) else {
            return Ok(None);
        };
        let units = 0..plan.partition.units.len();
        let parts: Vec<_> =
            units.map(|unit| part(&rank, &plan.partition, unit, optimizer.slice(unit))).collect();
        let room: usize = parts.iter().map(|(part, _)| TrainingState::ALL.len() * part).sum();
        let parts: Vec<Range<usize>> = parts.into_iter().map(|(_, range)| range).collect();
        let runs = |(unit, part): (UnitId, &Range<usize>)| {
            let run = |(tensor, range)| checkpoint::Run { tensor, range };
            plan.partition.tensors_in(unit, part).map(run).collect()
        };
        let stretches: Vec<_> = parts.iter().enumerate().map(runs).collect();
        let copies = plan.saving == Saving::Copying;
        let room = copies.then(|| rank.transfers.staging(DType::F32, room)).transpose()?;
        Ok(Some(Saver {
            checkpoints: Checkpoints::new(checkpoints.directory(), Arc::new(disk(checkpoint))),
            lock: plan.lock.clone(),
            keep: checkpoint.keep,
            timeout: checkpoint.timeout,
            damaged: plan.damaged(),
            layout: Arc::new(ShardLayout::new(&plan.model.layout, &stretches)),
            parts,
            piece: places(plan).piece.min(planner::PIECE as usize),
            room: room.map(touched),
            copies,
            attempts: 0,
            phase: Phase::Idle,
            channel: rank.group.control_channel(Topic::Saving),
            rank,
        }))
    }

    /// True while a thread of this rank works on a save.
    pub(super) fn is_busy(&self) -> bool {
        match &self.phase {
            Phase::Writing(_, work) => work.is_busy(self.timeout),
            Phase::Publishing(_, Some(work)) => work.is_busy(self.timeout),
            Phase::Idle | Phase::Publishing(_, None) => false,
        }
    }

    /// True if no save is under way.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Begins a save of `states` after `steps` steps; `manifest` is its manifest but for the files.
    /// All ranks call it, while no save is under way. Returns how the save ended, if it has.
    ///
    /// # Errors
    /// A kernel's or a transfer's, or the group's failure.
    pub(super) fn begin(
        &mut self,
        states: (&Optimizer, &UnitBuffers),
        steps: u32,
        manifest: Manifest,
    ) -> Result<Option<Saved>> {
        self.attempts += 1;
        let partial = self.checkpoints.partial(steps, self.attempts);
        let (save, name) = (Save { steps, partial, manifest }, file_name(&self.rank));
        let (checkpoints, layout, partial) =
            (self.checkpoints.clone(), self.layout.clone(), save.partial.clone());
        let create = move || {
            checkpoints.disk().create_directory(&partial)?;
            ShardWriter::create(checkpoints.disk(), &partial, &name, &layout)
        };
        if !self.copies {
            let written = self.stream(states, create)?;
            self.phase = Phase::Writing(save, Work::start(move || (None, written))?);
            return self.settle();
        }
        let work = match self.room.take() {
            None => Work::start(|| (None, Err("the disk has not given back the save before".into())))?,
            Some(mut room) => {
                self.copy(states, &mut room)?;
                let bytes = self.layout.data_bytes();
                Work::start(move || write_copy(room, bytes, create))?
            }
        };
        self.phase = Phase::Writing(save, work);
        Ok(None)
    }

    /// Copies what this rank saves to `room`, as its file has it.
    fn copy(&self, (optimizer, parameters): (&Optimizer, &UnitBuffers), room: &mut Buffer) -> Result<()> {
        let mut at = 0;
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, rests) = optimizer.state(unit, state, parameters)?;
                let StateRest::Here(here) = rests else { return Err(other("a state on disk is not copied")) };
                let here = here.slice(part.start - slice.start..part.end - slice.start);
                self.rank
                    .kernels()
                    .copy(room.slice_mut(at..at + part.len()), here)
                    .map_err(sharding::Error::from)?;
                at += part.len();
            }
        }
        Ok(())
    }

    /// Writes what this rank saves piece by piece. A failure to write is told in the result, one to
    /// read is an error.
    fn stream(
        &self,
        (optimizer, parameters): (&Optimizer, &UnitBuffers),
        create: impl FnOnce() -> checkpoint::Result<ShardWriter>,
    ) -> Result<Written> {
        let mut writer = create();
        for (unit, part) in self.parts.iter().enumerate() {
            for state in TrainingState::ALL {
                let (slice, rests) = optimizer.state(unit, state, parameters)?;
                let part = part.start - slice.start..part.end - slice.start;
                match rests {
                    StateRest::Here(here) => self.stream_here(here.slice(part), &mut writer)?,
                    StateRest::Disk(class, stretches) => {
                        for (range, extent) in stretches {
                            let read = read_stretch(&self.rank, Cargo { class, unit }, range.len(), extent)?;
                            let (start, end) = (part.start.max(range.start), part.end.min(range.end));
                            if start < end {
                                append(&mut writer, read, start - range.start..end - range.start);
                            }
                        }
                    }
                }
            }
        }
        Ok(writer.and_then(ShardWriter::finish).map_err(words))
    }

    /// Writes elements in memory through a buffer of at most [`Saver::piece`] of them.
    fn stream_here(
        &self,
        here: device::View<'_>,
        writer: &mut checkpoint::Result<ShardWriter>,
    ) -> Result<()> {
        for range in AdamWShard::cut(here.len(), self.piece) {
            let mut staging = self.rank.transfers.staging(DType::F32, range.len())?;
            let elements = range.len();
            self.rank
                .kernels()
                .copy(staging.slice_mut(0..elements), here.slice(range))
                .map_err(sharding::Error::from)?;
            append(writer, staging, 0..elements);
        }
        Ok(())
    }

    /// Goes on to the next phase. All ranks call it, once none is busy. Returns how the save ended,
    /// if it has.
    ///
    /// # Errors
    /// The group's failure.
    pub(super) fn advance(&mut self) -> Result<Option<Saved>> {
        match std::mem::replace(&mut self.phase, Phase::Idle) {
            Phase::Idle => Ok(None),
            Phase::Writing(save, work) => {
                let (room, mine) = work.take().unwrap_or_else(|late| (None, Err(late)));
                self.room = room.or(self.room.take());
                self.written(save, mine)
            }
            Phase::Publishing(save, work) => {
                let mine = work.map_or(Ok(()), |work| work.take().unwrap_or_else(Err));
                let outcome = self.exchange(&mine)?.swap_remove(0);
                Ok(Some(Saved { steps: save.steps, outcome }))
            }
        }
    }

    /// All ranks tell what they have written. If all have, rank 0 begins to publish.
    fn written(&mut self, save: Save, mine: Written) -> Result<Option<Saved>> {
        let all = self.exchange(&mine)?;
        let failed = all.iter().enumerate().find_map(|(rank, written)| Some((rank, written.as_ref().err()?)));
        if let Some((rank, error)) = failed {
            if self.leads() {
                // What stays is removed by the next run. The disk may have failed for good.
                let _ = self.checkpoints.disk().remove_directory(&save.partial);
            }
            let outcome = Err(format!("rank {rank}: {error}"));
            return Ok(Some(Saved { steps: save.steps, outcome }));
        }
        let files = all.into_iter().filter_map(Written::ok).collect();
        let manifest = Manifest { files, ..save.manifest.clone() };
        let (lock, checkpoints) = (self.lock.clone(), self.checkpoints.clone());
        let (partial, steps, keep, damaged) =
            (save.partial.clone(), save.steps, self.keep, self.damaged.clone());
        let publish = move || {
            lock.iter().try_for_each(|lock| lock.check())?;
            let name = checkpoints.publish(&partial, steps, &manifest)?;
            // What could not be removed now is the next time.
            let _ = checkpoints.prune(&name, keep, &damaged);
            checkpoint::Result::Ok(())
        };
        let work = self.leads().then(|| Work::start(move || publish().map_err(words))).transpose()?;
        self.phase = Phase::Publishing(save, work);
        Ok(None)
    }

    fn leads(&self) -> bool {
        self.rank.number() == 0
    }

    fn exchange<T>(
        &self,
        mine: &std::result::Result<T, String>,
    ) -> Result<Vec<std::result::Result<T, String>>>
    where
        T: serde::Serialize + serde::de::DeserializeOwned,
    {
        let all = self.channel.exchange(&serde_json::to_vec(mine).map_err(other)?)?;
        all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(other)).collect()
    }

    /// Blocks until no save is under way. All ranks call it. Returns how the last one ended, if one
    /// was under way.
    ///
    /// # Errors
    /// The group's failure.
    pub(super) fn settle(&mut self) -> Result<Option<Saved>> {
        let mut ended = None;
        while !self.is_idle() {
            while self.is_busy() {
                std::thread::sleep(LOOK);
            }
            ended = self.advance()?;
        }
        Ok(ended)
    }
}

impl Drop for Saver {
    /// Lets a thread that publishes finish, and one that writes give its room back, if the disk takes
    /// it soon.
    fn drop(&mut self) {
        let since = Instant::now();
        while self.is_busy() && since.elapsed() < LEAVING {
            std::thread::sleep(LOOK);
        }
    }
}

/// The elements of `unit` that `rank` saves, without padding, and the most that a rank saves of it: an
/// equal part of `slice`, which it updates and other ranks may hold too.
fn part(rank: &Rank, partition: &Partition, unit: UnitId, slice: Range<usize>) -> (usize, Range<usize>) {
    let holders = rank.world_size() / partition.shards;
    let part = slice.len().div_ceil(holders);
    let start = slice.start + rank.number() / partition.shards * part;
    let end = (start + part).min(slice.end).min(partition.units[unit].parameters);
    (part, start.min(end)..end)
}

/// The name of `rank`'s file.
fn file_name(rank: &Rank) -> String {
    format!("rank-{:05}-of-{:05}.safetensors", rank.number(), rank.world_size())
}

/// `buffer`, once all of its pages are there.
fn touched(mut buffer: Buffer) -> Buffer {
    buffer.bytes_mut().fill(0);
    buffer
}

/// Writes a copy and gives its room back.
fn write_copy(
    room: Buffer,
    bytes: usize,
    create: impl FnOnce() -> checkpoint::Result<ShardWriter>,
) -> (Option<Buffer>, Written) {
    match create() {
        Ok(writer) => {
            let (room, written) = writer.write_all(Room(room), bytes);
            (room.map(|Room(buffer)| buffer), written.map_err(words))
        }
        Err(error) => (Some(room), Err(words(error))),
    }
}

/// Appends elements `range` of `buffer`, unless the writer has failed.
fn append(writer: &mut checkpoint::Result<ShardWriter>, buffer: Buffer, range: Range<usize>) {
    struct Elements(Buffer, Range<usize>);
    impl AsRef<[u8]> for Elements {
        fn as_ref(&self) -> &[u8] {
            let Elements(buffer, Range { start, end }) = self;
            &buffer.bytes()[start * size_of::<f32>()..end * size_of::<f32>()]
        }
    }
    if let Ok(open) = writer
        && let Err(error) = open.append(Elements(buffer, range)).wait()
    {
        *writer = Err(error.into());
    }
}

fn words(error: CheckpointError) -> String {
    error.to_string()
}

/// What `plan`'s run says of itself in a manifest, after `progress`.
pub(super) fn manifest(plan: &Plan, progress: Value) -> Result<Manifest> {
    Ok(Manifest {
        progress,
        identity: identity(&plan.config, &plan.model, &plan.data),
        record: serde_json::to_value(record(plan)).map_err(other)?,
        block_bytes: checkpoint::BLOCK as u64,
        files: Vec::new(),
    })
}

fn record(plan: &Plan) -> Writer {
    let (offload, model) = (&plan.config.offload, &plan.model.config);
    let strategy = plan.config.strategy.or(plan.stage.strategies.first().copied());
    Writer {
        stage: plan.stage.name.into(),
        strategy: strategy.map(|strategy| strategy.label().into()),
        ranks: plan.config.world_size,
        places: [offload.optimizer, offload.parameters].map(|place| planner::place_word(place).into()),
        max_positions: Some(model.max_positions.max(model.sequence_length)),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}
