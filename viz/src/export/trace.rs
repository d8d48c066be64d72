//! Writes a recording in the Chrome trace format, which Perfetto also reads: one process per rank,
//! one track per stream, the CPU's work on offloaded states included; per route between places, one
//! per transfer that overlaps another (at most 16); memory by class as counters, and arrows between
//! ranks. Times are microseconds. A span without an end in the recording extends to its rank's
//! failure, or to the latest event, and is marked as unfinished.

mod entry;
mod flows;
mod idle;
mod transfers;

use entry::{COMMUNICATION, COMPUTE, CPU, complete, instant, metadata, microseconds, thread};
use events::{
    Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, Recording, RecordingError, RunHeader,
    Snapshot, What, Work,
};
use flows::{Part, Parts};
use idle::IdleClock;
use screen::{failure, places};
use serde_json::{Value, json};
use std::collections::HashMap;
use transfers::TransferEntry;

/// The spans of a rank that a later event will close.
#[derive(Default)]
struct OpenSpans {
    step: u32,
    pass: Option<OpenPass>,
    idle: IdleClock,
    collectives: HashMap<(u16, u64), Moving>,
    /// When the latest complete span ended, by track.
    ended: [u64; 3],
    /// Time at which the rank failed.
    failed: Option<u64>,
    live: [[u64; Class::ALL.len()]; Place::ALL.len()],
    /// The entry of the latest work of each kind, whose times a later [`What::Ran`] may correct.
    queued: HashMap<Work, usize>,
}

/// A pass that has not finished.
struct OpenPass {
    from: u64,
    pass: Pass,
    unit: u16,
    micro: u16,
}

/// A collective that has not finished.
struct Moving {
    event: CollectiveEvent,
    issued: u64,
    /// The rank's idle time when it issued the collective.
    idle: u64,
    started: Option<u64>,
    /// When a simulated link delivered it.
    delivered: Option<u64>,
}

