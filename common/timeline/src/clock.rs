//! The clock of one rank: it computes on one stream, a group's collectives follow each other on
//! another, transfers of each route on another, and the CPU's work on one more. All ranks do the
//! same at the same time.

use crate::cost::Costs;
use crate::stream::{Span, Stream};
use events::{Class, Pass, Route};
use prediction::{Action, After, Among, Begins, CpuWork, Issued, Moved};
use std::collections::BTreeMap;

/// The seconds of one step on one rank, by what the rank does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTime {
    /// Forward and backward.
    pub compute: f64,
    /// Recomputation in backward.
    pub recompute: f64,
    /// Waiting for collectives: what computation does not hide of them.
    pub exposed: f64,
    /// Waiting for offloaded states and activations: for transfers and for the CPU.
    pub offload: f64,
    /// The optimizer's update on the device.
    pub update: f64,
    /// Collectives on their streams, hidden or not.
    pub communication: f64,
    /// The CPU's work, hidden or not.
    pub cpu: f64,
    /// Transfers by route, hidden or not.
    pub transfers: [f64; Route::ALL.len()],
}

impl StepTime {
    /// Returns the seconds from the step's beginning to its end.
    pub fn total(&self) -> f64 {
        self.compute + self.recompute + self.exposed + self.offload + self.update
    }

    /// Applies `f` to each part of this time and the same part of `other`.
    pub(crate) fn with(self, other: Self, f: impl Fn(f64, f64) -> f64) -> Self {
        StepTime {
            compute: f(self.compute, other.compute),
            recompute: f(self.recompute, other.recompute),
            exposed: f(self.exposed, other.exposed),
            offload: f(self.offload, other.offload),
            update: f(self.update, other.update),
            communication: f(self.communication, other.communication),
            cpu: f(self.cpu, other.cpu),
            transfers: std::array::from_fn(|i| f(self.transfers[i], other.transfers[i])),
        }
    }
}

/// Something in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    span: Span,
    /// Whether a wait for it is a wait for offloaded states.
    is_offload: bool,
    /// How long it waited for offloaded states after it was issued.
    delay: f64,
}

/// The update of a unit that is offloaded or gathered.
#[derive(Clone, Copy, Debug)]
struct Updated {
    /// What ends the update of its parameters.
    last: Flight,
    /// When they are on disk, if they are stored there.
    on_disk: f64,
}

/// One rank's clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Seconds since the run began.
    pub now: f64,
    /// The stream of each group.
    groups: Vec<(Among, Stream)>,
    /// The stream of each route.
    routes: [Stream; Route::ALL.len()],
    /// When the latest transfer of each class over each route arrives.
    last: [[f64; Class::ALL.len()]; Route::ALL.len()],
    /// When this script began.
    began: f64,
    /// When the CPU is free.
    cpu: f64,
    /// The number of the script's first collective, transfer or task of the CPU.
    first: usize,
    /// These actions so far, in order.
    flights: Vec<Flight>,
    /// The latest update of each unit that is offloaded or gathered.
    updated: BTreeMap<u16, Updated>,
    /// What ends the latest update of these units.
    complete: Option<Flight>,
    /// When it no longer uses each of its slots.
    slots: Vec<f64>,
    /// Time so far.
    pub time: StepTime,
}

impl Clock {
    /// Begins a script: its actions do not name those of others.
    pub fn begin(&mut self) {
        self.flights.clear();
        // What is read ahead may begin before this script, but not before the last one.
        let groups = self.groups.iter_mut().map(|(_, stream)| stream);
        groups.chain(&mut self.routes).for_each(|stream| stream.forget_before(self.began));
        self.began = self.now;
    }

    /// Issues a collective: it begins as soon as its stream is free. Returns when it crosses the
    /// links.
    pub fn issue(&mut self, costs: &Costs, issued: &Issued) -> Span {
        let seconds = costs.collective(issued);
        let found = self.groups.iter().position(|(among, _)| *among == issued.among);
        let group = found.unwrap_or_else(|| {
            self.groups.push((issued.among, Stream::default()));
            self.groups.len() - 1
        });
        let arrived = self.end_of(&issued.after);
        let span = self.groups[group].1.cross(self.now.max(arrived), seconds);
        self.time.communication += seconds;
        let delay = (arrived - self.now).max(0.0);
        self.depart(issued.number, Flight { span, is_offload: false, delay });
        span
    }

    /// Issues a transfer: it begins as soon as its route is free. Returns when it moves.
    pub fn transfer(&mut self, costs: &Costs, moved: &Moved) -> Span {
        let (seconds, route) = (costs.transfer(moved.route, moved.bytes), moved.route.index());
        // Those of one class keep their order.
        let previous = self.last[route][moved.class.index()];
        let ready = self.ready(moved).max(previous);
        let stream = &mut self.routes[route];
        let span = match moved.begins {
            Begins::ForUpdate => stream.cross(ready, seconds),
            Begins::Now | Begins::Ahead => stream.cross_first(ready, seconds),
        };
        self.last[route][moved.class.index()] = span.to;
        self.time.transfers[route] += seconds;
        self.depart(moved.number, Flight { span, is_offload: true, delay: 0.0 });
        span
    }

    /// Returns when a run would issue a transfer: as soon as its buffer is free.
    pub(crate) fn ready(&self, moved: &Moved) -> f64 {
        let reached = if moved.begins == Begins::Ahead { 0.0 } else { self.now };
        reached.max(self.end_of(&moved.after))
    }

