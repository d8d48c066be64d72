//! Made-up runs with the shape of real ones: what each stage allocates, gathers, reduces and frees, on a made-up clock.
//!
//! Screens are drawn from them in tests and examples, for any stage and world size, without training anything.

use events::event::NO_UNIT;
use events::header::{PredictedMemory, PredictedTraffic, Sharded, UnitHeader};
use events::{CatchUp, Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, RunHeader, What};

const CLASSES: usize = Class::ALL.len();
const OPERATIONS: usize = Operation::ALL.len();
const ELEMENT: u64 = 4;

/// A made-up run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its description.
    pub header: RunHeader,
    /// Its events, in order of time.
    pub events: Vec<Event>,
}

/// What to make up.
#[derive(Clone, Debug)]
pub struct Plan {
    /// 0 is DDP, 1 to 3 are the ZeRO stages.
    pub stage: u8,
    /// World size.
    pub ranks: u32,
    /// Optimizer steps.
    pub steps: u32,
    /// Transformer blocks.
    pub blocks: usize,
    /// Micro-batches per step.
    pub micro_batches: u16,
    /// Whether collectives go around a ring, hop by hop.
    pub ring: bool,
    /// Fail in this step, on the last rank.
    pub fail_at: Option<u32>,
}

impl Plan {
    /// A run of `stage` on `ranks` ranks: tiny model, three steps, one micro-batch.
    pub fn new(stage: u8, ranks: u32) -> Self {
        Plan { stage, ranks, steps: 3, blocks: 4, micro_batches: 1, ring: false, fail_at: None }
    }

    /// Makes the run up.
    pub fn run(&self) -> Run {
        let mut simulation = Simulation::new(self);
        simulation.run();
        simulation.finish()
    }
}

struct Ticket {
    collective: CollectiveEvent,
    issued: Vec<u64>,
}

struct Simulation<'a> {
    plan: &'a Plan,
    header: RunHeader,
    clocks: Vec<u64>,
    link_free: u64,
    events: Vec<Event>,
    live: Vec<[u64; CLASSES]>,
    sent: Vec<[u64; OPERATIONS]>,
    sequence: u64,
    noise: u64,
}

fn units(plan: &Plan) -> Vec<UnitHeader> {
    let unit = |name: String, parameters: u64| {
        let padded = parameters.next_multiple_of(u64::from(plan.ranks));
        UnitHeader { name, parameters, padded }
    };
    let mut units = vec![unit("embedding".into(), 32_768)];
    units.extend((0..plan.blocks).map(|block| unit(format!("block {block}"), 213_248)));
    units.push(unit("head".into(), 32_896));
    units
}

