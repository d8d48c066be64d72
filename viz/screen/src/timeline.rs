//! The events of a run, live or recorded, with random access by position.
//!
//! A recording keeps its events encoded and decodes those that are needed. A live run appends
//! events and discards the oldest. Both keep the state of all ranks at the beginning of every chunk
//! of events, which is so long that the state takes no more memory than the events.

use crate::gaps::Gaps;
use events::{
    CatchUp, Event, EventBatch, Message, Pass, Recording, RecordingError, RunHeader, Snapshot, What,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// The number of events that a live run keeps.
const LIVE_EVENTS: u64 = 200_000;
/// Minimum number of events per chunk.
const CHUNK: usize = 1024;

/// Consecutive events, and the state before them. Events are added to the last chunk until it is
/// long enough.
struct Chunk {
    first: u64,
    count: u64,
    start: Snapshot,
    dropped: u64,
    /// The recording's batches that hold the events.
    batches: Range<usize>,
    /// The events of a live run.
    events: Arc<Vec<Event>>,
}

/// A position at which rank 0 begins a step or a pass over a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The number of events before it.
    pub position: u64,
    /// Its time, in nanoseconds of the run.
    pub at: u64,
    /// Its step.
    pub step: u32,
    /// The pass, unit and micro-batch (in a validation, its batch); `None` at the step's beginning.
    pub pass: Option<(Pass, u16, u16)>,
}

/// How a run ended, unless it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After all planned steps.
    Whole,
    /// Before the last planned step, by request.
    Early,
    /// The stream of a live run stopped without the run's end: its process may have been killed.
    Lost,
}

/// Whether the recording of a run is followed, and may still grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowState {
    /// The run is live, or its recording was read once and for all.
    NotFollowed,
    /// The recording is followed and may still grow.
    Growing,
    /// The recording was followed to its end.
    Complete,
}

/// The events of one run.
pub struct Timeline {
    /// The run's header.
    pub header: Arc<RunHeader>,
    /// The run's name, which distinguishes it from other runs.
    pub title: String,
    /// The state after the latest event.
    pub state: CatchUp,
    /// The marks, ascending.
    pub marks: VecDeque<Mark>,
    /// The gaps that damage has left in a recording.
    pub gaps: Gaps,
    recording: Option<Recording>,
    chunks: VecDeque<Chunk>,
    ended: bool,
    followed: bool,
}

impl Timeline {
    /// Returns a live run without events.
    pub fn live(header: RunHeader, title: &str) -> Self {
        let state = CatchUp::new(header.world_size, header.units.len());
        Timeline {
            gaps: Gaps::new(header.world_size),
            header: Arc::new(header),
            title: title.into(),
            state,
            marks: VecDeque::new(),
            recording: None,
            chunks: VecDeque::new(),
            ended: false,
            followed: false,
        }
    }

    /// Returns the run of a recording.
    ///
    /// # Errors
    /// [`RecordingError`] if a batch is unreadable.
    pub fn recorded(recording: Recording) -> Result<Self, RecordingError> {
        let title = recording.path().file_stem().map(|name| name.to_string_lossy().into_owned());
        let mut timeline = Timeline::live(recording.header().clone(), &title.unwrap_or_default());
        (0..recording.len()).try_for_each(|index| timeline.take_batch(index, &recording))?;
        timeline.recording = Some(recording);
        timeline.ended = true;
        Ok(timeline)
    }

    /// Returns the run of a recording whose file may still grow.
    ///
    /// # Errors
    /// As [`Self::recorded`].
    pub fn followed(recording: Recording) -> Result<Self, RecordingError> {
        let ended = recording.is_complete();
        Ok(Timeline { ended, followed: true, ..Self::recorded(recording)? })
    }

    /// Adds the bytes by which the recording's file has grown.
    ///
    /// # Errors
    /// As [`Self::recorded`].
    pub fn grow(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        let Some(mut recording) = self.recording.take() else { return Ok(()) };
        let known = recording.len();
        let mut result = recording.grow(bytes);
        for index in known..recording.len() {
            result = result.and_then(|()| self.take_batch(index, &recording));
        }
        self.ended = recording.is_complete();
        self.recording = Some(recording);
        result
    }

