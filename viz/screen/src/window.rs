//! The last few steps in detail: memory over time, and passes and collectives as spans. Times are
//! nanoseconds of the run.

use events::{
    Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, Snapshot, TransferEvent, What, Work,
};
use std::collections::VecDeque;

const CLASSES: usize = Class::ALL.len();
/// The number of finished steps in the window, before the current one.
const STEPS: usize = 2;
/// Maximum number of entries per rank and kind.
const LIMIT: usize = 1 << 15;

/// The live bytes in a place from a time on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemorySample {
    /// The time.
    pub at: u64,
    /// Bytes per class.
    pub live: [u64; CLASSES],
}

impl MemorySample {
    /// Returns the live bytes, all classes together.
    pub fn total(&self) -> u64 {
        self.live.iter().sum()
    }
}

/// A pass over a unit: on a rank's compute stream or, if it works on offloaded states, on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassSpan {
    /// Beginning.
    pub from: u64,
    /// End, if it has ended.
    pub to: Option<u64>,
    /// The pass.
    pub pass: Pass,
    /// The unit.
    pub unit: u16,
    /// The micro-batch within the step.
    pub micro: u16,
    /// True if its times are those at which it ran, not those at which it was queued.
    ran: bool,
}

/// A collective on a rank's communication stream.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectiveSpan {
    /// Its latest event.
    pub event: CollectiveEvent,
    /// When this rank issued it.
    pub issued: u64,
    /// When data began to move on this rank, or on a simulated link. On a GPU, set once it is
    /// known.
    pub started: Option<u64>,
    /// When it was complete on this rank, or delivered by the link. On a GPU, set once it is known.
    pub finished: Option<u64>,
    /// Bytes that this rank has sent for it. Set once it is complete.
    pub sent: u64,
}

/// A transfer between a rank's places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransferSpan {
    /// Its latest event.
    pub event: TransferEvent,
    /// When the rank issued it.
    pub issued: u64,
    /// Time at which the rank stopped waiting for it.
    pub finished: Option<u64>,
    /// From when to when it ran; `None` unless a GPU has reported it.
    pub ran: Option<(u64, u64)>,
}

impl TransferSpan {
    /// Returns the times at which the bytes began to move and had arrived; `None` until they are
    /// known.
    pub fn moving(&self) -> Option<(u64, u64)> {
        let before = |time: u64| self.finished.map(|finished| finished.saturating_sub(time));
        self.ran.or_else(|| Some((before(self.event.began)?, before(self.event.ended)?)))
    }

    /// Returns the interval in which the rank was idle because it waited for the transfer, empty if
    /// it did not wait; `None` until the wait has ended.
    pub fn stalled(&self) -> Option<(u64, u64)> {
        self.finished.map(|finished| (finished.saturating_sub(self.event.exposed), finished))
    }
}

/// An optimizer step of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSpan {
    /// The step.
    pub step: u32,
    /// Beginning.
    pub from: u64,
    /// End, if it has ended.
    pub to: Option<u64>,
}

/// One rank's last few steps.
#[derive(Clone, Debug, Default)]
pub struct RankWindow {
    /// The bytes that the rank holds in each place after each change, in [`Place::ALL`]'s order.
    pub memory: [VecDeque<MemorySample>; Place::ALL.len()],
    /// Passes.
    pub spans: VecDeque<PassSpan>,
    /// Collectives, barriers and scalars included.
    pub collectives: VecDeque<CollectiveSpan>,
    /// Transfers between device, main memory and disk.
    pub transfers: VecDeque<TransferSpan>,
    /// When the rank failed. Spans that are open then get no end.
    pub failed: Option<u64>,
    /// The groups within the world that the rank has joined.
    groups: Vec<u16>,
    /// Bytes sent per operation since the run started.
    sent: [u64; Operation::ALL.len()],
}

/// All ranks' last few steps.
#[derive(Clone, Debug, Default)]
pub struct Window {
    /// One window per rank.
    pub lanes: Vec<RankWindow>,
    /// The steps, oldest first.
    pub steps: VecDeque<StepSpan>,
    /// True if the CPU computes updates, beside the device.
    pub updates_on_cpu: bool,
}