/// A trace under construction: the state after the events read so far.
struct Trace<'a> {
    header: &'a RunHeader,
    entries: Vec<Value>,
    transfers: Vec<TransferEntry>,
    /// When transfers ran, of those whose GPU reported it: by rank and number.
    ran: HashMap<(u32, u64), (u64, u64)>,
    parts: Parts,
    ending: Snapshot,
    /// The time of the latest event.
    latest: u64,
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
            let tracks = [(COMPUTE, "compute"), (COMMUNICATION, "communication"), (CPU, "CPU")];
            let used = tracks.len() - usize::from(!places::updates_on_cpu(header));
            for (track, name) in tracks.into_iter().take(used) {
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
            latest: 0,
            open: (0..header.world_size).map(|_| OpenSpans::default()).collect(),
        }
    }

    fn take(&mut self, event: &Event) {
        self.latest = self.latest.max(event.at);
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
        let Trace { header, mut entries, mut transfers, ran, parts, ending, latest, open } = self;
        for (rank, open) in (0..).zip(open) {
            entries.extend(open.unfinished(header, rank, latest));
        }
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
        let OpenSpans { step, live, ended, failed, .. } = *self;
        *self = OpenSpans { step, live, ended, failed, ..OpenSpans::default() };
    }

    /// Returns the entries of the spans that are still open, in the order in which they began. They
    /// extend to the rank's failure or to the `latest` event.
    fn unfinished(mut self, header: &RunHeader, rank: u32, latest: u64) -> Vec<Value> {
        let end = self.failed.unwrap_or(latest);
        let mut entries = Vec::new();
        if let Some(pass) = self.pass.take() {
            let track = track_of(header, pass.pass);
            let span = (pass.from.max(self.ended[track as usize]), end);
            let arguments = json!({ "step": self.step, "micro": pass.micro, "unfinished": true });
            entries.push(pass_entry(header, rank, &pass, span, arguments));
        }
        let mut moving: Vec<Moving> = std::mem::take(&mut self.collectives).into_values().collect();
        moving.sort_by_key(|moving| (moving.issued, moving.event.group, moving.event.sequence));
        for Moving { event, issued, idle, started, delivered } in moving {
            // A waiting collective begins after those before it: spans of one track must not
            // overlap partly.
            let from = started.unwrap_or(issued.max(self.ended[COMMUNICATION as usize]));
            let mut arguments = self.collective_arguments(&event, (idle, end));
            arguments["unfinished"] = json!(true);
            entries.push(collective_entry(header, rank, &event, (from, delivered.unwrap_or(end)), arguments));
        }
        entries
    }

    /// Adds the entry that `event` completes, or corrects the times of an earlier entry.
    fn take(&mut self, header: &RunHeader, event: &Event, entries: &mut Vec<Value>, parts: &mut Parts) {
        if let What::Ran { work, began, ended } = event.what {
            let (from, to) = event.span(began, ended);
            if let Some(entry) = self.queued.remove(&work).and_then(|index| entries.get_mut(index)) {
                let track = match work {
                    Work::Pass { pass, .. } => track_of(header, pass),
                    _ => COMMUNICATION,
                };
                self.ends(track, to);
                (entry["ts"], entry["dur"]) = (json!(microseconds(from)), json!(microseconds(to - from)));
            } else if let Work::Collective { group, sequence, .. } = work {
                // The collective ran before the rank began to wait for it.
                if let Some(moving) = self.collectives.get_mut(&(group, sequence)) {
                    (moving.started, moving.delivered) = (Some(from), Some(to));
                }
            } else if let Work::Pass { pass, unit, micro } = work {
                // It ran beside other passes, and was not reported before.
                self.ends(track_of(header, pass), to);
                let arguments = json!({ "step": self.step, "micro": micro });
                let of = OpenPass { from, pass, unit, micro };
                entries.push(pass_entry(header, event.rank, &of, (from, to), arguments));
            }
            return;
        }
        let entry = self.entry(header, event, entries.len(), parts);
        entries.extend(entry);
    }

    /// Returns the entry that `event` completes, which will be number `next`. Records it among the
    /// `parts` of its collective, and as work whose times may be corrected.
    fn entry(&mut self, header: &RunHeader, event: &Event, next: usize, parts: &mut Parts) -> Option<Value> {
        match &event.what {
            What::StepStarted { step } => {
                self.step = *step;
                None
            }
            &What::PassStarted { pass, unit, micro } => {
                self.idle.pass_begins(event.at);
                self.pass = Some(OpenPass { from: event.at, pass, unit, micro });
                None
            }
            &What::PassFinished { pass, unit, micro } => {
                self.idle.pass_ends(event.at);
                let open = self.pass.take()?;
                self.queued.insert(Work::Pass { pass, unit, micro }, next);
                self.ends(track_of(header, pass), event.at);
                let arguments = json!({ "step": self.step, "micro": micro });
                Some(pass_entry(header, event.rank, &open, (open.from, event.at), arguments))
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
                self.failed = Some(event.at);
                Some(instant(event, "g", format!("rank {} failed", event.rank), json!({ "error": message })))
            }
            _ => None,
        }
    }

    /// Records that a complete span of a track ended at `at`.
    fn ends(&mut self, track: u32, at: u64) {
        let ended = &mut self.ended[track as usize];
        *ended = at.max(*ended);
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
        let (issued, idle) = (event.at, self.idle.until(event.at));
        let moving = Moving { event: collective.clone(), issued, idle, started: None, delivered: None };
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
                let Moving { issued, idle, started, delivered, .. } = self.collectives.remove(&key)?;
                self.queued.insert(Work::Collective { group, sequence, operation }, next);
                let of_ranks = !matches!(operation, Operation::Send | Operation::Recv);
                if !collective.units.is_empty() && of_ranks {
                    parts.entry(key).or_default().push(Part { rank: event.rank, issued, entry: next });
                }
                let arguments = self.collective_arguments(collective, (idle, event.at));
                let span = (started.unwrap_or(issued), delivered.unwrap_or(event.at));
                self.ends(COMMUNICATION, span.1);
                Some(collective_entry(header, event.rank, collective, span, arguments))
            }
        }
    }

    /// Returns the arguments of a collective that the rank issued after `idle` nanoseconds of idle
    /// time and waited for until `at`.
    fn collective_arguments(&mut self, collective: &CollectiveEvent, (idle, at): (u64, u64)) -> Value {
        json!({
            "step": self.step, "sequence": collective.sequence, "bytes": collective.bytes,
            "waited_us": microseconds(self.idle.waited(idle, at)),
        })
    }
}

/// Returns the track of a pass.
fn track_of(header: &RunHeader, pass: Pass) -> u32 {
    match pass {
        Pass::Add => CPU,
        Pass::Step if places::updates_on_cpu(header) => CPU,
        _ => COMPUTE,
    }
}

/// Returns the entry of a pass of `rank`, which ran for `span`.
fn pass_entry(header: &RunHeader, rank: u32, of: &OpenPass, span: (u64, u64), arguments: Value) -> Value {
    let name = format!("{} {}", screen::words::pass(of.pass), screen::words::unit(header, of.unit));
    complete([&name, of.pass.label()], (rank, track_of(header, of.pass)), span, arguments)
}

/// Returns the entry of a collective on `rank`, which ran for `span`.
fn collective_entry(
    header: &RunHeader,
    rank: u32,
    of: &CollectiveEvent,
    span: (u64, u64),
    arguments: Value,
) -> Value {
    let mut name = of.operation.to_string();
    if !of.units.is_empty() {
        name += &format!(" {}", screen::words::units(header, &of.units));
    }
    complete([&name, of.operation.label()], (rank, COMMUNICATION), span, arguments)
}
