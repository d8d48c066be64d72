//! One rank as it is right now.

use crate::event::{Class, CollectiveEvent, Contribution, Event, Operation, Pass, Place, Progress, What};
use crate::units::Units;
use serde::{Deserialize, Serialize};

const CLASSES: usize = Class::ALL.len();
const PLACES: usize = Place::ALL.len();
const OPERATIONS: usize = Operation::ALL.len();

/// A pass over a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassNow {
    /// The pass.
    pub pass: Pass,
    /// The unit.
    pub unit: u16,
    /// The micro-batch.
    pub micro: u16,
    /// When it began.
    pub since: u64,
}

/// A collective on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flight {
    /// What its latest event said.
    pub event: CollectiveEvent,
    /// When this rank issued it.
    pub issued: u64,
    /// When every rank had issued it.
    pub started: Option<u64>,
    /// When it was complete here.
    pub finished: Option<u64>,
}

/// How a rank's run ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Not yet.
    #[default]
    Running,
    /// All steps done.
    Finished,
    /// With an error that is not explained yet.
    Failing,
    /// With this explanation.
    Failed(String),
}

/// Bytes sent, per operation and per receiving rank.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// In [`Operation::ALL`]'s order.
    pub by_operation: [u64; OPERATIONS],
    /// By receiving rank, as far as hops tell.
    pub by_receiver: Vec<u64>,
}

impl Sent {
    fn since(&self, before: &Sent) -> Sent {
        let mut difference = self.clone();
        let pairs = difference.by_operation.iter_mut().zip(&before.by_operation);
        pairs.for_each(|(now, before)| *now = now.saturating_sub(*before));
        let pairs = difference.by_receiver.iter_mut().zip(&before.by_receiver);
        pairs.for_each(|(now, before)| *now = now.saturating_sub(*before));
        difference
    }

    /// Bytes, all operations together.
    pub fn total(&self) -> u64 {
        self.by_operation.iter().sum()
    }
}

/// How the loss of the latest finished step was scaled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// What the loss was multiplied with.
    pub scale: f64,
    /// Steps skipped so far because gradients overflowed.
    pub skipped: u32,
    /// Whether this one was.
    pub overflowed: bool,
}

/// A process group within the world that a rank is a member of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// What its collectives call it.
    pub number: u16,
    /// Its members, by their ranks in the world.
    pub ranks: Vec<u32>,
}

/// One chunk on its way from a rank to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The process group: 0 is the world.
    pub group: u16,
    /// The collective's sequence number.
    pub sequence: u64,
    /// Receiving rank.
    pub to: u16,
    /// Which chunk of the buffer.
    pub chunk: u16,
    /// Its size.
    pub bytes: u64,
    /// How many the rank has sent for this collective, this one included.
    pub number: u32,
}

/// One rank right now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSnapshot {
    /// The optimizer step that it is in or has finished last.
    pub step: u32,
    /// When that step began.
    pub step_started: u64,
    /// Whether it is inside that step.
    pub in_step: bool,
    /// The pass over a unit that it is in.
    pub pass: Option<PassNow>,
    /// The pass over a unit that it was in last.
    pub last_pass: Option<PassNow>,
    /// Bytes live per place and class.
    pub live: [[u64; CLASSES]; PLACES],
    /// Most bytes live at once per place and class.
    pub peak: [[u64; CLASSES]; PLACES],
    /// Most bytes live at once on the device, all classes together.
    pub total_peak: u64,
    /// Collectives issued and not finished, oldest first.
    pub flights: Vec<Flight>,
    /// The collective that finished last.
    pub last_flight: Option<Flight>,
    /// Per group, the number of the latest collective that finished.
    finished: Vec<(u16, u64)>,
    /// The groups within the world that it is a member of, in the order in which it joined them: the same on all ranks.
    pub groups: Vec<Membership>,
    /// The latest hop that left this rank.
    pub last_hop: Option<Hop>,
    /// Collectives finished so far, barriers and scalars left out.
    pub collectives: u64,
    /// Bytes sent since the run started.
    pub sent: Sent,
    /// The same when the current step began.
    pub sent_before: Sent,
    /// Bytes sent in the latest finished step.
    pub sent_last_step: Sent,
    /// What is gathered and what waits for reduction.
    pub units: Units,
    /// How its loss is scaled, if it is.
    pub scaling: Option<Scaling>,
    /// Its own part in the latest finished step, if the run tells.
    pub contribution: Option<Contribution>,
    /// How its run ended.
    pub outcome: Outcome,
}

impl RankSnapshot {
    pub(super) fn new(world_size: u32, units: usize) -> Self {
        let sent = Sent { by_receiver: vec![0; world_size as usize], ..Sent::default() };
        RankSnapshot {
            sent_before: sent.clone(),
            sent_last_step: sent.clone(),
            sent,
            units: Units::new(units),
            ..RankSnapshot::default()
        }
    }

    /// Bytes live on the device, all classes together.
    pub fn live_total(&self) -> u64 {
        self.live[Place::Device.index()].iter().sum()
    }

    /// Bytes of `class` live on the device.
    pub fn live_of(&self, class: Class) -> u64 {
        self.live[Place::Device.index()][class.index()]
    }

    /// Most bytes of `class` ever live on the device.
    pub fn peak_of(&self, class: Class) -> u64 {
        self.peak[Place::Device.index()][class.index()]
    }

    /// Bytes sent since the current step began.
    pub fn sent_this_step(&self) -> Sent {
        self.sent.since(&self.sent_before)
    }

    /// Whether a collective is complete here.
    pub fn has_finished(&self, group: u16, sequence: u64) -> bool {
        self.finished.iter().any(|&(of, latest)| of == group && latest >= sequence)
    }