impl Window {
    /// Returns a window without spans whose first memory samples are those of `now`.
    pub fn new(now: &Snapshot) -> Self {
        let lanes = now.ranks.iter().map(|rank| {
            let groups = rank.groups.iter().map(|group| group.number).collect();
            let memory = rank.live.map(|live| VecDeque::from([MemorySample { at: now.at, live }]));
            RankWindow { memory, groups, sent: rank.sent.by_operation, ..RankWindow::default() }
        });
        Window { lanes: lanes.collect(), ..Window::default() }
    }

    /// True if the CPU ran a pass.
    pub fn is_on_cpu(&self, span: &PassSpan) -> bool {
        span.pass == Pass::Add || self.updates_on_cpu && span.pass == Pass::Step
    }

    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        if event.rank == 0 {
            self.step(event);
        }
        if let Some(lane) = self.lanes.get_mut(event.rank as usize) {
            lane.apply(event);
        }
    }

    /// True if all of the time `from` to `to` is after a step and before the next one.
    pub fn is_between_steps(&self, from: u64, to: u64) -> bool {
        let begun = self.steps.iter().rev().find(|step| step.from <= to);
        begun.and_then(|step| step.to).is_some_and(|end| end <= from)
    }

    /// Forgets the spans whose end may be in a gap of the events. The step in progress ends `at`
    /// the gap, unless a later event gives another time.
    pub fn lose_track(&mut self, at: u64) {
        if let Some(step) = self.steps.back_mut() {
            step.to = step.to.or(Some(at));
        }
        for lane in &mut self.lanes {
            lane.spans.retain(|span| span.to.is_some());
            lane.collectives.retain(|collective| collective.finished.is_some());
            lane.transfers.retain(|transfer| transfer.finished.is_some());
        }
    }

    fn step(&mut self, event: &Event) {
        match event.what {
            What::StepStarted { step } => {
                self.steps.push_back(StepSpan { step, from: event.at, to: None });
                while self.steps.len() > STEPS + 1 {
                    self.steps.pop_front();
                }
                let oldest = self.steps.front().map_or(0, |step| step.from);
                self.lanes.iter_mut().for_each(|lane| lane.forget(oldest));
            }
            What::StepFinished { step, .. } => {
                if let Some(span) = self.steps.back_mut().filter(|span| span.step == step) {
                    span.to = Some(event.at);
                }
            }
            _ => {}
        }
    }
}

impl RankWindow {
    fn apply(&mut self, event: &Event) {
        match event.what {
            What::Memory { place, class, live, .. } => {
                sample(&mut self.memory[place.index()], event.at, class, live);
            }
            What::PassStarted { pass, unit, micro } => {
                add(&mut self.spans, PassSpan { from: event.at, to: None, pass, unit, micro, ran: false });
            }
            What::PassFinished { .. } => {
                let latest = self.spans.iter_mut().rev().find(|span| !span.ran);
                if let Some(span) = latest.filter(|span| span.to.is_none()) {
                    span.to = Some(event.at.max(span.from));
                }
            }
            What::Collective(ref collective) => self.collective(event.at, collective),
            What::Transfer(transfer) => self.transfer(event.at, transfer),
            What::Joined { group, .. } if !self.is_member(group) => self.groups.push(group),
            What::Crossed { group, sequence, began, ended, .. } => {
                if let Some(collective) = self.collective_span(group, sequence) {
                    let (from, to) = event.span(began, ended);
                    (collective.started, collective.finished) = (Some(from), Some(to));
                }
            }
            What::Ran { work, began, ended } => self.ran(work, event.span(began, ended)),
            What::Failed { .. } => self.failed = Some(event.at),
            _ => {}
        }
    }

    /// Returns the time to which the rank's open spans extend at the time `now`: at most its
    /// failure.
    pub fn until(&self, now: u64) -> u64 {
        self.failed.map_or(now, |failed| failed.min(now))
    }

    /// Returns the bytes that the rank holds on its device after each change.
    pub fn on_device(&self) -> &VecDeque<MemorySample> {
        &self.memory[Place::Device.index()]
    }

    /// True if the rank is a member of this group; 0 is the world.
    pub fn is_member(&self, group: u16) -> bool {
        group == 0 || self.groups.contains(&group)
    }