    /// Gives the CPU work, which it begins as soon as it is free. Returns when it works.
    pub fn on_cpu(&mut self, costs: &Costs, work: &CpuWork) -> Span {
        let seconds = costs.on_cpu(work);
        let from = self.now.max(self.cpu).max(self.end_of(&work.after));
        let span = Span { from, to: from + seconds };
        self.cpu = span.to;
        self.time.cpu += seconds;
        self.depart(work.number, Flight { span, is_offload: true, delay: 0.0 });
        span
    }

    fn depart(&mut self, number: usize, flight: Flight) {
        if self.flights.is_empty() {
            self.first = number;
        }
        debug_assert_eq!(number, self.first + self.flights.len(), "actions are numbered in order");
        self.flights.push(flight);
    }

    fn flight(&self, number: usize) -> Flight {
        let found = number.checked_sub(self.first).and_then(|at| self.flights.get(at));
        debug_assert!(found.is_some(), "a script names its own earlier actions: {number}");
        let span = Span { from: self.now, to: self.now };
        found.copied().unwrap_or(Flight { span, is_offload: false, delay: 0.0 })
    }

    /// Returns when all of `after` have ended.
    pub(crate) fn end_of(&self, after: &[After]) -> f64 {
        let end = |after: &After| match *after {
            After::Action(number) => self.flight(number).span.to,
            After::Update(unit) => self.updated.get(&unit).map_or(0.0, |updated| updated.last.span.to),
            After::OnDisk(unit) => self.updated.get(&unit).map_or(0.0, |updated| updated.on_disk),
            After::Slot(slot) => self.slots.get(slot as usize).copied().unwrap_or(0.0),
        };
        after.iter().map(end).fold(0.0, f64::max)
    }

    /// Notes that the update of `unit` is issued: its parameters are updated after the actions
    /// `parameters` and on disk after `on_disk`, and it is complete after `others`, too.
    pub fn updated(&mut self, unit: u16, parameters: &[usize], on_disk: &[usize], others: &[usize]) {
        let last = |numbers: &[usize]| {
            let flights = numbers.iter().map(|&number| self.flight(number));
            flights.max_by(|one, other| one.span.to.total_cmp(&other.span.to))
        };
        let (updated, written, others) = (last(parameters), last(on_disk), last(others));
        let ends = [self.complete, updated, written, others].into_iter().flatten();
        self.complete = ends.max_by(|one, other| one.span.to.total_cmp(&other.span.to));
        if let Some(last) = updated {
            let on_disk = written.map_or(0.0, |written| written.span.to);
            self.updated.insert(unit, Updated { last, on_disk });
        }
    }

    /// Notes until when the latest update uses each of its slots.
    pub fn slots_in_use(&mut self, until: &[Vec<After>]) {
        self.slots = until.iter().map(|after| self.end_of(after)).collect();
    }

    /// Waits for a collective, a transfer or the CPU. Returns when it was under way, and how long
    /// the rank was idle.
    pub fn wait(&mut self, number: usize) -> (Span, f64) {
        let flight = self.flight(number);
        (flight.span, self.wait_until(flight))
    }

    /// Waits until the parameters of `unit` are updated; for `None`, until the latest update is
    /// complete. Returns when what ends it was under way, and how long the rank was idle; `None` if
    /// there was no update.
    pub fn wait_for_update(&mut self, unit: Option<u16>) -> Option<(Span, f64)> {
        let last = match unit {
            Some(unit) => self.updated.get(&unit).map(|updated| updated.last),
            None => self.complete,
        }?;
        Some((last.span, self.wait_until(last)))
    }

    fn wait_until(&mut self, Flight { span, is_offload, delay }: Flight) -> f64 {
        let idle = (span.to - self.now).max(0.0);
        self.now += idle;
        let offload = if is_offload { idle } else { delay.min(idle) };
        self.time.offload += offload;
        self.time.exposed += idle - offload;
        idle
    }

    /// Spends `seconds` on `pass`.
    pub fn compute(&mut self, pass: Pass, seconds: f64) {
        self.now += seconds;
        match pass {
            Pass::Recompute => self.time.recompute += seconds,
            Pass::Step => self.time.update += seconds,
            _ => self.time.compute += seconds,
        }
    }

    /// Does everything in a script.
    pub fn run(&mut self, costs: &Costs, script: &[Action]) {
        self.begin();
        for action in script {
            match action {
                Action::Issue(issued) => {
                    self.issue(costs, issued);
                }
                Action::Transfer(moved) => {
                    self.transfer(costs, moved);
                }
                Action::OnCpu(work) => {
                    self.on_cpu(costs, work);
                }
                Action::Wait { number } => {
                    self.wait(*number);
                }
                Action::Updated { unit, parameters, on_disk, others } => {
                    self.updated(*unit, parameters, on_disk, others);
                }
                Action::SlotsInUse { until } => self.slots_in_use(until),
                Action::WaitForUpdate { unit } => {
                    self.wait_for_update(*unit);
                }
                Action::Begin { pass, layer, .. } => self.compute(*pass, costs.pass(*pass, *layer)),
                Action::Update { elements, .. } => self.compute(Pass::Step, costs.update(*elements)),
                Action::Memory { .. } | Action::MicroBatch { .. } | Action::End => {}
            }
        }
    }
}