    /// Whether a collective has been issued here.
    pub fn has_issued(&self, group: u16, sequence: u64) -> bool {
        let issued = |f: &Flight| f.event.group == group && f.event.sequence >= sequence;
        self.flights.iter().any(issued) || self.has_finished(group, sequence)
    }

    fn memory(&mut self, place: Place, class: Class, delta: i64, live: u64) {
        self.live[place.index()][class.index()] = live;
        let peak = &mut self.peak[place.index()][class.index()];
        *peak = (*peak).max(live);
        if place == Place::Device {
            self.total_peak = self.total_peak.max(self.live_total());
            self.units.memory(class, delta, self.last_pass.map(|last| last.unit));
        }
    }

    fn collective(&mut self, at: u64, event: CollectiveEvent) {
        self.units.collective(&event);
        match event.progress {
            Progress::Issued => {
                self.flights.push(Flight { event, issued: at, started: None, finished: None });
            }
            Progress::Started => {
                let flight = self.flight(at, event);
                (flight.event, flight.started) = (event, Some(at));
            }
            Progress::Finished => self.land(at, event),
        }
    }

    /// The flight of `event`, made up if its earlier events were lost.
    fn flight(&mut self, at: u64, event: CollectiveEvent) -> &mut Flight {
        let same =
            |flight: &Flight| flight.event.sequence == event.sequence && flight.event.group == event.group;
        let position = self.flights.iter().position(same).unwrap_or_else(|| {
            self.flights.push(Flight { event, issued: at, started: Some(at), finished: None });
            self.flights.len() - 1
        });
        &mut self.flights[position]
    }

    fn land(&mut self, at: u64, event: CollectiveEvent) {
        let flight = self.flight(at, event);
        (flight.event, flight.finished) = (event, Some(at));
        let landed = *flight;
        // Collectives of a group finish in order: whatever is older has lost its last event.
        self.flights.retain(|f| f.event.group != event.group || f.event.sequence > event.sequence);
        if !matches!(event.operation, Operation::Barrier | Operation::Scalars) {
            self.last_flight = Some(landed);
            self.collectives += 1;
        }
        self.note_finished(event.group, event.sequence);
        let total = &mut self.sent.by_operation[event.operation.index()];
        *total = (*total).max(event.sent);
    }

    fn note_finished(&mut self, group: u16, sequence: u64) {
        match self.finished.iter_mut().find(|(of, _)| *of == group) {
            Some((_, latest)) => *latest = sequence.max(*latest),
            None => self.finished.push((group, sequence)),
        }
    }

    fn finish_step(&mut self, step: u32) {
        (self.step, self.in_step, self.pass) = (step, false, None);
        self.sent_last_step = self.sent_this_step();
    }

    fn start_step(&mut self, at: u64, step: u32) {
        (self.step, self.step_started, self.in_step) = (step, at, true);
        self.sent_before = self.sent.clone();
        self.units.start_step();
    }

    pub(super) fn hop(&mut self, hop: Hop) {
        let same = |last: &Hop| (last.group, last.sequence) == (hop.group, hop.sequence);
        let before = self.last_hop.filter(same);
        self.last_hop = Some(Hop { number: before.map_or(1, |last| last.number + 1), ..hop });
        if let Some(total) = self.sent.by_receiver.get_mut(usize::from(hop.to)) {
            *total += hop.bytes;
        }
    }

    fn finish(&mut self, peaks: &[u64], total_peak: u64, sent: &[u64]) {
        let device = &mut self.peak[Place::Device.index()];
        device.iter_mut().zip(peaks).for_each(|(peak, reported)| *peak = *reported);
        self.total_peak = total_peak;
        self.sent.by_operation.iter_mut().zip(sent).for_each(|(sent, reported)| *sent = *reported);
        (self.outcome, self.pass, self.in_step) = (Outcome::Finished, None, false);
    }

    /// Whether `event` still belongs to its run. What a rank does after its last step (gathering weights to save them)
    /// or after its failure (letting go of everything) is in no report and changes no picture.
    pub fn takes(&self, event: &Event) -> bool {
        match self.outcome {
            Outcome::Running => true,
            Outcome::Failing => matches!(event.what, What::Failed { .. }),
            Outcome::Finished | Outcome::Failed(_) => false,
        }
    }

    pub(super) fn apply(&mut self, event: &Event) {
        match &event.what {
            What::StepStarted { step } => self.start_step(event.at, *step),
            &What::PassStarted { pass, unit, micro } => {
                self.pass = Some(PassNow { pass, unit, micro, since: event.at });
                self.units.pass(pass, unit);
            }
            What::PassFinished { .. } => self.last_pass = self.pass.take().or(self.last_pass),
            &What::Memory { place, class, delta, live } => self.memory(place, class, delta, live),
            What::Collective(collective) => self.collective(event.at, *collective),
            What::Hop { .. } | What::Transfer { .. } | What::Evaluated { .. } => {}
            What::Crossed { .. } | What::Ran { .. } | What::Blamed { .. } => {}
            What::Joined { group, ranks } => {
                self.groups.push(Membership { number: *group, ranks: ranks.clone() });
            }
            &What::LossScale { scale, skipped, .. } => {
                let overflowed = skipped > self.scaling.map_or(0, |before| before.skipped);
                self.scaling = Some(Scaling { scale, skipped, overflowed });
            }
            What::Contributed(contribution) => self.contribution = Some(*contribution),
            What::StepFinished { step, .. } => self.finish_step(*step),
            What::Failing => self.outcome = Outcome::Failing,
            What::Failed { message } => self.outcome = Outcome::Failed(message.clone()),
            What::Finished { peaks, total_peak, sent } => self.finish(peaks, *total_peak, sent),
        }
    }
}
