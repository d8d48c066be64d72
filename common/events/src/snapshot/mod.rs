//! Every rank as it is right now: the fold of all its events so far.
//!
//! Events carry absolute values, so a fold that has missed some is right again after the next one of the same kind.

mod rank;

use crate::event::{Event, What};
pub use rank::{Flight, Hop, Membership, Outcome, PassNow, RankSnapshot, Scaling, Sent};
use serde::{Deserialize, Serialize};

/// All ranks right now.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Time of the latest event.
    pub at: u64,
    /// Events so far.
    pub events: u64,
    /// The ranks.
    pub ranks: Vec<RankSnapshot>,
    /// The first rank that failed, and why; later failures are mostly its echo.
    pub failure: Option<(u32, String)>,
    /// The first rank that was about to fail: its explanation counts, even if an echo's comes first.
    failing: Option<u32>,
}

impl Snapshot {
    /// The beginning of a run of `world_size` ranks over `units` units.
    pub fn new(world_size: u32, units: usize) -> Self {
        let rank = RankSnapshot::new(world_size, units);
        Snapshot { ranks: vec![rank; world_size as usize], ..Snapshot::default() }
    }

    /// Takes one event into account. An event of a rank that does not exist changes nothing.
    pub fn apply(&mut self, event: &Event) {
        self.at = self.at.max(event.at);
        self.events += 1;
        match &event.what {
            // Whoever moves a chunk tells of it: the sender or the receiver.
            &What::Hop { group, sequence, from, to, chunk, bytes } => {
                let sender = self.ranks.get_mut(usize::from(from));
                if let Some(sender) = sender.filter(|sender| sender.outcome == Outcome::Running) {
                    sender.hop(Hop { group, sequence, to, chunk, bytes, number: 1 });
                }
                return;
            }
            What::Failing => self.failing = self.failing.or(Some(event.rank)),
            What::Failed { message } if self.failure.is_none() || self.failing == Some(event.rank) => {
                self.failure = Some((event.rank, message.clone()));
            }
            _ => {}
        }
        let rank = self.ranks.get_mut(event.rank as usize);
        if let Some(rank) = rank.filter(|rank| rank.takes(event)) {
            rank.apply(event);
        }
    }

    /// Whether every rank has finished, or some rank has failed.
    pub fn is_over(&self) -> bool {
        let over = |rank: &RankSnapshot| matches!(rank.outcome, Outcome::Finished | Outcome::Failed(_));
        self.failure.is_some() || self.ranks.iter().all(over)
    }
}
