//! Decides which rank may pass a boundary while a run is paced.

use super::Boundary;
use std::time::Duration;

impl Boundary {
    /// True if a step of granularity `self` ends at `reached`.
    fn ends_at(self, reached: Boundary) -> bool {
        self == Boundary::Event || self == reached || reached == Boundary::Step
    }
}

/// The mode that viewers asked for last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    Free,
    Paused,
    /// Run time passes `factor` times as fast as real time, from this moment of both clocks on.
    Slow {
        factor: f64,
        real: Duration,
        run: Duration,
    },
}

/// One rank's position.
#[derive(Clone, Copy)]
struct PacedRank {
    /// True while it is held at a boundary.
    waiting: bool,
    /// The number of boundaries passed.
    passed: u64,
    /// The number of [`Gate::steps`] that it has begun.
    begun: usize,
    /// The boundary at which its current step ends; [`Boundary::Event`] at the start of a hold, so
    /// that every boundary ends it.
    granularity: Boundary,
}

/// The mode and the position of every rank.
#[derive(Default)]
pub(super) struct Gate {
    pub(super) mode: Mode,
    pub(super) cancelled: bool,
    /// Steps requested since the hold began. Every rank takes all of them in this order.
    steps: Vec<Boundary>,
    /// The number of boundaries that single ranks may still pass: requested steps of
    /// [`Boundary::Event`].
    tokens: u64,
    ranks: Vec<PacedRank>,
}

impl Gate {
    /// True unless ranks run freely.
    pub(super) fn is_active(&self) -> bool {
        self.mode != Mode::Free && !self.cancelled
    }

    /// Holds ranks at their next boundary. If they are held already, discards the steps that no
    /// rank has begun.
    pub(super) fn hold(&mut self) {
        self.tokens = 0;
        if self.mode == Mode::Paused {
            let begun = self.ranks.iter().map(|rank| rank.begun).max().unwrap_or(0);
            return self.steps.truncate(begun);
        }
        self.mode = Mode::Paused;
        self.steps.clear();
        self.ranks.iter_mut().for_each(|rank| (rank.begun, rank.granularity) = (0, Boundary::Event));
    }

    pub(super) fn step(&mut self, granularity: Boundary) {
        if self.mode != Mode::Paused {
            self.hold();
        }
        match granularity {
            Boundary::Event => self.tokens += 1,
            _ => self.steps.push(granularity),
        }
    }

    pub(super) fn arrive(&mut self, rank: u32) {
        let rank = rank as usize;
        if self.ranks.len() <= rank {
            let new = PacedRank { waiting: false, passed: 0, begun: 0, granularity: Boundary::Event };
            self.ranks.resize(rank + 1, new);
        }
        self.ranks[rank].waiting = true;
    }

    pub(super) fn depart(&mut self, rank: u32) {
        let rank = &mut self.ranks[rank as usize];
        rank.waiting = false;
        rank.passed += 1;
    }

    /// Returns for how long `rank`, which has arrived at `boundary`, must wait unless the gate
    /// changes; `None` if it may pass. Counts a step that the rank begins by passing.
    pub(super) fn wait(
        &mut self,
        rank: u32,
        boundary: Boundary,
        arrived: Duration,
        now: Duration,
    ) -> Option<Duration> {
        match self.mode {
            _ if self.cancelled => None,
            Mode::Free => None,
            Mode::Paused => (!self.may_step(rank as usize, boundary)).then_some(Duration::MAX),
            Mode::Slow { factor, real, run } => {
                let due = real + arrived.saturating_sub(run).div_f64(factor);
                due.checked_sub(now).filter(|rest| !rest.is_zero())
            }
        }
    }

    fn may_step(&mut self, number: usize, boundary: Boundary) -> bool {
        let token = self.tokens > 0 && self.furthest_behind() == Some(number);
        let rank = &mut self.ranks[number];
        if !rank.granularity.ends_at(boundary) {
            return true;
        }
        if let Some(&next) = self.steps.get(rank.begun) {
            (rank.begun, rank.granularity) = (rank.begun + 1, next);
            return true;
        }
        if token {
            (self.tokens, rank.granularity) = (self.tokens - 1, Boundary::Event);
        }
        token
    }

    fn furthest_behind(&self) -> Option<usize> {
        let waiting = (0..self.ranks.len()).filter(|&rank| self.ranks[rank].waiting);
        waiting.min_by_key(|&rank| (self.ranks[rank].passed, rank))
    }
}
