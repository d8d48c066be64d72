//! Predicted runs: the events that every rank would emit, at the times that they would take.

use crate::clock::Clock;
use crate::cost::Costs;
use events::{Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, RunHeader, What};
use prediction::{Action, Among, InvalidJob, Issued, Job, Prediction};
use std::collections::BTreeMap;

const NANOSECONDS: f64 = 1e9;

/// A predicted run: its header, and its events, oldest first.
pub struct PredictedRun {
    /// The header.
    pub header: RunHeader,
    /// The events of all ranks. Losses, norms and learning rates are not numbers.
    pub events: Vec<Event>,
}

/// Maximum number of events of a predicted run, which is held in memory.
const MOST_EVENTS: usize = 20_000_000;
/// Maximum number of ranks of a recording.
const MOST_RANKS: usize = 1024;

/// True if `steps` steps of `job` are few enough to be recorded.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn is_recordable(job: &Job, steps: u32) -> Result<bool, InvalidJob> {
    let actions = |micro_batches| -> Result<usize, InvalidJob> {
        let [_, step] = prediction::scripts(&Job { micro_batches, ..job.clone() })?;
        Ok(step.len())
    };
    let (one, two) = (actions(1)?, actions(2)?);
    let of_step = one.saturating_add((two - one).saturating_mul(job.micro_batches - 1));
    // An action is at most two events: an update begins and ends.
    let events = of_step.saturating_mul(2 * steps as usize).saturating_mul(job.world_size);
    Ok(events <= MOST_EVENTS && job.world_size <= MOST_RANKS)
}

/// Returns the run of `steps` steps of `job`, whose prediction is `prediction`. Its device has no
/// capacity if the job needs more: times are predicted as if memory sufficed.
///
/// # Errors
/// [`InvalidJob`] if no run can have these numbers.
pub fn play(
    job: &Job,
    prediction: &Prediction,
    costs: &Costs,
    steps: u32,
) -> Result<PredictedRun, InvalidJob> {
    let predicted = prediction::header(job, prediction)?;
    let header = RunHeader {
        stage: format!("{} {}", predicted.stage, RunHeader::PREDICTED),
        device: costs.describe_device(),
        capacity: Some(costs.capacity()).filter(|capacity| *capacity >= prediction.peak.total()),
        precision: job.recipe.name.into(),
        steps,
        version: env!("CARGO_PKG_VERSION").into(),
        ..predicted
    };
    let [setup, step] = prediction::scripts(job)?;
    let mut writer = EventWriter::new(job, costs);
    writer.join_groups();
    writer.act(&setup);
    for number in 0..steps {
        let began = writer.clock.now;
        writer.at_once(What::StepStarted { step: number });
        writer.act(&step);
        let seconds = writer.clock.now - began;
        let tokens = (job.batch_size * job.tokens * job.micro_batches * job.world_size) as u64;
        let unknown = f64::NAN;
        writer.at_once(What::StepFinished {
            step: number,
            loss: unknown,
            grad_norm: unknown,
            lr: unknown,
            tokens,
            seconds,
        });
    }
    writer.finish(prediction);
    let mut events = writer.events;
    events.sort_by_key(|event| event.at);
    Ok(PredictedRun { header, events })
}

/// A collective that is issued and not waited for yet.
struct Flight {
    issued: Issued,
    sequence: u64,
}

/// Writes what the ranks do as events.
struct EventWriter<'a> {
    job: &'a Job,
    costs: &'a Costs,
    clock: Clock,
    events: Vec<Event>,
    /// The number of collectives that each group has issued.
    issued: BTreeMap<Among, u64>,
    flights: BTreeMap<usize, Flight>,
    /// Payload bytes per rank and operation.
    sent: Vec<[u64; Operation::ALL.len()]>,
    micro: u16,
}

impl<'a> EventWriter<'a> {
    fn new(job: &'a Job, costs: &'a Costs) -> Self {
        EventWriter {
            job,
            costs,
            clock: Clock::default(),
            events: Vec::new(),
            issued: BTreeMap::new(),
            flights: BTreeMap::new(),
            sent: vec![[0; Operation::ALL.len()]; job.world_size],
            micro: 0,
        }
    }

