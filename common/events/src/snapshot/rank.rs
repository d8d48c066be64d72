//! The current state of one rank.

use super::parts::{Flight, Hop, Membership, PassNow, RankStatus, Scaling, Sent};
use super::transfers::{Moved, Transfers};
use crate::amount::{self, bounded, make_room};
use crate::event::{Class, CollectiveEvent, Event, LocalMetrics, Operation, Pass, Place, Progress, What};
use crate::units::Units;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const CLASSES: usize = Class::ALL.len();
const PLACES: usize = Place::ALL.len();

/// The state of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankSnapshot {
    /// The current optimizer step, or the latest one between steps.
    pub step: u32,
    /// When that step began, in nanoseconds of the run.
    #[serde(deserialize_with = "bounded")]
    pub step_started: u64,
    /// True if the rank is within that step.
    pub in_step: bool,
    /// The current pass over a unit.
    pub pass: Option<PassNow>,
    /// The latest finished pass over a unit.
    pub last_pass: Option<PassNow>,
    /// Live bytes per place and class.
    #[serde(deserialize_with = "bounded")]
    pub live: [[u64; CLASSES]; PLACES],
    /// Peak of the live bytes per place and class.
    #[serde(deserialize_with = "bounded")]
    pub peak: [[u64; CLASSES]; PLACES],
    /// Peak of the device's live bytes, all classes together.
    #[serde(deserialize_with = "bounded")]
    pub total_peak: u64,
    /// Peak of the live bytes per place, all classes together.
    #[serde(deserialize_with = "bounded")]
    place_peaks: [u64; PLACES],
    /// Collectives in flight (issued and not finished), oldest first.
    pub flights: Vec<Flight>,
    /// The collective that finished last.
    pub last_flight: Option<Flight>,
    /// The number of the latest finished collective of each group.
    #[serde(deserialize_with = "bounded")]
    finished: Vec<(u16, u64)>,
    /// The groups within the world that the rank has joined, in order. All ranks join in the same
    /// order.
    pub groups: Vec<Membership>,
    /// The latest hop that this rank sent.
    pub last_hop: Option<Hop>,
    /// The number of finished collectives, without barriers and scalars.
    #[serde(deserialize_with = "bounded")]
    pub collectives: u64,
    /// Bytes sent since the run started.
    pub sent: Sent,
    /// Bytes sent by the collectives that were issued before the current step.
    pub sent_before: Sent,
    /// Bytes sent by the collectives that were issued in the latest finished step.
    pub sent_last_step: Sent,
    /// Its transfers between its device, main memory and disk.
    pub transfers: Transfers,
    /// The state of each unit.
    pub units: Units,
    /// The scale of its loss; `None` if the loss is not scaled.
    pub scaling: Option<Scaling>,
    /// Its own metrics of the latest finished step; `None` if the run does not report them.
    pub contribution: Option<LocalMetrics>,
    /// Whether it runs, has finished or has failed.
    pub status: RankStatus,
}

impl RankSnapshot {
    pub(super) fn new(world_size: u32, units: usize) -> Self {
        let sent = Sent { by_receiver: Arc::new(vec![0; world_size as usize]), ..Sent::default() };
        RankSnapshot {
            sent_before: sent.clone(),
            sent_last_step: sent.clone(),
            sent,
            units: Units::new(units),
            ..RankSnapshot::default()
        }
    }

    /// True if it counts bytes for this many receivers, and has this many units.
    pub(super) fn has_shape(&self, receivers: usize, units: usize) -> bool {
        let sent = [&self.sent, &self.sent_before, &self.sent_last_step];
        self.units.units.len() == units && sent.iter().all(|sent| sent.by_receiver.len() == receivers)
    }

    /// Returns the approximate size of the state in bytes.
    pub(super) fn bytes(&self) -> usize {
        let members: usize = self.groups.iter().map(|group| 32 + size_of_val(&group.ranks[..])).sum();
        let flown: usize = self.flights.iter().map(|flight| flight.event.units.bytes()).sum();
        let lists = size_of_val(&self.flights[..]) + flown + size_of_val(&self.finished[..]) + members;
        let sent = 3 * size_of_val(&self.sent.by_receiver[..]);
        size_of::<Self>() + lists + sent + self.transfers.bytes() + self.units.bytes()
    }

    /// Returns the device's live bytes, all classes together.
    pub fn live_total(&self) -> u64 {
        self.live_in(Place::Device)
    }

    /// Returns the live bytes in `place`, all classes together.
    pub fn live_in(&self, place: Place) -> u64 {
        self.live[place.index()].iter().sum()
    }

    /// Returns the peak of the live bytes in `place`, all classes together.
    pub fn peak_in(&self, place: Place) -> u64 {
        if place == Place::Device { self.total_peak } else { self.place_peaks[place.index()] }
    }

    /// Returns the device's live bytes of `class`.
    pub fn live_of(&self, class: Class) -> u64 {
        self.live[Place::Device.index()][class.index()]
    }