    /// Applies the recording's batch of number `index`.
    fn take_batch(&mut self, index: usize, recording: &Recording) -> Result<(), RecordingError> {
        let batch = recording.batch(index)?;
        self.begin_chunk(index);
        if recording.has_gap_before(index) {
            self.gaps.open(self.len());
            self.state.snapshot.lose_track();
        }
        if let Some(chunk) = self.account(&batch) {
            chunk.batches.end = index + 1;
        }
        Ok(())
    }

    /// Applies a message of a live run. Returns true if earlier events were discarded because this
    /// viewer missed some.
    pub fn push(&mut self, message: Message) -> bool {
        match message {
            Message::CatchUp(state) => {
                self.restart(*state);
                return true;
            }
            Message::Batch(EventBatch { dropped, events }) => {
                let pieces = events.chunks(CHUNK).map(<[Event]>::to_vec);
                pieces.for_each(|events| self.append(EventBatch { dropped, events }));
            }
            Message::End => self.ended = true,
            Message::Header(_) | Message::Control(_) => {}
        }
        false
    }

    fn restart(&mut self, state: CatchUp) {
        self.chunks.clear();
        self.marks.clear();
        self.state = state;
    }

    /// Begins a chunk, which for a recording holds the batches from `batch` on, if the last chunk
    /// is long enough to justify another stored state.
    fn begin_chunk(&mut self, batch: usize) {
        let fewest = self.state.snapshot.bytes().div_ceil(size_of::<Event>());
        if self.chunks.back().is_none_or(|chunk| chunk.count >= CHUNK.max(fewest) as u64) {
            let (first, start) = (self.len(), self.state.snapshot.clone());
            let (batches, events) = (batch..batch, Arc::default());
            self.chunks.push_back(Chunk { first, count: 0, start, dropped: 0, batches, events });
        }
    }

    fn append(&mut self, batch: EventBatch) {
        self.begin_chunk(0);
        self.forget();
        if let Some(chunk) = self.account(&batch) {
            Arc::make_mut(&mut chunk.events).extend(batch.events);
        }
    }

    fn forget(&mut self) {
        while self.chunks.len() > 1 && self.len() - self.beginning() > LIVE_EVENTS {
            self.chunks.pop_front();
        }
        let beginning = self.beginning();
        while self.marks.front().is_some_and(|mark| mark.position < beginning) {
            self.marks.pop_front();
        }
    }

    /// Applies the events of `batch` to the last chunk and returns it; `None` if there is no chunk.
    fn account(&mut self, batch: &EventBatch) -> Option<&mut Chunk> {
        for event in &batch.events {
            if event.rank == 0 {
                self.mark(event);
            }
            self.gaps.apply(self.len(), event);
            self.state.apply(event);
        }
        self.state.dropped = batch.dropped;
        let chunk = self.chunks.back_mut()?;
        (chunk.count, chunk.dropped) = (chunk.count + batch.events.len() as u64, batch.dropped);
        Some(chunk)
    }

    fn mark(&mut self, event: &Event) {
        let current = self.state.snapshot.ranks.first().map_or(0, |rank| rank.step);
        let (step, pass) = match event.what {
            What::StepStarted { step } => (step, None),
            // An update that continues in the next step's forward belongs to that step.
            What::PassStarted { pass: Pass::Step, .. } if !self.backward_has_begun() => return,
            What::PassStarted { pass: Pass::Evaluate, unit, .. } => {
                (current, Some((Pass::Evaluate, unit, self.validation_batch(unit))))
            }
            What::PassStarted { pass, unit, micro } => (current, Some((pass, unit, micro))),
            _ => return,
        };
        self.marks.push_back(Mark { position: self.len(), at: event.at, step, pass });
    }