    /// Emits an event on each rank.
    fn emit(&mut self, seconds: f64, what: impl Fn(usize) -> What) {
        let at = (seconds * NANOSECONDS) as u64;
        let ranks = 0..self.job.world_size;
        self.events.extend(ranks.map(|rank| Event { at, rank: rank as u32, what: what(rank) }));
    }

    /// Emits the same event on each rank, now.
    fn at_once(&mut self, what: What) {
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

    fn join_groups(&mut self) {
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

    /// Does what `actions` say.
    fn act(&mut self, actions: &[Action]) {
        let mut at = 0;
        while let Some(action) = actions.get(at) {
            at += 1;
            match action {
                &Action::Begin { pass, unit, layer } => {
                    let end = actions[at..].iter().position(|action| *action == Action::End).unwrap_or(0);
                    let work = (pass, unit, self.micro);
                    self.compute(work, self.costs.pass(pass, layer), &actions[at..at + end]);
                    at += end + 1;
                }
                &Action::Update { unit, piece, elements } => {
                    self.compute((Pass::Step, unit, piece), self.costs.update(elements), &[]);
                }
                Action::Issue(issued) => self.issue(issued),
                &Action::Wait { number } => self.wait(number),
                &Action::MicroBatch { number } => self.micro = number,
                &Action::Memory { place, class, delta, live } => {
                    self.at_once(What::Memory { place, class, delta, live });
                }
                Action::End => {}
            }
        }
    }

    /// Computes a pass, and spreads over it what it allocates and frees.
    fn compute(&mut self, (pass, unit, micro): (Pass, u16, u16), seconds: f64, within: &[Action]) {
        self.at_once(What::PassStarted { pass, unit, micro });
        let from = self.clock.now;
        let part = seconds / (within.len() + 1) as f64;
        for (number, action) in (1..).zip(within) {
            debug_assert!(matches!(action, Action::Memory { .. }), "a pass issues and awaits nothing");
            if let &Action::Memory { place, class, delta, live } = action {
                self.emit(from + part * f64::from(number), |_| What::Memory { place, class, delta, live });
            }
        }
        self.clock.compute(pass, seconds);
        self.at_once(What::PassFinished { pass, unit, micro });
    }

    fn collective(&self, flight: &Flight, progress: Progress, rank: usize) -> What {
        let Issued { among, operation, units, .. } = &flight.issued;
        What::Collective(CollectiveEvent {
            progress,
            sequence: flight.sequence,
            operation: *operation,
            group: self.group(*among, rank),
            units: units.clone(),
            bytes: flight.issued.bytes,
            sent: self.sent[rank][operation.index()],
        })
    }

    fn on_each(&mut self, seconds: f64, flight: &Flight, progress: Progress) {
        let events: Vec<What> =
            (0..self.job.world_size).map(|rank| self.collective(flight, progress, rank)).collect();
        self.emit(seconds, |rank| events[rank].clone());
    }

    fn issue(&mut self, issued: &Issued) {
        let sequence = self.issued.entry(issued.among).or_default();
        let flight = Flight { issued: issued.clone(), sequence: *sequence };
        *sequence += 1;
        let now = self.clock.now;
        let span = self.clock.issue(self.costs, issued);
        self.on_each(now, &flight, Progress::Issued);
        self.on_each(span.from, &flight, Progress::Started);
        self.flights.insert(issued.number, flight);
    }

    fn wait(&mut self, number: usize) {
        let Some(flight) = self.flights.remove(&number) else { return };
        let (span, idle) = self.clock.wait(number);
        let now = self.clock.now;
        let before = |seconds: f64| ((now - seconds) * NANOSECONDS) as u64;
        let crossed = |group| What::Crossed {
            group,
            sequence: flight.sequence,
            began: before(span.from),
            ended: before(span.to),
            exposed: (idle * NANOSECONDS) as u64,
        };
        let groups: Vec<u16> =
            (0..self.job.world_size).map(|rank| self.group(flight.issued.among, rank)).collect();
        if flight.issued.operation != Operation::Scalars {
            self.emit(now, |rank| crossed(groups[rank]));
        }
        for (rank, sent) in self.sent.iter_mut().enumerate() {
            let payload = flight.issued.sent(self.job.algorithm, self.job.world_size, rank);
            sent[flight.issued.operation.index()] += payload;
        }
        self.on_each(now, &flight, Progress::Finished);
    }

    fn finish(&mut self, prediction: &Prediction) {
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
