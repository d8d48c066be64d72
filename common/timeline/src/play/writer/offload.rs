//! Writes transfers and the CPU's work, and which of them a rank waits for.

use super::{EventWriter, NANOSECONDS, PassOf};
use crate::stream::Span;
use events::event::TransferEvent;
use events::{Class, Pass, Progress, Route, What, Work};
use prediction::{CpuTask, CpuWork, Moved};
use std::collections::{BTreeMap, VecDeque};

/// The transfers and the CPU's work of a predicted run.
#[derive(Default)]
pub(super) struct Offload {
    /// Every transfer so far.
    crossings: Vec<Crossing>,
    /// The transfers of this script, by the script's numbers.
    numbers: BTreeMap<usize, usize>,
    /// The first transfer of the script before this one, and of this one.
    first: [usize; 2],
    /// The CPU's first work of the script before this one, and of this one.
    first_work: [usize; 2],
    /// When the CPU did what, since the script before this one.
    cpu_work: Vec<(Span, CpuTask)>,
    /// The CPU's updates that may continue, in order.
    cpu_updates: VecDeque<CpuUpdate>,
}

/// An update of a piece on the CPU.
struct CpuUpdate {
    pass: PassOf,
    span: Span,
    /// True if it is shown as the rank's pass, while the device is idle.
    is_shown: bool,
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
    /// The seconds for which each rank was idle because it waited for it.
    idle: f64,
}

impl Offload {
    /// Begins a script.
    pub(super) fn begin(&mut self) {
        self.numbers.clear();
        self.cpu_work.drain(..self.first_work[0]);
        self.first_work = [self.first_work[1] - self.first_work[0], self.cpu_work.len()];
        self.first = [self.first[1], self.crossings.len()];
    }
}

impl EventWriter<'_> {
    pub(super) fn transfer(&mut self, moved: &Moved) {
        let issued = self.clock.ready(moved);
        let span = self.clock.transfer(self.costs, moved);
        let &Moved { number, route, class, unit, bytes, .. } = moved;
        let crossing = Crossing { route, class, unit, bytes, span, has_ended: false, idle: 0.0 };
        self.offload.numbers.insert(number, self.offload.crossings.len());
        self.offload.crossings.push(crossing);
        self.emit_transfer(issued, self.offload.crossings.len() - 1, Progress::Issued);
    }

    /// Emits an event of transfer number `sequence`, with the bytes that it moves;
    /// [`count_bytes`](crate::play::count_bytes) adds those before it.
    fn emit_transfer(&mut self, at: f64, sequence: usize, progress: Progress) {
        let Crossing { route, class, unit, bytes, span, idle, .. } = self.offload.crossings[sequence];
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

    /// Ends a transfer, by the script's number, for which the rank has waited. Does nothing if
    /// `number` is another action's.
    pub(super) fn arrive(&mut self, number: usize) {
        if let Some(&sequence) = self.offload.numbers.get(&number) {
            self.offload.crossings[sequence].has_ended = true;
            self.emit_transfer(self.clock.now, sequence, Progress::Finished);
        }
    }

    /// Ends the transfers for which the rank has not waited, each when it arrives.
    pub(super) fn end_transfers(&mut self) {
        for sequence in 0..self.offload.crossings.len() {
            if !self.offload.crossings[sequence].has_ended {
                self.emit_transfer(self.offload.crossings[sequence].span.to, sequence, Progress::Finished);
            }
        }
    }

    pub(super) fn on_cpu(&mut self, work: &CpuWork) {
        let span = self.clock.on_cpu(self.costs, work);
        self.offload.cpu_work.push((span, work.task));
        match work.task {
            CpuTask::AddGradients => self.emit_ran((Pass::Add, work.unit, self.micro), span),
            CpuTask::Update { piece } => {
                let pass = (Pass::Step, work.unit, piece);
                self.offload.cpu_updates.push_back(CpuUpdate { pass, span, is_shown: false });
            }
        }
    }

    /// Emits when the CPU has run a pass.
    fn emit_ran(&mut self, (pass, unit, micro): PassOf, Span { from, to }: Span) {
        let [began, ended] = [from, to].map(|seconds| (seconds * NANOSECONDS) as u64);
        let (work, began) = (Work::Pass { pass, unit, micro }, ended - began);
        self.emit(to, |_| What::Ran { work, began, ended: 0 });
    }

    /// Shows the last `idle` seconds, in which the device computed nothing: what the CPU has
    /// updated, and which transfers the rank waited for. `offload` of them were spent waiting for
    /// offloaded states that were there at `until`.
    pub(super) fn spend_idle(&mut self, idle: f64, until: f64, offload: f64) {
        let left = offload - self.show_cpu(idle);
        self.charge(until, left);
    }

    /// Charges `left` seconds of waiting to the transfer that ended at `until`, as far as it moved
    /// bytes in them. Before, it waited for a transfer or for the CPU, which are charged next.
    fn charge(&mut self, mut until: f64, mut left: f64) {
        let [mut transfers, mut tasks] = [self.offload.crossings.len(), self.offload.cpu_work.len()];
        while left > 0.0 {
            let recent = self.offload.crossings[self.offload.first[0]..transfers].iter_mut().enumerate();
            if let Some((at, crossing)) = recent.rev().find(|(_, crossing)| crossing.span.to == until) {
                let moving = (until - crossing.span.from).min(left);
                crossing.idle += moving;
                left -= moving;
                until = crossing.span.from;
                transfers = self.offload.first[0] + at;
            } else if let Some(at) =
                self.offload.cpu_work[..tasks].iter().rposition(|(span, _)| span.to == until)
            {
                let (span, task) = self.offload.cpu_work[at];
                // Updates are shown as passes.
                if task == CpuTask::AddGradients {
                    left -= span.to - span.from;
                }
                until = span.from;
                tasks = at;
            } else {
                return;
            }
        }
    }

    /// Shows when the CPU has updated, and what it updates in the last `idle` seconds as the rank's
    /// pass. Returns for how long the CPU was busy in them.
    fn show_cpu(&mut self, idle: f64) -> f64 {
        let (from, to) = (self.clock.now - idle, self.clock.now);
        let mut busy = 0.0;
        while let Some(update) = self.offload.cpu_updates.front_mut() {
            let ((pass, unit, micro), span) = (update.pass, update.span);
            let (began, ended) = (span.from.max(from), span.to.min(to));
            if began < ended && self.pass.is_none() {
                busy += ended - began;
                if !std::mem::replace(&mut update.is_shown, true) {
                    self.emit(began, |_| What::PassStarted { pass, unit, micro });
                    self.emit(ended, |_| What::PassFinished { pass, unit, micro });
                }
            }
            if span.to > to {
                break;
            }
            self.offload.cpu_updates.pop_front();
            self.emit_ran((pass, unit, micro), span);
        }
        busy
    }
}
