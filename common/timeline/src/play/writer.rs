//! Writes what the ranks do as events.

use crate::clock::Clock;
use crate::cost::Costs;
use crate::stream::Span;
use events::event::TransferEvent;
use events::{Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, Route, What};
use prediction::{Action, Among, CpuTask, CpuWork, Issued, Job, Moved, Prediction};
use std::collections::{BTreeMap, VecDeque};

const NANOSECONDS: f64 = 1e9;

/// A collective that is issued and not waited for yet.
struct Flight {
    issued: Issued,
    sequence: u64,
    span: Span,
}

/// A transfer.
struct Crossing {
    route: Route,
    class: Class,
    unit: u16,
    bytes: u64,
    span: Span,
    /// Whether its end is emitted.
    has_ended: bool,
    /// The seconds for which they were idle because they waited for it.
    idle: f64,
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
    flights: BTreeMap<usize, Flight>,
    /// Payload bytes per rank and operation.
    sent: Vec<[u64; Operation::ALL.len()]>,
    /// Every transfer so far.
    crossings: Vec<Crossing>,
    /// The transfers of this script, by the script's numbers.
    numbers: BTreeMap<usize, usize>,
    /// The first transfer of the script before this one, and of this one.
    first: [usize; 2],
    /// When the CPU worked.
    cpu_work: Vec<Span>,
    /// The CPU's updates that are not shown yet, in order.
    cpu_updates: VecDeque<(PassOf, Span)>,
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
            sent: vec![[0; Operation::ALL.len()]; job.world_size],
            crossings: Vec::new(),
            numbers: BTreeMap::new(),
            first: [0; 2],
            cpu_work: Vec::new(),
            cpu_updates: VecDeque::new(),
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
        self.numbers.clear();
        self.first = [self.first[1], self.crossings.len()];
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
                Action::Updated { unit, parameters, others } => {
                    self.clock.updated(*unit, parameters, others);
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

    fn transfer(&mut self, moved: &Moved) {
        // A run issues it when its buffer is free.
        let reached = if moved.ahead { 0.0 } else { self.clock.now };
        let issued = self.clock.end_of(&moved.after).max(reached);
        let span = self.clock.transfer(self.costs, moved);
        let &Moved { number, route, class, unit, bytes, .. } = moved;
        let crossing = Crossing { route, class, unit, bytes, span, has_ended: false, idle: 0.0 };
        self.numbers.insert(number, self.crossings.len());
        self.crossings.push(crossing);
        self.emit_transfer(issued, self.crossings.len() - 1, Progress::Issued);
    }

    /// Emits an event of transfer number `sequence`, with the bytes that it moves;
    /// [`count_bytes`](super::count_bytes) adds those before it.
    fn emit_transfer(&mut self, at: f64, sequence: usize, progress: Progress) {
        let Crossing { route, class, unit, bytes, span, idle, .. } = self.crossings[sequence];
        let sequence = sequence as u64;
        let event = |moved, [began, ended, exposed]: [u64; 3]| TransferEvent {
            progress,
            sequence,
            route,
            class,
            unit,
            bytes,
            moved,
            began,
            ended,
            exposed,
        };
        let nanoseconds = |seconds: f64| (seconds * NANOSECONDS) as u64;
        let event = match progress {
            Progress::Finished => event(bytes, [at - span.from, at - span.to, idle].map(nanoseconds)),
            _ => event(0, [0; 3]),
        };
        self.emit(at, |_| What::Transfer(event));
    }

    /// Ends the collectives for which the rank does not wait, each when it has crossed the links.
    pub(super) fn end_flights(&mut self) {
        for flight in std::mem::take(&mut self.flights).into_values() {
            self.land(flight.span.to, &flight, 0.0);
        }
    }

    /// Ends the transfers for which the rank has not waited, each when it arrives.
    pub(super) fn end_transfers(&mut self) {
        for sequence in 0..self.crossings.len() {
            if !self.crossings[sequence].has_ended {
                self.emit_transfer(self.crossings[sequence].span.to, sequence, Progress::Finished);
            }
        }
    }

    fn on_cpu(&mut self, work: &CpuWork) {
        let span = self.clock.on_cpu(self.costs, work);
        self.cpu_work.push(span);
        if let CpuTask::Update { piece } = work.task {
            self.cpu_updates.push_back(((Pass::Step, work.unit, piece), span));
        }
    }

    pub(super) fn wait_for_update(&mut self, unit: Option<u16>) {
        let idle = self.clock.wait_for_update(unit);
        self.spend_idle(idle, self.clock.now, idle);
    }

    /// Shows the last `idle` seconds, in which the device computed nothing: what the CPU has
    /// updated, and which transfers the rank waited for. `offload` of them were spent waiting for
    /// offloaded states that were there at `until`.
    fn spend_idle(&mut self, idle: f64, until: f64, offload: f64) {
        let left = offload - self.show_cpu(idle);
        self.charge(until, left);
    }

    /// Charges `left` seconds of waiting to the transfer that ended at `until`, as far as it moved
    /// bytes in them. Before, it waited for a transfer or for the CPU, which are charged next.
    fn charge(&mut self, mut until: f64, mut left: f64) {
        let [mut transfers, mut tasks] = [self.crossings.len(), self.cpu_work.len()];
        while left > 0.0 {
            let recent = self.crossings[self.first[0]..transfers].iter_mut().enumerate();
            if let Some((at, crossing)) = recent.rev().find(|(_, crossing)| crossing.span.to == until) {
                let moving = (until - crossing.span.from).min(left);
                crossing.idle += moving;
                left -= moving;
                until = crossing.span.from;
                transfers = self.first[0] + at;
            } else if let Some(at) = self.cpu_work[..tasks].iter().rposition(|span| span.to == until) {
                until = self.cpu_work[at].from;
                tasks = at;
            } else {
                return;
            }
        }
    }

    /// Shows what the CPU has updated in the last `idle` seconds. While the device computes, too, a
    /// screen shows what the device does. Returns for how long the CPU was busy.
    fn show_cpu(&mut self, idle: f64) -> f64 {
        let (from, to) = (self.clock.now - idle, self.clock.now);
        let mut busy = 0.0;
        while let Some(&((pass, unit, micro), span)) = self.cpu_updates.front() {
            let (began, ended) = (span.from.max(from), span.to.min(to));
            if began < ended && self.pass.is_none() {
                self.emit(began, |_| What::PassStarted { pass, unit, micro });
                self.emit(ended, |_| What::PassFinished { pass, unit, micro });
                busy += ended - began;
            }
            if span.to > to {
                break;
            }
            self.cpu_updates.pop_front();
        }
        busy
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
        self.flights.insert(issued.number, flight);
    }

    fn wait(&mut self, number: usize) {
        let before = self.clock.time.offload;
        let (span, idle) = self.clock.wait(number);
        let offload = self.clock.time.offload - before;
        let flight = self.flights.remove(&number);
        // A collective begins when what it waits for has arrived.
        self.spend_idle(idle, if flight.is_some() { span.from } else { span.to }, offload);
        if let Some(flight) = flight {
            self.land(self.clock.now, &flight, idle - offload);
        }
        if let Some(&sequence) = self.numbers.get(&number) {
            self.crossings[sequence].has_ended = true;
            self.emit_transfer(self.clock.now, sequence, Progress::Finished);
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
        for (rank, sent) in self.sent.iter_mut().enumerate() {
            sent[issued.operation.index()] += issued.sent(self.job.algorithm, self.job.world_size, rank);
        }
        self.on_each(at, flight, Progress::Finished);
    }

    pub(super) fn finish(&mut self, prediction: &Prediction) {
        let sent = std::mem::take(&mut self.sent);
        let ends: Vec<What> = sent
            .iter()
            .zip(&prediction.ranks)
            .map(|(sent, rank)| {
                let memory = rank.place(Place::Device);
                What::Finished {
                    peaks: Class::ALL.map(|class| memory.peak(class)).to_vec(),
                    total_peak: memory.total_peak,
                    sent: sent.to_vec(),
                }
            })
            .collect();
        self.emit(self.clock.now, |rank| ends[rank].clone());
    }
}