    /// Moves a span that was reported when it was queued to the time at which it ran. Adds that of
    /// a pass that was not reported.
    fn ran(&mut self, work: Work, (from, to): (u64, u64)) {
        match work {
            Work::Pass { pass, unit, micro } => {
                let ran = PassSpan { from, to: Some(to), pass, unit, micro, ran: true };
                // A span that begins after this work's end is the next one of its kind.
                let same = |span: &&mut PassSpan| {
                    let same = (span.pass, span.unit, span.micro) == (pass, unit, micro);
                    same && !span.ran && span.from <= to
                };
                match self.spans.iter_mut().rev().find(same) {
                    Some(span) => *span = ran,
                    None => add(&mut self.spans, ran),
                }
            }
            Work::Collective { group, sequence, operation } => {
                let found = self.collective_span(group, sequence).filter(|t| t.event.operation == operation);
                if let Some(collective) = found {
                    (collective.started, collective.finished) = (Some(from), Some(to));
                }
            }
            Work::Transfer { sequence } => {
                let found = self.transfers.iter_mut().rev().find(|span| span.event.sequence == sequence);
                if let Some(span) = found {
                    span.ran = Some((from, to));
                }
            }
        }
    }

    /// Returns the latest collective with this number. Searches backwards: those in flight are few
    /// and recent.
    fn collective_span(&mut self, group: u16, sequence: u64) -> Option<&mut CollectiveSpan> {
        self.collectives.iter_mut().rev().find(|t| t.event.sequence == sequence && t.event.group == group)
    }

    fn transfer(&mut self, at: u64, event: TransferEvent) {
        let done = event.progress == Progress::Finished;
        let known = self.transfers.iter_mut().rev().find(|span| span.event.sequence == event.sequence);
        if let Some(span) = known.filter(|_| done) {
            (span.event, span.finished) = (event, Some(at));
            return;
        }
        let issued = if done { at.saturating_sub(event.began) } else { at };
        let finished = done.then_some(at);
        add(&mut self.transfers, TransferSpan { event, issued, finished, ran: None });
    }

    fn collective(&mut self, at: u64, event: &CollectiveEvent) {
        let fresh = event.progress == Progress::Issued;
        if fresh || self.collective_span(event.group, event.sequence).is_none() {
            let event = event.clone();
            let span = CollectiveSpan { event, issued: at, started: None, finished: None, sent: 0 };
            add(&mut self.collectives, span);
        }
        let total = &mut self.sent[event.operation.index()];
        let sent = event.sent.saturating_sub(*total);
        *total = event.sent.max(*total);
        let Some(collective) = self.collective_span(event.group, event.sequence) else { return };
        collective.event = event.clone();
        match event.progress {
            Progress::Issued => {}
            Progress::Started => collective.started = Some(at),
            Progress::Finished => {
                // A simulated link or a GPU may have reported the time already.
                (collective.finished, collective.sent) = (collective.finished.or(Some(at)), sent);
            }
        }
    }

    fn forget(&mut self, oldest: u64) {
        // The last sample before the window is the memory at its beginning.
        for samples in &mut self.memory {
            while samples.get(1).is_some_and(|sample| sample.at <= oldest) {
                samples.pop_front();
            }
        }
        forget(&mut self.spans, oldest, |span| span.to);
        forget(&mut self.collectives, oldest, |collective| collective.finished);
        forget(&mut self.transfers, oldest, |transfer| transfer.finished);
    }
}

fn sample(samples: &mut VecDeque<MemorySample>, at: u64, class: Class, live: u64) {
    let mut sample = samples.back().copied().unwrap_or(MemorySample { at, live: [0; CLASSES] });
    sample.at = at;
    sample.live[class.index()] = live;
    add(samples, sample);
}

/// Adds an entry. Drops the oldest one if there are more than [`LIMIT`].
fn add<T>(entries: &mut VecDeque<T>, entry: T) {
    entries.push_back(entry);
    if entries.len() > LIMIT {
        entries.pop_front();
    }
}

/// Forgets the spans that ended before `oldest`, up to the first that did not.
fn forget<T>(spans: &mut VecDeque<T>, oldest: u64, end: impl Fn(&T) -> Option<u64>) {
    while spans.front().and_then(&end).is_some_and(|end| end < oldest) {
        spans.pop_front();
    }
}