    /// Returns the peak of the device's live bytes of `class`.
    pub fn peak_of(&self, class: Class) -> u64 {
        self.peak[Place::Device.index()][class.index()]
    }

    /// Returns the bytes sent by the collectives that were issued in the current step.
    pub fn sent_this_step(&self) -> Sent {
        self.sent.since(&self.sent_before)
    }

    /// Returns the bytes sent so far in `step`, which is the latest step of any rank or the one
    /// before it: zeros if this rank has not begun it.
    pub fn sent_in(&self, step: u32) -> Sent {
        match self.finished_step() {
            _ if self.in_step && self.step == step => self.sent_this_step(),
            Some(finished) if finished == step => self.sent_last_step.clone(),
            // The difference is one zero per receiver.
            _ => self.sent.since(&self.sent),
        }
    }

    /// Returns the latest step that this rank has finished, or `None` if it has begun no step or is
    /// in step 0. A resumed run finished the step before its first one in another process.
    pub fn finished_step(&self) -> Option<u32> {
        if self.in_step {
            self.step.checked_sub(1)
        } else {
            Some(self.step).filter(|_| self.step_started > 0)
        }
    }

    /// True while data of the latest finished step are in flight: its updated parameters are
    /// gathered until the next forward needs them, so [`RankSnapshot::sent_last_step`] is not
    /// complete.
    pub fn still_sends_for_last_step(&self) -> bool {
        let follows_update = self.last_pass.is_none_or(|last| last.pass == Pass::Step);
        let is_late = |flight: &Flight| {
            let of_last_step = if self.in_step { flight.issued < self.step_started } else { follows_update };
            of_last_step && !flight.event.units.is_empty()
        };
        self.flights.iter().any(is_late)
    }

    /// Returns the transfers between places so far in `step`, the latest step of any rank: zeros if
    /// this rank has not begun it.
    pub fn moved_in(&self, step: u32) -> Moved {
        match self.step == step {
            false => Moved::default(),
            true if self.in_step => self.transfers.this_step(),
            true => self.transfers.last_step,
        }
    }

    /// True if the collective is complete on this rank.
    pub fn has_finished(&self, group: u16, sequence: u64) -> bool {
        self.finished.iter().any(|&(of, latest)| of == group && latest >= sequence)
    }

    /// True if this rank has issued the collective.
    pub fn has_issued(&self, group: u16, sequence: u64) -> bool {
        let issued = |f: &Flight| f.event.group == group && f.event.sequence >= sequence;
        self.flights.iter().any(issued) || self.has_finished(group, sequence)
    }

    fn memory(&mut self, place: Place, class: Class, delta: i64, live: u64) {
        self.live[place.index()][class.index()] = live;
        let peak = &mut self.peak[place.index()][class.index()];
        *peak = (*peak).max(live);
        let total = self.live_in(place);
        let peak = &mut self.place_peaks[place.index()];
        *peak = (*peak).max(total);
        if place == Place::Device {
            self.total_peak = self.total_peak.max(total);
            self.units.memory(class, delta, self.last_pass.map(|last| last.unit));
        }
    }

    fn collective(&mut self, at: u64, event: &CollectiveEvent) {
        self.units.collective(event);
        match event.progress {
            Progress::Issued => {
                make_room(&mut self.flights);
                self.flights.push(Flight { event: event.clone(), issued: at, started: None, finished: None });
            }
            Progress::Started => {
                let flight = self.flight(at, event);
                (flight.event, flight.started) = (event.clone(), Some(at));
            }
            Progress::Finished => self.land(at, event),
        }
    }

    /// Returns the flight of `event`. Creates one if the collective's earlier events were lost.
    fn flight(&mut self, at: u64, event: &CollectiveEvent) -> &mut Flight {
        let same =
            |flight: &Flight| flight.event.sequence == event.sequence && flight.event.group == event.group;
        let position = self.flights.iter().position(same).unwrap_or_else(|| {
            make_room(&mut self.flights);
            self.flights.push(Flight { event: event.clone(), issued: at, started: Some(at), finished: None });
            self.flights.len() - 1
        });
        &mut self.flights[position]
    }

    fn land(&mut self, at: u64, event: &CollectiveEvent) {
        let flight = self.flight(at, event);
        (flight.event, flight.finished) = (event.clone(), Some(at));
        let (landed, issued) = (flight.clone(), flight.issued);
        // A rank waits for collectives of one operation and step in order, so the last events of
        // older ones were lost. It may wait for an all-gather before an earlier reduce-scatter.
        let is_of_this_step = |issued: u64| issued >= self.step_started;
        let is_over = |other: &Flight| {
            let Flight { event: CollectiveEvent { operation, group, sequence, .. }, .. } = *other;
            let is_older = operation == event.operation && sequence < event.sequence;
            let is_lost = is_older && is_of_this_step(other.issued) == is_of_this_step(issued);
            group == event.group && (is_lost || sequence == event.sequence)
        };
        self.flights.retain(|flight| !is_over(flight));
        if !matches!(event.operation, Operation::Barrier | Operation::Scalars) {
            self.last_flight = Some(landed);
            self.collectives += 1;
        }
        self.note_finished(event.group, event.sequence);
        let operation = event.operation.index();
        let total = &mut self.sent.by_operation[operation];
        let more = event.sent.saturating_sub(*total);
        *total += more;
        self.count_for_its_step(issued, |sent| amount::count(&mut sent.by_operation[operation], more));
    }

