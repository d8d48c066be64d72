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
    /// The rank at fault, and why the run failed: the first failure's explanation, since later ones are mostly its echo. It
    /// need not be the rank that has noticed.
    pub failure: Option<(u32, String)>,
    /// The rank whose explanation counts, even if an echo's comes first: the first that was about to fail, or that knows more.
    failing: Option<u32>,
    /// Ranks that fail through another one, and that one. Their explanations follow at once, so no watcher needs to be sent it.
    #[serde(skip)]
    blamed: Vec<(u32, u32)>,
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

    /// Rank `teller` says that it has failed through `culprit`. Whoever has only `heard` of it explains nothing if another does.
    fn blame(&mut self, teller: u32, culprit: u32, heard: bool) {
        self.blamed.push((teller, culprit));
        if heard {
            self.failing = self.failing.filter(|&failing| failing != teller);
        } else if self.failing != Some(culprit) {
            self.failing = Some(teller);
        }
    }

    /// The rank at fault where `teller` has failed.
    fn culprit(&self, teller: u32) -> u32 {
        let blamed = self.blamed.iter().find(|(other, _)| *other == teller);
        blamed.map_or(teller, |(_, culprit)| *culprit)
    }

    /// Whether every rank has finished, or some rank has failed.
    pub fn is_over(&self) -> bool {
        let over = |rank: &RankSnapshot| matches!(rank.outcome, Outcome::Finished | Outcome::Failed(_));
        self.failure.is_some() || self.ranks.iter().all(over)
    }
}