    /// Returns the number, within its step, of the validation batch whose pass over `unit` begins.
    /// Events do not carry it; a batch begins with the first unit.
    fn validation_batch(&self, unit: u16) -> u16 {
        match self.marks.back().and_then(|mark| mark.pass) {
            Some((Pass::Evaluate, _, batch)) => batch.saturating_add(u16::from(unit == 0)),
            _ => 0,
        }
    }

    /// True once rank 0 has begun a backward in its step.
    fn backward_has_begun(&self) -> bool {
        let mut passes = self.marks.iter().rev().map_while(|mark| mark.pass);
        passes.any(|(pass, ..)| matches!(pass, Pass::Backward | Pass::Recompute | Pass::Step))
    }

    /// Returns the number of events so far, discarded ones included.
    pub fn len(&self) -> u64 {
        self.state.snapshot.events
    }

    /// True if there is no event yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the position of the oldest event that is kept.
    pub fn beginning(&self) -> u64 {
        self.chunks.front().map_or(self.len(), |chunk| chunk.first)
    }

    /// True if no event will follow.
    pub fn ended(&self) -> bool {
        self.ended || self.state.snapshot.is_over()
    }

    /// Returns how the run ended; `None` if it has not.
    pub fn ending(&self) -> Option<Ending> {
        // If events were dropped, a rank's last one may be among them.
        let lost = self.ended && !self.is_recorded() && self.state.dropped == 0;
        match self.state.snapshot.is_over() {
            false => lost.then_some(Ending::Lost),
            true if self.steps_done().is_some_and(|done| done < self.header.steps) => Some(Ending::Early),
            true => Some(Ending::Whole),
        }
    }

    /// Returns the number of steps done, those before a resumption included; `None` if no step has
    /// begun.
    pub fn steps_done(&self) -> Option<u32> {
        let begun = self.state.snapshot.ranks.iter().filter(|rank| rank.step_started > 0);
        let done = self.state.history.steps.last().map(|record| record.step.saturating_add(1));
        done.or(begun.map(|rank| rank.step).max())
    }

    /// True if the events come from a recording.
    pub fn is_recorded(&self) -> bool {
        self.recording.is_some()
    }

    /// True if the recording ends before the run, and is not expected to grow.
    pub fn truncated(&self) -> bool {
        !self.followed && self.recording.as_ref().is_some_and(|recording| !recording.is_complete())
    }

    /// Returns whether the run's recording is followed, and may still grow.
    pub fn follow_state(&self) -> FollowState {
        match &self.recording {
            Some(recording) if self.followed && recording.is_complete() => FollowState::Complete,
            Some(_) if self.followed => FollowState::Growing,
            _ => FollowState::NotFollowed,
        }
    }

    /// Returns the number of a recording's bytes that are damaged.
    pub fn damaged_bytes(&self) -> u64 {
        self.recording.as_ref().map_or(0, Recording::damaged_bytes)
    }

    /// Returns the batch that holds event `position`, and the position of its first event.
    pub fn events_at(&self, position: u64) -> (u64, Arc<Vec<Event>>) {
        let Some(chunk) = self.chunk(position) else { return (self.len(), Arc::default()) };
        let Some(recording) = &self.recording else { return (chunk.first, chunk.events.clone()) };
        // All batches were decoded when the recording was opened, so this cannot fail.
        let batches = chunk.batches.clone().filter_map(|index| recording.batch(index).ok());
        (chunk.first, Arc::new(batches.flat_map(|batch| batch.events).collect()))
    }

    fn chunk(&self, position: u64) -> Option<&Chunk> {
        let after = self.chunks.partition_point(|chunk| chunk.first + chunk.count <= position);
        self.chunks.get(after)
    }

    /// Returns the latest state kept at or before `position`.
    pub fn keyframe(&self, position: u64) -> &Snapshot {
        self.chunk(position).map_or(&self.state.snapshot, |chunk| &chunk.start)
    }

    /// Returns the number of events lost up to `position`.
    pub fn dropped(&self, position: u64) -> u64 {
        self.chunk(position).map_or(self.state.dropped, |chunk| chunk.dropped)
    }
}
