//! Which rank may go on while a run is paced.

use super::Boundary;
use std::time::Duration;

impl Boundary {
    /// Whether a step of granularity `self` ends at `reached`.
    fn ends_at(self, reached: Boundary) -> bool {
        self == Boundary::Event || self == reached || reached == Boundary::Step
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Mode {
    #[default]
    Free,
    Paused,
    /// Run time passes `factor` times as fast as real time, counted from this moment of both clocks.
    Slow {
        factor: f64,
        real: Duration,
        run: Duration,
    },
}

#[derive(Clone, Copy)]
struct Rank {
    waiting: bool,
    /// Boundaries passed so far.
    passed: u64,
    /// Steps of [`State::steps`] that it has begun.
    begun: usize,
    /// What the step that it is in ends at. A hold ends anything.
    granularity: Boundary,
}

impl Default for Rank {
    fn default() -> Self {
        Rank { waiting: false, passed: 0, begun: 0, granularity: Boundary::Event }
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) mode: Mode,
    pub(super) cancelled: bool,
    /// Steps asked for since the hold began. Every rank takes all of them, one after the other.
    steps: Vec<Boundary>,
    /// Boundaries that single ranks may still pass: steps of granularity [`Boundary::Event`].
    tokens: u64,
    ranks: Vec<Rank>,
}

pub(super) enum Verdict {
    Go,
    Wait,
    WaitFor(Duration),
}

impl State {
    /// Whether anything but a free run is asked for.
    pub(super) fn is_active(&self) -> bool {
        self.mode != Mode::Free && !self.cancelled
    }

    pub(super) fn is_paused(&self) -> bool {
        self.mode == Mode::Paused && !self.cancelled
    }

    /// Holds ranks wherever they are; one that already holds them forgets the steps that no rank has begun.
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
            self.ranks.resize(rank + 1, Rank::default());
        }
        self.ranks[rank].waiting = true;
    }

    pub(super) fn depart(&mut self, rank: u32) {
        let rank = &mut self.ranks[rank as usize];
        rank.waiting = false;
        rank.passed += 1;
    }

    /// Whether `rank`, which has arrived at `boundary`, may go on. A step that it begins by that is counted.
    pub(super) fn verdict(
        &mut self,
        rank: u32,
        boundary: Boundary,
        arrived: Duration,
        now: Duration,
    ) -> Verdict {
        if self.cancelled {
            return Verdict::Go;
        }
        match self.mode {
            Mode::Free => Verdict::Go,
            Mode::Paused => {
                if self.may_step(rank as usize, boundary) {
                    Verdict::Go
                } else {
                    Verdict::Wait
                }
            }
            Mode::Slow { factor, real, run } => {
                let due = real + arrived.saturating_sub(run).div_f64(factor);
                due.checked_sub(now).filter(|rest| !rest.is_zero()).map_or(Verdict::Go, Verdict::WaitFor)
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
