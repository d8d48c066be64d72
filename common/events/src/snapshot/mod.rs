//! The current state of every rank, folded from all its events so far.
//!
//! Events carry absolute values, so a snapshot that has missed some is correct again after the next
//! event of the same kind.

mod parts;
mod rank;
mod transfers;

use crate::amount::{self, bounded};
use crate::event::{Event, What};
pub use parts::{Flight, Hop, Membership, PassNow, RankStatus, Scaling, Sent};
pub use rank::RankSnapshot;
use serde::{Deserialize, Serialize};
pub use transfers::{Moved, TransferFlight, Transfers};

/// The state of all ranks after the events applied so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The time of the latest event, in nanoseconds of the run.
    #[serde(deserialize_with = "bounded")]
    pub at: u64,
    /// The number of events applied.
    #[serde(deserialize_with = "bounded")]
    pub events: u64,
    /// The ranks.
    pub ranks: Vec<RankSnapshot>,
    /// The rank at fault and the first failure's error, since later errors usually repeat it. A
    /// different rank may have reported the error.
    pub failure: Option<(u32, String)>,
    /// The rank whose error counts even if another rank's arrives first: the first rank that began
    /// to fail, or one that observed the cause itself.
    failing: Option<u32>,
    /// For each failed rank, the rank that it blames; itself if absent. Not sent to new watchers:
    /// `Failed` follows `Blamed` immediately.
    #[serde(skip)]
    blamed: Vec<(u32, u32)>,
}

impl Snapshot {
    /// Returns the state at the start of a run of `world_size` ranks over `units` units.
    pub fn new(world_size: u32, units: usize) -> Self {
        let rank = RankSnapshot::new(world_size, units);
        Snapshot { ranks: vec![rank; world_size as usize], ..Snapshot::default() }
    }

    /// Applies one event. An event of a rank that does not exist changes no rank.
    pub fn apply(&mut self, event: &Event) {
        self.at = self.at.max(event.at);
        self.events += 1;
        match &event.what {
            // Either the sender or the receiver emits a hop, depending on which of them moves the
            // chunk.
            &What::Hop { group, sequence, from, to, chunk, bytes } => {
                let sender = self.ranks.get_mut(usize::from(from));
                if let Some(sender) = sender.filter(|sender| sender.status == RankStatus::Running) {
                    sender.hop(Hop { group, sequence, to, chunk, bytes, number: 1 });
                }
                return;
            }
            What::Failing => self.failing = self.failing.or(Some(event.rank)),
            What::Failed { message } if self.failure.is_none() || self.failing == Some(event.rank) => {
                self.failure = Some((self.culprit(event.rank), message.clone()));
            }
            &What::Blamed { culprit, heard } if (culprit as usize) < self.ranks.len() => {
                self.blame(event.rank, culprit, heard);
            }
            _ => {}
        }
        let rank = self.ranks.get_mut(event.rank as usize);
        if let Some(rank) = rank.filter(|rank| rank.takes(event)) {
            rank.apply(event);
        }
    }

    /// Drops all state that may have ended in a gap of the events: passes, collectives and
    /// transfers in progress, and gathered units. Other values stay as they were before the gap
    /// until their next event.
    pub fn lose_track(&mut self) {
        self.ranks.iter_mut().for_each(RankSnapshot::lose_track);
    }

    /// Records that rank `teller` blames `culprit`. The error of a rank that only `heard` of the
    /// failure does not count if another rank has reported one.
    fn blame(&mut self, teller: u32, culprit: u32, heard: bool) {
        self.blamed.push((teller, culprit));
        if heard {
            self.failing = self.failing.filter(|&failing| failing != teller);
        } else if self.failing != Some(culprit) {
            self.failing = Some(teller);
        }
    }

    /// Returns the rank that `teller` blames, or `teller` itself.
    fn culprit(&self, teller: u32) -> u32 {
        let blamed = self.blamed.iter().find(|(other, _)| *other == teller);
        blamed.map_or(teller, |(_, culprit)| *culprit)
    }

    /// True if the snapshot is of this many ranks, each with this many units.
    pub(crate) fn has_shape(&self, (world_size, units): (usize, usize)) -> bool {
        self.ranks.len() == world_size && self.ranks.iter().all(|rank| rank.has_shape(world_size, units))
    }

    /// Returns the approximate size of the snapshot in bytes.
    pub fn bytes(&self) -> usize {
        let blamed = std::mem::size_of_val(&self.blamed[..]);
        blamed + self.ranks.iter().map(RankSnapshot::bytes).sum::<usize>()
    }

    /// Returns the latest step that any rank has begun.
    pub fn step(&self) -> u32 {
        self.ranks.iter().map(|rank| rank.step).max().unwrap_or(0)
    }

    /// Returns the latest step that any rank has finished; `None` if there is none.
    pub fn finished_step(&self) -> Option<u32> {
        self.ranks.iter().filter_map(RankSnapshot::finished_step).max()
    }

    /// Returns the greatest of the ranks' `amount`s; 0 if there are no ranks.
    pub fn most(&self, amount: impl Fn(&RankSnapshot) -> u64) -> u64 {
        self.ranks.iter().map(amount).max().unwrap_or(0)
    }

    /// Returns the sum of the ranks' `amount`s.
    pub fn sum(&self, amount: impl Fn(&RankSnapshot) -> u64) -> u64 {
        amount::total(self.ranks.iter().map(amount))
    }

    /// True if every rank has finished or at least one has failed.
    pub fn is_over(&self) -> bool {
        let over = |rank: &RankSnapshot| matches!(rank.status, RankStatus::Finished | RankStatus::Failed(_));
        self.failure.is_some() || self.ranks.iter().all(over)
    }
}