fn header(plan: &Plan) -> RunHeader {
    let units = units(plan);
    let names = ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"];
    RunHeader {
        stage: names[usize::from(plan.stage.min(3))].into(),
        model: "tiny".into(),
        parameters: units.iter().map(|unit| unit.parameters).sum(),
        world_size: plan.ranks,
        device: "CPU".into(),
        precision: "fp32".into(),
        communicated_bytes: ELEMENT as u32,
        algorithm: if plan.ring { "ring" } else { "direct" }.into(),
        steps: plan.steps,
        micro_batches: u32::from(plan.micro_batches),
        batch_size: 8,
        sequence_length: 128,
        capacity: Some(64 << 20),
        sharded: Sharded {
            optimizer: plan.stage >= 1,
            gradients: plan.stage >= 2,
            parameters: plan.stage >= 3,
        },
        units,
        predicted_memory: Vec::new(),
        predicted_total: Vec::new(),
        replicated_total: Vec::new(),
        predicted_traffic: Vec::new(),
        version: "simulated".into(),
    }
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a Plan) -> Self {
        let ranks = plan.ranks as usize;
        Simulation {
            plan,
            header: header(plan),
            clocks: vec![1_000_000; ranks],
            link_free: 0,
            events: Vec::new(),
            live: vec![[0; CLASSES]; ranks],
            sent: vec![[0; OPERATIONS]; ranks],
            sequence: 0,
            noise: 0x2545_f491_4f6c_dd1d,
        }
    }

    fn emit(&mut self, rank: usize, at: u64, what: What) {
        self.events.push(Event { at, rank: rank as u32, what });
    }

    fn everybody(&mut self, what: impl Fn(usize) -> What) {
        for rank in 0..self.clocks.len() {
            self.emit(rank, self.clocks[rank], what(rank));
            self.clocks[rank] += 500;
        }
    }

    fn memory(&mut self, class: Class, delta: i64) {
        for rank in 0..self.clocks.len() {
            let live = &mut self.live[rank][class.index()];
            *live = live.saturating_add_signed(delta);
            let what = What::Memory { place: Place::Device, class, delta, live: *live };
            self.emit(rank, self.clocks[rank], what);
            self.clocks[rank] += 200;
        }
    }

    /// Every rank computes for about this long; ranks differ by a few percent.
    fn compute(&mut self, nanoseconds: u64) {
        for clock in &mut self.clocks {
            self.noise =
                self.noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *clock += nanoseconds + nanoseconds * (self.noise >> 60) / 100;
        }
    }

    fn pass(&mut self, pass: Pass, unit: usize, micro: u16, nanoseconds: u64) {
        let unit = unit as u16;
        self.everybody(|_| What::PassStarted { pass, unit, micro });
        self.compute(nanoseconds);
        self.everybody(|_| What::PassFinished { pass, unit, micro });
    }

    fn bytes(&self, unit: usize) -> u64 {
        self.header.units[unit].padded * ELEMENT
    }

    fn share(&self, unit: usize, sharded: bool) -> i64 {
        (self.bytes(unit) / if sharded { u64::from(self.plan.ranks) } else { 1 }) as i64
    }

    fn activations(&self, unit: usize) -> i64 {
        let tokens = 8 * 128 * ELEMENT as i64;
        if unit == 0 || unit + 1 == self.header.units.len() { tokens * 256 } else { tokens * 128 * 9 }
    }

    fn issue(&mut self, operation: Operation, unit: u16, units: u16, bytes: u64) -> Ticket {
        let collective = CollectiveEvent {
            progress: Progress::Issued,
            sequence: self.sequence,
            operation,
            group: 0,
            unit,
            units,
            bytes,
            sent: 0,
        };
        self.sequence += 1;
        let issued = self.clocks.clone();
        for (rank, &at) in issued.iter().enumerate() {
            let sent = self.sent[rank][operation.index()];
            self.emit(rank, at, What::Collective(CollectiveEvent { sent, ..collective }));
        }
        Ticket { collective, issued }
    }

    fn wait(&mut self, ticket: Ticket) {
        let Ticket { collective, issued } = ticket;
        let ranks = u64::from(self.plan.ranks);
        let started = issued.iter().copied().max().unwrap_or(0).max(self.link_free);
        let finished = started + 60_000 + collective.bytes * 2;
        self.link_free = finished;
        let rounds = if collective.operation == Operation::AllReduce { 2 } else { 1 };
        let payload = collective.bytes * (ranks - 1) / ranks * rounds;
        if self.plan.ring && collective.unit != NO_UNIT {
            self.hops(&collective, started, finished, rounds);
        }
        for rank in 0..self.clocks.len() {
            let event = CollectiveEvent { progress: Progress::Started, ..collective };
            let sent = self.sent[rank][collective.operation.index()];
            self.emit(rank, started, What::Collective(CollectiveEvent { sent, ..event }));
            let sent = sent + payload;
            self.sent[rank][collective.operation.index()] = sent;
            let event = CollectiveEvent { progress: Progress::Finished, sent, ..collective };
            self.emit(rank, finished, What::Collective(event));
            self.clocks[rank] = self.clocks[rank].max(finished + 1000);
        }
    }

    fn hops(&mut self, collective: &CollectiveEvent, started: u64, finished: u64, rounds: u64) {
        let ranks = self.plan.ranks as usize;
        let hops = (ranks - 1) * rounds as usize;
        for hop in 0..hops {
            let at = started + (finished - started) * (hop as u64 + 1) / (hops as u64 + 1);
            for from in 0..ranks {
                let what = What::Hop {
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

    fn scalars(&mut self) {
        let ticket = self.issue(Operation::Scalars, NO_UNIT, 0, 64);
        self.wait(ticket);
    }

    fn run(&mut self) {
        let sharded = self.header.sharded;
        for unit in 0..self.header.units.len() {
            self.memory(Class::Parameters, self.share(unit, sharded.parameters));
            self.memory(Class::Gradients, self.share(unit, sharded.gradients));
            self.memory(Class::Optimizer, 2 * self.share(unit, sharded.optimizer));
        }
        self.scalars();
        for step in 0..self.plan.steps {
            self.everybody(|_| What::StepStarted { step });
            let began = self.clocks[0];
            if self.plan.fail_at == Some(step) {
                return self.fail();
            }
            for micro in 0..self.plan.micro_batches {
                self.forward(micro);
                self.backward(micro);
            }
            self.update();
            self.report_step(step, began);
        }
        self.evaluate();
    }

    fn fail(&mut self) {
        let rank = self.clocks.len() - 1;
        let message = format!(
            "rank {rank}: out of memory: activations of 4.7 MB do not fit: 61.2 MB of 64.0 MB are live.\n\
             Live: parameters 3.7 MB, gradients 3.7 MB, optimizer 7.3 MB, activations 46.5 MB.\n\
             Try a smaller --batch-size, or a stage that shards more."
        );
        self.emit(rank, self.clocks[rank], What::Failed { message });
    }

    fn gather(&mut self, unit: usize) -> Option<Ticket> {
        self.header.sharded.parameters.then(|| {
            self.memory(Class::GatheredParameters, self.bytes(unit) as i64);
            self.issue(Operation::AllGather, unit as u16, 1, self.bytes(unit))
        })
    }

    fn release(&mut self, unit: usize) {
        if self.header.sharded.parameters {
            self.memory(Class::GatheredParameters, -(self.bytes(unit) as i64));
        }
    }

    fn forward(&mut self, micro: u16) {
        let count = self.header.units.len();
        let mut coming = self.gather(0);
        for unit in 0..count {
            let here = coming.take();
            if unit + 1 < count {
                coming = self.gather(unit + 1);
            }
            if let Some(ticket) = here {
                self.wait(ticket);
            }
            self.memory(Class::Activations, self.activations(unit));
            self.memory(Class::Workspace, 1 << 20);
            self.pass(Pass::Forward, unit, micro, self.cost(unit));
            self.memory(Class::Workspace, -(1 << 20));
            if unit + 1 < count {
                self.release(unit);
            }
        }
    }

    fn cost(&self, unit: usize) -> u64 {
        if unit == 0 || unit + 1 == self.header.units.len() { 700_000 } else { 2_400_000 }
    }

    fn backward(&mut self, micro: u16) {
        let count = self.header.units.len();
        let last_micro = micro + 1 == self.plan.micro_batches;
        let mut coming: Option<Ticket> = None;
        let mut reducing: Vec<(usize, Ticket)> = Vec::new();
        for unit in (0..count).rev() {
            let here = coming.take();
            if unit > 0 {
                coming = self.gather(unit - 1);
            }
            if let Some(ticket) = here {
                self.wait(ticket);
            }
            if self.header.sharded.gradients {
                self.memory(Class::CommunicationBuckets, self.bytes(unit) as i64);
            }
            self.pass(Pass::Backward, unit, micro, 2 * self.cost(unit));
            self.memory(Class::Activations, -self.activations(unit));
            self.release(unit);
            if self.header.sharded.gradients || last_micro {
                let operation =
                    if self.plan.stage == 0 { Operation::AllReduce } else { Operation::ReduceScatter };
                let ticket = self.issue(operation, unit as u16, 1, self.bytes(unit));
                reducing.push((unit, ticket));
            }
            if reducing.len() > 1 {
                let (unit, ticket) = reducing.remove(0);
                self.reduced(unit, ticket);
            }
        }
        reducing.into_iter().for_each(|(unit, ticket)| self.reduced(unit, ticket));
    }

    fn reduced(&mut self, unit: usize, ticket: Ticket) {
        self.wait(ticket);
        if self.header.sharded.gradients {
            self.memory(Class::CommunicationBuckets, -(self.bytes(unit) as i64));
        }
    }

    fn update(&mut self) {
        self.scalars();
        let refresh = self.header.sharded.optimizer && !self.header.sharded.parameters;
        for unit in 0..self.header.units.len() {
            let divisor = if self.header.sharded.optimizer { u64::from(self.plan.ranks) } else { 1 };
            self.pass(Pass::Step, unit, 0, self.cost(unit) / 4 / divisor);
            if refresh {
                let ticket = self.issue(Operation::AllGather, unit as u16, 1, self.bytes(unit));
                self.wait(ticket);
            }
        }
    }

    fn report_step(&mut self, step: u32, began: u64) {
        let tokens = u64::from(self.plan.ranks * 1024) * u64::from(self.plan.micro_batches);
        let loss = 1.9 + 3.6 * (-f64::from(step) / 12.0).exp() + 0.05 * (f64::from(step) * 1.7).sin();
        let (grad_norm, lr) = (1.0 + 2.0 * (-f64::from(step) / 20.0).exp(), 3e-4);
        let seconds = (self.clocks[0] - began) as f64 * 1e-9;
        self.everybody(|_| What::StepFinished { step, loss, grad_norm, lr, tokens, seconds });
    }

    fn evaluate(&mut self) {
        for unit in 0..self.header.units.len() {
            if let Some(ticket) = self.gather(unit) {
                self.wait(ticket);
            }
            self.pass(Pass::Evaluate, unit, 0, self.cost(unit));
            self.release(unit);
        }
        let step = self.plan.steps;
        self.everybody(|_| What::Evaluated { step, loss: 2.03 });
    }

    /// Sorts the events and fills the predictions in from what happened.
    fn finish(mut self) -> Run {
        self.events.sort_by_key(|event| event.at);
        let mut state = CatchUp::new(self.plan.ranks, self.header.units.len());
        self.events.iter().for_each(|event| state.apply(event));
        let ranks = &state.snapshot.ranks;
        let model = self.header.units.iter().map(|unit| unit.padded * ELEMENT).sum::<u64>();
        let activations: i64 = (0..self.header.units.len()).map(|unit| self.activations(unit)).sum();
        for (rank, now) in (0..).zip(ranks) {
            for &class in Class::ALL {
                self.header.predicted_memory.push(PredictedMemory { rank, class, bytes: now.peak_of(class) });
            }
            for &operation in Operation::ALL.iter().filter(|&&operation| operation != Operation::Scalars) {
                let bytes = now.sent_last_step.by_operation[operation.index()];
                self.header.predicted_traffic.push(PredictedTraffic { rank, operation, bytes });
            }
            self.header.predicted_total.push(now.total_peak);
            self.header.replicated_total.push(4 * model + activations as u64 + (1 << 20));
        }
        if self.plan.fail_at.is_none() {
            let closing: Vec<What> = ranks.iter().map(closing).collect();
            self.everybody(|rank| closing[rank].clone());
        }
        Run { header: self.header, events: self.events }
    }
}

fn closing(rank: &events::RankSnapshot) -> What {
    What::Finished {
        peaks: rank.peak[Place::Device.index()].to_vec(),
        total_peak: rank.total_peak,
        sent: rank.sent.by_operation.to_vec(),
    }
}
