//! Ending a run before its last step: at the same place of every rank's program, or one would wait for another's
//! collective for ever.

use super::{Plan, RankError, Result};
use collectives::{ControlChannel, Topic};
use sharding::{Micro, Rank};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The wish to end a run early, and how far the ranks of this process have come.
pub(crate) struct Wish {
    /// Set by whoever has it: the screen, a signal.
    pub(crate) flag: Arc<AtomicBool>,
    /// Whether the steps are over, and what the run leaves is being written.
    pub(crate) writing: AtomicBool,
    places: Mutex<Places>,
}

struct Places {
    /// Layers that each rank has begun, of all passes.
    begun: Vec<u64>,
    /// The layer before which all stop.
    end: Option<u64>,
}

impl Wish {
    /// That `flag` is to say, in a run of so many ranks.
    pub(crate) fn new(flag: Arc<AtomicBool>, ranks: usize) -> Self {
        Wish {
            flag,
            writing: AtomicBool::new(false),
            places: Mutex::new(Places { begun: vec![0; ranks], end: None }),
        }
    }

    /// Whether somebody has it.
    pub(crate) fn is_there(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Whether `rank` is to stop instead of beginning its next layer. All ranks stop before the same: the first that none
    /// of them had begun when one of them saw the wish, so none has to wait for another to agree.
    fn ends_before_next_layer(&self, rank: usize) -> bool {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.end.is_none() && self.is_there() {
            places.end = places.begun.iter().max().copied();
        }
        let ends = places.end == Some(places.begun[rank]);
        places.begun[rank] += u64::from(!ends);
        ends
    }
}

/// Where one rank looks whether to stop.
pub(crate) enum Ending {
    /// Nowhere.
    Never,
    /// All ranks are in this process: before every layer.
    Seen(Arc<Wish>, usize),
    /// Every rank has a process of its own: between micro-batches, where they ask each other.
    Asked(Arc<Wish>, ControlChannel),
}

impl Ending {
    /// Of `rank`.
    pub(super) fn of(plan: &Plan, rank: &Rank) -> Self {
        match plan.config.process {
            None => Ending::Seen(plan.stop.clone(), rank.number()),
            Some(_) => Ending::Asked(plan.stop.clone(), rank.group.control_channel(Topic::Ending)),
        }
    }

    /// Before a layer of any pass.
    ///
    /// # Errors
    /// [`RankError::Stopped`] if the run ends here.
    pub(crate) fn before_layer(&self) -> Result<()> {
        match self {
            Ending::Seen(wish, rank) if wish.ends_before_next_layer(*rank) => Err(RankError::Stopped),
            _ => Ok(()),
        }
    }

    /// Before a micro-batch of a step or of a validation. Before the first there is nothing to ask: the step before has just
    /// ended, and with it an exchange.
    ///
    /// # Errors
    /// As [`Ending::before_layer`], or the group's failure.
    pub(crate) fn before(&self, micro: Micro) -> Result<()> {
        let Ending::Asked(wish, channel) = self else { return Ok(()) };
        if micro.is_first() {
            return Ok(());
        }
        let wishes = channel.exchange(&[u8::from(wish.is_there())])?;
        if wishes.iter().any(|wish| wish != &[0]) { Err(RankError::Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three ranks, one far behind and one far ahead of the one that sees the wish first.
    #[test]
    fn all_ranks_stop_before_the_same_layer() {
        let wish = Wish::new(Arc::default(), 3);
        let begins = |rank: usize| !wish.ends_before_next_layer(rank);
        assert!((0..2).all(|_| begins(0)) && (0..5).all(|_| begins(1)) && begins(2));
        wish.flag.store(true, Ordering::Release);
        for (rank, layers) in [(0, 3), (2, 4), (1, 0)] {
            assert_eq!((0..9).take_while(|_| begins(rank)).count(), layers, "rank {rank}");
        }
    }
}
