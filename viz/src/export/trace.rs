//! Writes a recording in the Chrome trace format, which Perfetto also reads: one process per rank,
//! one track per stream, as many per route between places as have transfers at a time, memory by
//! class as counters, and arrows between ranks. Times are microseconds.

mod entry;
mod flows;
mod idle;
mod transfers;

use crate::{failure, places};
use entry::{COMMUNICATION, COMPUTE, complete, instant, metadata, microseconds, thread};
use events::event::NO_UNIT;
use events::{
    Class, CollectiveEvent, Event, Operation, Place, Progress, Recording, RecordingError, RunHeader,
    Snapshot, What, Work,
};
use flows::{Part, Parts};
use idle::IdleClock;
use serde_json::{Value, json};
use std::collections::HashMap;
use transfers::TransferEntry;

/// The spans of a rank that a later event will close.
#[derive(Default)]
struct OpenSpans {
    step: u32,
    pass: Option<(u64, String, &'static str)>,
    idle: IdleClock,
    collectives: HashMap<(u16, u64), Moving>,
    live: [[u64; Class::ALL.len()]; Place::ALL.len()],
    /// The entry of the latest work of each kind, whose times a later [`What::Ran`] may correct.
    queued: HashMap<Work, usize>,
}

/// A collective that has not finished.
#[derive(Default)]
struct Moving {
    issued: u64,
    /// The rank's idle time by then.
    idle: u64,
    started: Option<u64>,
    /// When a simulated link delivered it.
    delivered: Option<u64>,
}

/// A trace, as far as its events are read.
struct Trace<'a> {
    header: &'a RunHeader,
    entries: Vec<Value>,
    transfers: Vec<TransferEntry>,
    /// When transfers ran, of those whose GPU reported it: by rank and number.
    ran: HashMap<(u32, u64), (u64, u64)>,
    parts: Parts,
    ending: Snapshot,
    /// By rank.
    open: Vec<OpenSpans>,
}

/// Returns the trace of `recording` as JSON.
///
/// # Errors
/// [`RecordingError`] if a batch is unreadable.
pub fn render(recording: &Recording) -> Result<String, RecordingError> {
    let mut trace = Trace::new(recording.header());
    for index in 0..recording.len() {
        if recording.has_gap_before(index) {
            trace.open.iter_mut().for_each(OpenSpans::lose_track);
        }
        recording.batch(index)?.events.iter().for_each(|event| trace.take(event));
    }
    Ok(trace.finish().to_string())
}

impl<'a> Trace<'a> {
    fn new(header: &'a RunHeader) -> Self {
        let mut entries = Vec::new();
        for rank in 0..header.world_size {
            let (name, place) = (json!({ "name": format!("rank {rank}") }), json!({ "sort_index": rank }));
            entries.push(metadata("process_name", rank, COMPUTE, name));
            entries.push(metadata("process_sort_index", rank, COMPUTE, place));
            for (track, name) in [(COMPUTE, "compute"), (COMMUNICATION, "communication")] {
                entries.push(metadata("thread_name", rank, track, json!({ "name": name })));
            }
        }
        Trace {
            header,
            entries,
            transfers: Vec::new(),
            ran: HashMap::new(),
            parts: Parts::new(),
            ending: Snapshot::new(header.world_size, 0),
            open: (0..header.world_size).map(|_| OpenSpans::default()).collect(),
        }
    }

    fn take(&mut self, event: &Event) {
        if let What::Transfer(transfer) = &event.what {
            self.transfers.extend(TransferEntry::of(self.header, event, transfer));
        }
        if let What::Ran { work: Work::Transfer { sequence }, began, ended } = event.what {
            self.ran.insert((event.rank, sequence), event.span(began, ended));
        }
        if let What::Failing | What::Blamed { .. } | What::Failed { .. } = event.what {
            self.ending.apply(event);
        }
        if let Some(state) = self.open.get_mut(event.rank as usize) {
            state.take(self.header, event, &mut self.entries, &mut self.parts);
        }
    }

    fn finish(self) -> Value {
        let Trace { header, mut entries, mut transfers, ran, parts, ending, .. } = self;
        for transfer in &mut transfers {
            transfer.moved = *ran.get(&(transfer.rank, transfer.sequence)).unwrap_or(&transfer.moved);
        }
        entries.extend(flows::arrows(&parts, &entries));
        entries.extend(transfers::tracks(transfers));
        entries.sort_by(entry::order);
        let error = failure::shown(&ending);
        let error = error.map(|found| json!({ "rank": found.ranks.first(), "message": found.message }));
        json!({
            "traceEvents": entries,
            "displayTimeUnit": "ms",
            "otherData": { "stage": header.stage, "model": header.model, "version": header.version, "error": error },
        })
    }
}

impl OpenSpans {
    /// Forgets the spans whose end may be in a gap of the events.
    fn lose_track(&mut self) {
        *self = OpenSpans { step: self.step, live: self.live, ..OpenSpans::default() };
    }