    /// Applies `count`, which counts bytes of a collective that was issued at `issued`, to the sums
    /// of the step before if that has issued it: updated parameters are gathered until the next
    /// forward needs them.
    fn count_for_its_step(&mut self, issued: u64, count: impl Fn(&mut Sent)) {
        if self.in_step && issued < self.step_started {
            count(&mut self.sent_before);
            count(&mut self.sent_last_step);
        }
    }

    fn note_finished(&mut self, group: u16, sequence: u64) {
        match self.finished.iter_mut().find(|(of, _)| *of == group) {
            Some((_, latest)) => *latest = sequence.max(*latest),
            None => {
                make_room(&mut self.finished);
                self.finished.push((group, sequence));
            }
        }
    }

    fn finish_step(&mut self, step: u32) {
        // The next event carries the step's scale and whether it overflowed.
        self.scaling.iter_mut().for_each(|scaling| scaling.overflowed = false);
        (self.step, self.in_step, self.pass) = (step, false, None);
        self.sent_last_step = self.sent_this_step();
        self.transfers.finish_step();
    }

    fn start_step(&mut self, at: u64, step: u32) {
        self.transfers.start_step(self.step_started);
        // No rank waits for a collective of the step before the one that has ended.
        self.flights.retain(|flight| flight.issued >= self.step_started);
        // Flights of the step before have been issued earlier, if only by a nanosecond.
        let issued = self.flights.iter().map(|flight| flight.issued.saturating_add(1)).max();
        (self.step, self.step_started, self.in_step) =
            (step, issued.map_or(at, |issued| issued.max(at)), true);
        self.sent_before = self.sent.clone();
        self.units.start_step();
    }

    pub(super) fn hop(&mut self, hop: Hop) {
        let same = |last: &Hop| (last.group, last.sequence) == (hop.group, hop.sequence);
        let before = self.last_hop.filter(same);
        self.last_hop = Some(Hop { number: before.map_or(1, |last| last.number.saturating_add(1)), ..hop });
        let receiver = usize::from(hop.to);
        if receiver < self.sent.by_receiver.len() {
            let same =
                |flight: &&Flight| (flight.event.group, flight.event.sequence) == (hop.group, hop.sequence);
            let issued = self.flights.iter().find(same).map_or(self.step_started, |flight| flight.issued);
            let count = |sent: &mut Sent| {
                amount::count(&mut Arc::make_mut(&mut sent.by_receiver)[receiver], hop.bytes);
            };
            count(&mut self.sent);
            self.count_for_its_step(issued, count);
        }
    }

    fn finish(&mut self, peaks: &[u64], total_peak: u64, sent: &[u64]) {
        let device = &mut self.peak[Place::Device.index()];
        device.iter_mut().zip(peaks).for_each(|(peak, reported)| *peak = *reported);
        self.total_peak = total_peak;
        self.sent.by_operation.iter_mut().zip(sent).for_each(|(sent, reported)| *sent = *reported);
        (self.status, self.pass, self.in_step) = (RankStatus::Finished, None, false);
    }

    pub(super) fn lose_track(&mut self) {
        (self.pass, self.last_hop) = (None, None);
        self.flights.clear();
        self.transfers.flights.clear();
        self.units = Units::new(self.units.units.len());
    }

    /// True if `event` is part of the run. Events after a rank's last step (it gathers weights to
    /// save them) or after its failure (it frees its buffers) are not: reports do not count them,
    /// and pictures do not show them.
    pub fn takes(&self, event: &Event) -> bool {
        match self.status {
            RankStatus::Running => true,
            RankStatus::Failing => matches!(event.what, What::Failed { .. }),
            RankStatus::Finished | RankStatus::Failed(_) => false,
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
            What::Collective(collective) => self.collective(event.at, collective),
            What::Transfer(transfer) => self.transfers.apply(event.at, *transfer),
            What::Hop { .. } | What::Evaluated { .. } | What::Crossed { .. } | What::Ran { .. } => {}
            What::Joined { group, ranks } => {
                make_room(&mut self.groups);
                self.groups.push(Membership { number: *group, ranks: ranks.clone() });
            }
            &What::LossScale { scale, skipped, .. } => {
                let overflowed = skipped > self.scaling.map_or(0, |before| before.skipped);
                self.scaling = Some(Scaling { scale, skipped, overflowed });
            }
            What::Contributed(contribution) => self.contribution = Some(*contribution),
            What::StepFinished { step, .. } => self.finish_step(*step),
            What::Failing | What::Blamed { .. } => self.status = RankStatus::Failing,
            What::Failed { message } => self.status = RankStatus::Failed(message.clone()),
            What::Finished { peaks, total_peak, sent } => self.finish(peaks, *total_peak, sent),
        }
    }
}
