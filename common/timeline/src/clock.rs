//! The clock of one rank: it computes on one stream, and a group's collectives follow each other on
//! another. All ranks do the same at the same time.

use crate::cost::Costs;
use events::Pass;
use prediction::{Action, Among, Issued};

/// The seconds of one step on one rank, by what the rank does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepTime {
    /// Forward and backward.
    pub compute: f64,
    /// Recomputation in backward.
    pub recompute: f64,
    /// Waiting for collectives: what computation does not hide of them.
    pub exposed: f64,
    /// The optimizer's update.
    pub update: f64,
    /// Collectives on their streams, hidden or not.
    pub communication: f64,
}

impl StepTime {
    /// Returns the seconds from the step's beginning to its end.
    pub fn total(&self) -> f64 {
        self.compute + self.recompute + self.exposed + self.update
    }
}

/// When something begins and ends, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// Its beginning.
    pub from: f64,
    /// Its end.
    pub to: f64,
}

/// One rank's clock.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Seconds since the run began.
    pub now: f64,
    /// When the stream of each group is free.
    free: Vec<(Among, f64)>,
    /// When each collective in flight crosses the links, by its number.
    in_flight: Vec<(usize, Span)>,
    /// Time so far.
    pub time: StepTime,
}

impl Clock {
    /// Issues a collective: it begins as soon as its stream is free. Returns when it crosses the
    /// links.
    pub fn issue(&mut self, costs: &Costs, issued: &Issued) -> Span {
        let seconds = costs.collective(issued);
        let stream = self.free.iter().position(|(among, _)| *among == issued.among);
        let stream = stream.unwrap_or_else(|| {
            self.free.push((issued.among, 0.0));
            self.free.len() - 1
        });
        let from = self.free[stream].1.max(self.now);
        let span = Span { from, to: from + seconds };
        self.free[stream].1 = span.to;
        self.time.communication += seconds;
        self.in_flight.push((issued.number, span));
        span
    }

    /// Waits for a collective. Returns when it crossed the links, and how long the rank was idle.
    pub fn wait(&mut self, number: usize) -> (Span, f64) {
        let now = self.now;
        let at = self.in_flight.iter().position(|(other, _)| *other == number);
        debug_assert!(at.is_some(), "a rank waits for a collective that it has issued");
        let span = at.map_or(Span { from: now, to: now }, |at| self.in_flight.swap_remove(at).1);
        let idle = (span.to - now).max(0.0);
        self.now += idle;
        self.time.exposed += idle;
        (span, idle)
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

    /// Does everything in `actions`.
    pub fn run<'a>(&mut self, costs: &Costs, actions: impl IntoIterator<Item = &'a Action>) {
        for action in actions {
            match action {
                Action::Issue(issued) => {
                    self.issue(costs, issued);
                }
                Action::Wait { number } => {
                    self.wait(*number);
                }
                Action::Begin { pass, layer, .. } => self.compute(*pass, costs.pass(*pass, *layer)),
                Action::Update { elements, .. } => self.compute(Pass::Step, costs.update(*elements)),
                Action::Memory { .. } | Action::MicroBatch { .. } | Action::End => {}
            }
        }
    }
}
