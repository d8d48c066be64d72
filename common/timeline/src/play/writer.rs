//! Writes what the ranks do as events.

mod offload;

use crate::clock::Clock;
use crate::cost::Costs;
use crate::stream::Span;
use events::{Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, What};
use offload::Offload;
use prediction::{Action, Among, Issued, Job, Prediction};
use std::collections::BTreeMap;

const NANOSECONDS: f64 = 1e9;

/// A collective that is issued and not waited for yet.
struct Flight {
    issued: Issued,
    sequence: u64,
    span: Span,
}

/// A pass: what, over which unit, and the micro-batch or piece.
type PassOf = (Pass, u16, u16);

/// Writes what the ranks do as events.
pub(super) struct EventWriter<'a> {
    job: &'a Job,
    costs: &'a Costs,
    pub(super) clock: Clock,
    pub(super) events: Vec<Event>,
    /// The number of collectives that each group has issued.
    issued: BTreeMap<Among, u64>,
    /// Collectives in flight, by number in the run.
    flights: BTreeMap<usize, Flight>,
    /// This script's collectives: their numbers in the run.
    numbers: BTreeMap<usize, usize>,
    /// The latest all-gather of each updated unit: its number in the run.
    gathers: BTreeMap<u16, usize>,
    offload: Offload,
    micro: u16,
    /// The pass that has begun.
    pass: Option<PassOf>,
}

impl<'a> EventWriter<'a> {
    pub(super) fn new(job: &'a Job, costs: &'a Costs) -> Self {
        EventWriter {
            job,
            costs,
            clock: Clock::default(),
            events: Vec::new(),
            issued: BTreeMap::new(),
            flights: BTreeMap::new(),
            numbers: BTreeMap::new(),
            gathers: BTreeMap::new(),
            offload: Offload::default(),
            micro: 0,
            pass: None,
        }
    }

    /// Emits an event on each rank.
    fn emit(&mut self, seconds: f64, what: impl Fn(usize) -> What) {
        let at = (seconds * NANOSECONDS) as u64;
        let ranks = 0..self.job.world_size;
        self.events.extend(ranks.map(|rank| Event { at, rank: rank as u32, what: what(rank) }));
    }

    /// Emits the same event on each rank, now.
    pub(super) fn at_once(&mut self, what: What) {
        self.emit(self.clock.now, |_| what.clone());
    }

    /// Returns the number of `rank`'s group: the world, then the groups in the order in which ranks
    /// form them.
    fn group(&self, among: Among, rank: usize) -> u16 {
        let (size, ranks) = (self.group_size(), self.job.world_size);
        let group = match among {
            Among::World => 0,
            Among::Neighbours(_) => 1 + rank / size,
            Among::Across(_) => 1 + ranks / size + rank % size,
        };
        group as u16
    }

    /// Returns the number of neighbours in a group.
    fn group_size(&self) -> usize {
        self.job.secondary_shards.unwrap_or(self.job.sharing_ranks())
    }

    pub(super) fn join_groups(&mut self) {
        let (size, ranks) = (self.group_size(), self.job.world_size);
        let join = |writer: &mut Self, among, members: &dyn Fn(usize) -> Vec<u32>| {
            let joined = |rank| What::Joined { group: writer.group(among, rank), ranks: members(rank) };
            let joined: Vec<What> = (0..ranks).map(joined).collect();
            writer.emit(0.0, |rank| joined[rank].clone());
        };
        if size < ranks {
            let first = |rank: usize| (rank - rank % size) as u32;
            join(self, Among::Neighbours(size as u64), &|rank| {
                (first(rank)..first(rank) + size as u32).collect()
            });
        }
        if self.job.strategy.forms_groups() {
            let across = |rank: usize| (rank % size..ranks).step_by(size).map(|rank| rank as u32);
            join(self, Among::Across(size as u64), &|rank| across(rank).collect());
        }
    }

    /// Does what a script says.
    pub(super) fn act(&mut self, script: &[Action]) {
        self.clock.begin();
        self.offload.begin();
        self.numbers.clear();
        let mut rest = script.iter();
        while let Some(action) = rest.next() {
            match action {
                &Action::Begin { pass, unit, layer } => {
                    let is_memory = |action: &&Action| matches!(action, Action::Memory { .. });
                    let within = rest.as_slice().iter().take_while(is_memory).count();
                    let (within, after) = rest.as_slice().split_at(within);
                    rest = after.iter();
                    self.begin((pass, unit, self.micro));
                    self.compute(pass, self.costs.pass(pass, layer), within);
                }
                Action::End => self.end(),
                &Action::Update { unit, piece, elements } => {
                    self.begin((Pass::Step, unit, piece));
                    self.compute(Pass::Step, self.costs.update(elements), &[]);
                    self.end();
                }
                Action::Issue(issued) => self.issue(issued),
                Action::Transfer(moved) => self.transfer(moved),
                Action::OnCpu(work) => self.on_cpu(work),
                &Action::Wait { number } => self.wait(number),
                Action::Updated { unit, parameters, on_disk, others } => {
                    self.clock.updated(*unit, parameters, on_disk, others);
                    let gather = parameters.iter().find_map(|number| self.numbers.get(number));
                    self.gathers.extend(gather.map(|&gather| (*unit, gather)));
                }
                Action::SlotsInUse { until } => self.clock.slots_in_use(until),
                &Action::WaitForUpdate { unit } => self.wait_for_update(unit),
                &Action::MicroBatch { number } => self.micro = number,
                &Action::Memory { place, class, delta, live } => {
                    self.at_once(What::Memory { place, class, delta, live });
                }
            }
        }
    }

