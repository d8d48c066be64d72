//! The simulated ranks: their clocks, memory and collectives, and the events that they emit.

use super::{ELEMENT, SimulatedRun, SimulationPlan, header};
use events::header::{PredictedBytes, PredictedPlace};
use events::{
    CatchUp, Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, Route, RunHeader,
    TransferEvent, UnitSet, What,
};

const CLASSES: usize = Class::ALL.len();
const OPERATIONS: usize = Operation::ALL.len();
const PLACES: usize = Place::ALL.len();
const ROUTES: usize = Route::ALL.len();

/// A collective that the ranks have issued and not waited for yet, with the time of each rank's
/// issue.
pub(super) struct IssuedCollective {
    pub(super) collective: CollectiveEvent,
    pub(super) issued: Vec<u64>,
}

/// A transfer that every rank has issued and not waited for yet.
pub(super) struct IssuedTransfer {
    pub(super) event: TransferEvent,
    /// When it begins and ends on each rank.
    pub(super) times: Vec<(u64, u64)>,
}

/// A run while it is simulated.
pub(super) struct Simulation<'a> {
    pub(super) plan: &'a SimulationPlan,
    pub(super) header: RunHeader,
    pub(super) clocks: Vec<u64>,
    pub(super) link_free: u64,
    pub(super) events: Vec<Event>,
    pub(super) live: Vec<[[u64; CLASSES]; PLACES]>,
    pub(super) sent: Vec<[u64; OPERATIONS]>,
    pub(super) sequence: u64,
    /// When each route of each rank is free, and the bytes that it has moved.
    pub(super) ways_free: Vec<[u64; ROUTES]>,
    pub(super) moved: Vec<[u64; ROUTES]>,
    pub(super) transfers: u64,
    /// The unit whose parameters are in flight to the device.
    pub(super) fetching: Option<(usize, IssuedTransfer)>,
    pub(super) noise: u64,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(plan: &'a SimulationPlan) -> Self {
        let ranks = plan.ranks as usize;
        Simulation {
            plan,
            header: header(plan),
            clocks: vec![1_000_000; ranks],
            link_free: 0,
            events: Vec::new(),
            live: vec![[[0; CLASSES]; PLACES]; ranks],
            sent: vec![[0; OPERATIONS]; ranks],
            sequence: 0,
            ways_free: vec![[0; ROUTES]; ranks],
            moved: vec![[0; ROUTES]; ranks],
            transfers: 0,
            fetching: None,
            noise: 0x2545_f491_4f6c_dd1d,
        }
    }

    pub(super) fn emit(&mut self, rank: usize, at: u64, what: What) {
        self.events.push(Event { at, rank: rank as u32, what });
    }

    pub(super) fn all_ranks(&mut self, what: impl Fn(usize) -> What) {
        for rank in 0..self.clocks.len() {
            self.emit(rank, self.clocks[rank], what(rank));
            self.clocks[rank] += 500;
        }
    }

    pub(super) fn memory(&mut self, class: Class, delta: i64) {
        self.memory_in(Place::Device, class, delta);
    }

    /// Lets every rank compute for about this long. Ranks differ by a few percent.
    pub(super) fn compute(&mut self, nanoseconds: u64) {
        for clock in &mut self.clocks {
            self.noise =
                self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *clock += nanoseconds + nanoseconds * (self.noise >> 60) / 100;
        }
    }

    pub(super) fn pass(&mut self, pass: Pass, unit: usize, micro: u16, nanoseconds: u64) {
        let unit = unit as u16;
        self.all_ranks(|_| What::PassStarted { pass, unit, micro });
        self.compute(nanoseconds);
        self.all_ranks(|_| What::PassFinished { pass, unit, micro });
    }

    pub(super) fn bytes(&self, unit: usize) -> u64 {
        self.header.units[unit].padded * ELEMENT
    }

    pub(super) fn share(&self, unit: usize, sharded: bool) -> i64 {
        (self.bytes(unit) / if sharded { u64::from(self.plan.ranks) } else { 1 }) as i64
    }

    pub(super) fn activations(&self, unit: usize) -> i64 {
        let tokens = 8 * 128 * ELEMENT as i64;
        if unit == 0 || unit + 1 == self.header.units.len() { tokens * 256 } else { tokens * 128 * 9 }
    }

    pub(super) fn issue(&mut self, operation: Operation, units: UnitSet, bytes: u64) -> IssuedCollective {
        let collective = CollectiveEvent {
            progress: Progress::Issued,
            sequence: self.sequence,
            operation,
            group: 0,
            units,
            bytes,
            sent: 0,
        };
        self.sequence += 1;
        let issued = self.clocks.clone();
        for (rank, &at) in issued.iter().enumerate() {
            let sent = self.sent[rank][operation.index()];
            self.emit(rank, at, What::Collective(CollectiveEvent { sent, ..collective.clone() }));
        }
        IssuedCollective { collective, issued }
    }

    pub(super) fn wait(&mut self, IssuedCollective { collective, issued }: IssuedCollective) {
        let ranks = u64::from(self.plan.ranks);
        let started = issued.iter().copied().max().unwrap_or(0).max(self.link_free);
        let finished = started + 60_000 + collective.bytes * 2;
        self.link_free = finished;
        let rounds = collective.operation.rounds();
        let payload = collective.bytes * (ranks - 1) / ranks * rounds;
        if self.plan.ring && !collective.units.is_empty() {
            self.hops(&collective, started, finished, rounds);
        }
        for rank in 0..self.clocks.len() {
            let event = CollectiveEvent { progress: Progress::Started, ..collective.clone() };
            let sent = self.sent[rank][collective.operation.index()];
            self.emit(rank, started, What::Collective(CollectiveEvent { sent, ..event }));
            let sent = sent + payload;
            self.sent[rank][collective.operation.index()] = sent;
            let event = CollectiveEvent { progress: Progress::Finished, sent, ..collective.clone() };
            self.emit(rank, finished, What::Collective(event));
            self.clocks[rank] = self.clocks[rank].max(finished + 1000);
        }
    }

    pub(super) fn hops(&mut self, collective: &CollectiveEvent, started: u64, finished: u64, rounds: u64) {
        let ranks = self.plan.ranks as usize;
        let hops = (ranks - 1) * rounds as usize;
        for hop in 0..hops {
            let at = started + (finished - started) * (hop as u64 + 1) / (hops as u64 + 1);
            for from in 0..ranks {
                let what = What::Hop {
                    group: 0,
                    sequence: collective.sequence,
                    from: from as u16,
                    to: ((from + 1) % ranks) as u16,
                    chunk: ((from + ranks * 2 - hop % ranks) % ranks) as u16,
                    bytes: collective.bytes / ranks as u64,
                };
                self.emit(from, at, what);
            }
        }
    }

    pub(super) fn scalars(&mut self) {
        let issued = self.issue(Operation::Scalars, UnitSet::default(), 64);
        self.wait(issued);
    }

    /// Sorts the events, and takes the predictions from the simulated totals.
    pub(super) fn finish(mut self) -> SimulatedRun {
        self.events.sort_by_key(|event| event.at);
        let mut state = CatchUp::new(self.plan.ranks, self.header.units.len());
        self.events.iter().for_each(|event| state.apply(event));
        let ranks = &state.snapshot.ranks;
        let model = self.header.units.iter().map(|unit| unit.padded * ELEMENT).sum::<u64>();
        let activations: i64 = (0..self.header.units.len()).map(|unit| self.activations(unit)).sum();
        for (rank, now) in (0..).zip(ranks) {
            for class in Class::ALL {
                self.header.predicted_memory.push(PredictedBytes {
                    rank,
                    of: class,
                    bytes: now.peak_of(class),
                });
            }
            for &operation in Operation::ALL.iter().filter(|&&operation| operation != Operation::Scalars) {
                let bytes = now.sent_last_step.by_operation[operation.index()];
                self.header.predicted_traffic.push(PredictedBytes { rank, of: operation, bytes });
            }
            for &place in Place::ALL.iter().filter(|&&place| place != Place::Device && now.peak_in(place) > 0)
            {
                let (peaks, total) = (now.peak[place.index()].to_vec(), now.peak_in(place));
                self.header.offload.memory.push(PredictedPlace { rank, place, peaks, total });
            }
            for &route in Route::ALL.iter().filter(|&&route| now.transfers.uses(route)) {
                let bytes = now.transfers.last_step.bytes[route.index()];
                self.header.offload.transfers.push(PredictedBytes { rank, of: route, bytes });
            }
            self.header.predicted_total.push(now.total_peak);
            self.header.replicated_total.push(4 * model + activations as u64 + (1 << 20));
        }
        if self.plan.fail_at.is_none() {
            let closing: Vec<What> = ranks.iter().map(closing).collect();
            self.all_ranks(|rank| closing[rank].clone());
        }
        SimulatedRun { header: self.header, events: self.events }
    }
}

fn closing(rank: &events::RankSnapshot) -> What {
    What::Finished {
        peaks: rank.peak[Place::Device.index()].to_vec(),
        total_peak: rank.total_peak,
        sent: rank.sent.by_operation.to_vec(),
    }
}