    /// Adds the entry that `event` completes, or corrects the times of an earlier entry.
    fn take(&mut self, header: &RunHeader, event: &Event, entries: &mut Vec<Value>, parts: &mut Parts) {
        if let What::Ran { work, began, ended } = event.what {
            let (from, to) = event.span(began, ended);
            if let Some(entry) = self.queued.remove(&work).and_then(|index| entries.get_mut(index)) {
                (entry["ts"], entry["dur"]) = (json!(microseconds(from)), json!(microseconds(to - from)));
            } else if let Work::Collective { group, sequence, .. } = work {
                // It ran before the rank began to wait for it.
                if let Some(moving) = self.collectives.get_mut(&(group, sequence)) {
                    (moving.started, moving.delivered) = (Some(from), Some(to));
                }
            }
            return;
        }
        let entry = self.entry(header, event, entries.len(), parts);
        entries.extend(entry);
    }

    /// Returns the entry that `event` completes, which will be number `next`. Notes it among the
    /// `parts` of its collective, and as work whose times may be corrected.
    fn entry(&mut self, header: &RunHeader, event: &Event, next: usize, parts: &mut Parts) -> Option<Value> {
        match &event.what {
            What::StepStarted { step } => {
                self.step = *step;
                None
            }
            What::PassStarted { pass, unit, .. } => {
                self.idle.pass_begins(event.at);
                let unit = crate::words::unit(header, *unit);
                self.pass = Some((event.at, format!("{} {unit}", crate::words::pass(*pass)), pass.label()));
                None
            }
            &What::PassFinished { pass, unit, micro } => {
                self.idle.pass_ends(event.at);
                let (from, name, category) = self.pass.take()?;
                self.queued.insert(Work::Pass { pass, unit, micro }, next);
                let arguments = json!({ "step": self.step, "micro": micro });
                Some(complete([&name, category], (event.rank, COMPUTE), (from, event.at), arguments))
            }
            &What::Memory { place, class, live, .. }
                if place == Place::Device || places::used(header).contains(&place) =>
            {
                self.live[place.index()][class.index()] = live;
                Some(self.memory(event, place))
            }
            What::Collective(collective) => self.collective(header, event, collective, next, parts),
            &What::Crossed { group, sequence, began, ended, .. } => {
                let moving = self.collectives.get_mut(&(group, sequence))?;
                let (from, to) = event.span(began, ended);
                (moving.started, moving.delivered) = (Some(from), Some(to));
                None
            }
            What::StepFinished { step, loss, .. } => {
                Some(instant(event, "p", format!("step {step} finished"), json!({ "loss": loss })))
            }
            What::Failed { message } => {
                Some(instant(event, "g", format!("rank {} failed", event.rank), json!({ "error": message })))
            }
            _ => None,
        }
    }

    /// Returns the live bytes of every class in `place`.
    fn memory(&self, event: &Event, place: Place) -> Value {
        let live = &self.live[place.index()];
        let named = Class::ALL.iter().map(|class| (class.label().to_string(), json!(live[class.index()])));
        let arguments: serde_json::Map<String, Value> = named.collect();
        let name = if place == Place::Device { "memory".into() } else { format!("memory: {place}") };
        json!({
            "ph": "C", "name": name, "pid": event.rank, "tid": thread(event.rank, COMPUTE),
            "ts": microseconds(event.at), "args": arguments,
        })
    }

    fn collective(
        &mut self,
        header: &RunHeader,
        event: &Event,
        collective: &CollectiveEvent,
        next: usize,
        parts: &mut Parts,
    ) -> Option<Value> {
        let &CollectiveEvent { group, sequence, operation, .. } = collective;
        let key = (group, sequence);
        let moving = Moving { issued: event.at, idle: self.idle.until(event.at), ..Moving::default() };
        match collective.progress {
            Progress::Issued => {
                self.collectives.insert(key, moving);
                None
            }
            Progress::Started => {
                self.collectives.entry(key).or_insert(moving).started = Some(event.at);
                None
            }
            Progress::Finished => {
                let Moving { issued, idle, started, delivered } = self.collectives.remove(&key)?;
                self.queued.insert(Work::Collective { group, sequence, operation }, next);
                let mut name = operation.to_string();
                if collective.unit != NO_UNIT {
                    name += &format!(" {}", crate::words::units(header, collective.unit, collective.units));
                    if !matches!(operation, Operation::Send | Operation::Recv) {
                        parts.entry(key).or_default().push(Part { rank: event.rank, issued, entry: next });
                    }
                }
                let arguments = json!({
                    "step": self.step, "sequence": sequence, "bytes": collective.bytes,
                    "waited_us": microseconds(self.idle.waited(idle, event.at)),
                });
                let span = (started.unwrap_or(issued), delivered.unwrap_or(event.at));
                let labels = [&*name, operation.label()];
                Some(complete(labels, (event.rank, COMMUNICATION), span, arguments))
            }
        }
    }
}
