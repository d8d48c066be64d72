//! Damaged parts of a recording. Their events are missing, so the state after a gap is incomplete
//! until every rank has taken a full step: by then each value that changes in a step has had its
//! next event. Memory allocated in a gap before the first full step never gets another event, so it
//! stays unknown to the end.

use events::{Event, What};

/// Progress of a rank since the latest gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Regained {
    #[default]
    Nothing,
    /// It has begun a step.
    Begun,
    /// It has finished that step.
    Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EventGap {
    /// The number of events before it.
    position: u64,
    /// The number of events up to which the state is incomplete; `None` until it is known.
    until: Option<u64>,
}

/// Until when a state after a gap is incomplete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncompleteUntil {
    /// Until every rank has taken the next full step.
    FullStep,
    /// To the end of the run.
    End,
}

/// The gaps of a recording.
#[derive(Debug, Default)]
pub struct Gaps {
    /// The gaps, in ascending order of position.
    gaps: Vec<EventGap>,
    /// The first gap after which memory stays incomplete.
    lasting: Option<u64>,
    ranks: Vec<Regained>,
    /// True if every rank has taken a full step.
    settled: bool,
}

impl Gaps {
    /// Returns the state of a recording of `ranks` ranks in which no gap has been found yet.
    pub(crate) fn new(ranks: u32) -> Self {
        Gaps { ranks: vec![Regained::default(); ranks as usize], ..Gaps::default() }
    }

    /// Adds a gap after `position` events.
    pub(crate) fn open(&mut self, position: u64) {
        if !self.begins_at(position) {
            self.gaps.push(EventGap { position, until: None });
        }
        if !self.settled {
            self.lasting = self.lasting.or(Some(position));
        }
        self.ranks.fill(Regained::Nothing);
    }

    /// Applies an event with `position` events before it.
    pub(crate) fn apply(&mut self, position: u64, event: &Event) {
        let Some(rank) = self.ranks.get_mut(event.rank as usize) else { return };
        match event.what {
            What::StepStarted { .. } if *rank == Regained::Nothing => *rank = Regained::Begun,
            What::StepFinished { .. } if *rank == Regained::Begun => *rank = Regained::Step,
            _ => return,
        }
        if self.ranks.iter().all(|rank| *rank == Regained::Step) {
            self.settled = true;
            let open = self.gaps.iter_mut().rev().take_while(|gap| gap.until.is_none());
            open.for_each(|gap| gap.until = Some(position + 1));
        }
    }

    /// True if there is a gap after exactly `position` events.
    pub(crate) fn begins_at(&self, position: u64) -> bool {
        self.gaps.binary_search_by_key(&position, |gap| gap.position).is_ok()
    }

    /// Returns until when the state after `position` events is incomplete; `None` if no gap makes
    /// it so.
    pub fn incomplete(&self, position: u64) -> Option<IncompleteUntil> {
        let before = self.gaps.partition_point(|gap| gap.position < position);
        let latest = before.checked_sub(1).map(|latest| self.gaps[latest]);
        let passing = latest.is_some_and(|gap| gap.until.is_none_or(|until| position < until));
        let lasting = self.lasting.is_some_and(|first| first < position);
        match (lasting, passing) {
            (true, _) => Some(IncompleteUntil::End),
            (false, true) => Some(IncompleteUntil::FullStep),
            (false, false) => None,
        }
    }
}