    fn begin(&mut self, of: PassOf) {
        let (pass, unit, micro) = of;
        self.at_once(What::PassStarted { pass, unit, micro });
        self.pass = Some(of);
    }

    fn end(&mut self) {
        if let Some((pass, unit, micro)) = self.pass.take() {
            self.at_once(What::PassFinished { pass, unit, micro });
        }
    }

    /// Computes for `seconds`, and spreads over them what is allocated and freed.
    fn compute(&mut self, pass: Pass, seconds: f64, within: &[Action]) {
        let from = self.clock.now;
        let part = seconds / (within.len() + 1) as f64;
        for (number, action) in (1..).zip(within) {
            if let &Action::Memory { place, class, delta, live } = action {
                self.emit(from + part * f64::from(number), |_| What::Memory { place, class, delta, live });
            }
        }
        self.clock.compute(pass, seconds);
    }

    /// Returns the event of a collective, with the bytes that it sends;
    /// [`count_bytes`](super::count_bytes) adds those before it.
    fn collective(&self, flight: &Flight, progress: Progress, rank: usize) -> What {
        let Issued { among, operation, units, .. } = &flight.issued;
        let sends = || flight.issued.sent(self.job.algorithm, self.job.world_size, rank);
        let sent = if progress == Progress::Finished { sends() } else { 0 };
        What::Collective(CollectiveEvent {
            progress,
            sequence: flight.sequence,
            operation: *operation,
            group: self.group(*among, rank),
            units: units.clone(),
            bytes: flight.issued.bytes,
            sent,
        })
    }

    fn on_each(&mut self, seconds: f64, flight: &Flight, progress: Progress) {
        let events: Vec<What> =
            (0..self.job.world_size).map(|rank| self.collective(flight, progress, rank)).collect();
        self.emit(seconds, |rank| events[rank].clone());
    }

    fn issue(&mut self, issued: &Issued) {
        let sequence = self.issued.entry(issued.among).or_default();
        let this = *sequence;
        *sequence += 1;
        let at = self.clock.end_of(&issued.after).max(self.clock.now);
        let span = self.clock.issue(self.costs, issued);
        let flight = Flight { issued: issued.clone(), sequence: this, span };
        self.on_each(at, &flight, Progress::Issued);
        self.on_each(span.from, &flight, Progress::Started);
        let in_run = self.issued.values().sum::<u64>() as usize;
        self.numbers.insert(issued.number, in_run);
        self.flights.insert(in_run, flight);
    }

    fn wait(&mut self, number: usize) {
        let before = self.clock.time.offload;
        let waited = self.clock.wait(number);
        self.waited(waited, before, self.numbers.get(&number).copied());
        self.arrive(number);
    }

    /// Waits for the latest update of `unit`; for `None`, of all units.
    fn wait_for_update(&mut self, unit: Option<u16>) {
        let before = self.clock.time.offload;
        let gathers: Vec<usize> = match unit {
            Some(unit) => self.gathers.get(&unit).copied().into_iter().collect(),
            None => std::mem::take(&mut self.gathers).into_values().collect(),
        };
        if let Some(waited) = self.clock.wait_for_update(unit) {
            self.waited(waited, before, gathers.iter().max().copied());
        }
        // Those before the last one have landed.
        for flight in gathers.iter().filter_map(|gather| self.flights.remove(gather)).collect::<Vec<_>>() {
            self.land(flight.span.to, &flight, 0.0);
        }
    }

    /// Waits for the latest update, and ends the transfers that are in flight.
    pub(super) fn complete_update(&mut self) {
        self.wait_for_update(None);
        self.end_transfers();
    }

    /// Shows that the ranks were idle while they waited for something that was under way during the
    /// span. They had waited `before` seconds for offloaded states by then. It was collective
    /// `number` of the run, if that is in flight.
    fn waited(&mut self, (span, idle): (Span, f64), before: f64, number: Option<usize>) {
        let offload = self.clock.time.offload - before;
        let flight = number.and_then(|number| self.flights.remove(&number));
        // A collective begins when what it waits for has arrived.
        self.spend_idle(idle, if flight.is_some() { span.from } else { span.to }, offload);
        if let Some(flight) = flight {
            self.land(self.clock.now, &flight, idle - offload);
        }
    }

    /// Ends a collective for which the ranks were idle for `idle` seconds.
    fn land(&mut self, at: f64, flight: &Flight, idle: f64) {
        let Flight { issued, sequence, span } = flight;
        let before = |seconds: f64| ((at - seconds) * NANOSECONDS) as u64;
        let crossed = |group| What::Crossed {
            group,
            sequence: *sequence,
            began: before(span.from),
            ended: before(span.to),
            exposed: (idle * NANOSECONDS) as u64,
        };
        let groups: Vec<u16> = (0..self.job.world_size).map(|rank| self.group(issued.among, rank)).collect();
        if issued.operation != Operation::Scalars {
            self.emit(at, |rank| crossed(groups[rank]));
        }
        self.on_each(at, flight, Progress::Finished);
    }

    /// Ends the run. [`count_bytes`](super::count_bytes) adds what each rank has sent.
    pub(super) fn finish(&mut self, prediction: &Prediction) {
        self.emit(self.clock.now, |rank| {
            let memory = prediction.ranks[rank].place(Place::Device);
            What::Finished {
                peaks: Class::ALL.map(|class| memory.peak(class)).to_vec(),
                total_peak: memory.total_peak,
                sent: Vec::new(),
            }
        });
    }
}
