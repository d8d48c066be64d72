//! Ending a run before its last step, at the same point of every rank's program: otherwise one rank
//! would wait forever for a collective that another never issues.

use crate::rank_error::{RankError, Result};
use collectives::{ControlChannel, Topic};
use events::lock;
use sharding::{MicroBatch, Rank};
use signal_hook::consts::SIGINT;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

/// A request to end a run early, and the progress of the ranks of this process.
pub(crate) struct StopRequest {
    /// Set by the screen, a signal or a test.
    pub(crate) flag: Arc<AtomicBool>,
    /// The signal that requested the stop, or the signal of the key that did; SIGINT for other
    /// keys.
    pub(crate) signal: AtomicI32,
    /// Number of ranks that still train. At 0, checkpoint and weights are being written.
    pub(crate) training: AtomicUsize,
    /// When the rank of this process stopped needing its peers.
    pub(crate) ended: OnceLock<Instant>,
    points: Mutex<StopPoints>,
}

struct StopPoints {
    /// Layers that each rank has begun, over all passes.
    begun: Vec<u64>,
    /// The layer before which all ranks stop.
    end: Option<u64>,
}

impl StopRequest {
    /// Returns a stop request driven by `flag`, in a process that has `ranks` ranks.
    pub(crate) fn new(flag: Arc<AtomicBool>, ranks: usize) -> Self {
        StopRequest {
            flag,
            signal: AtomicI32::new(SIGINT),
            training: AtomicUsize::new(ranks),
            ended: OnceLock::new(),
            points: Mutex::new(StopPoints { begun: vec![0; ranks], end: None }),
        }
    }

    /// True once the run is to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// True if `rank` must stop instead of beginning its next layer. All ranks stop before the same
    /// layer: the first that none of them had begun when one of them saw the request. So no rank
    /// waits for another to agree.
    fn ends_before_next_layer(&self, rank: usize) -> bool {
        let mut points = lock(&self.points);
        if points.end.is_none() && self.is_set() {
            points.end = points.begun.iter().max().copied();
        }
        let ends = points.end == Some(points.begun[rank]);
        points.begun[rank] += u64::from(!ends);
        ends
    }
}

/// Where one rank checks for a stop request.
pub(crate) enum StopCheck {
    /// Nowhere.
    Never,
    /// All ranks are in this process: before every layer.
    EveryLayer(Arc<StopRequest>, usize),
    /// Every rank has a process of its own: between micro-batches, where the ranks exchange whether
    /// they saw a request.
    EveryMicroBatch(Arc<StopRequest>, ControlChannel),
}

impl StopCheck {
    /// Returns the check of `rank`; `processes` says whether each rank is a process of its own.
    pub(crate) fn new(request: &Arc<StopRequest>, rank: &Rank, processes: bool) -> Self {
        if processes {
            StopCheck::EveryMicroBatch(request.clone(), rank.group.control_channel(Topic::Ending))
        } else {
            StopCheck::EveryLayer(request.clone(), rank.number())
        }
    }

    /// Checks before a layer of any pass.
    ///
    /// # Errors
    /// [`RankError::Stopped`] if the run ends here.
    pub(crate) fn before_layer(&self) -> Result<()> {
        match self {
            StopCheck::EveryLayer(request, rank) if request.ends_before_next_layer(*rank) => {
                Err(RankError::Stopped)
            }
            _ => Ok(()),
        }
    }

    /// Checks before a micro-batch of a step or of a validation. The first one needs no exchange:
    /// the previous step or validation has just ended with one.
    ///
    /// # Errors
    /// As [`StopCheck::before_layer`], or the group's failure.
    pub(crate) fn before_micro_batch(&self, micro: MicroBatch) -> Result<()> {
        let StopCheck::EveryMicroBatch(request, channel) = self else { return Ok(()) };
        if micro.is_first() {
            return Ok(());
        }
        let seen = channel.exchange(&[u8::from(request.is_set())])?;
        if seen.iter().any(|seen| seen != &[0]) { Err(RankError::Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three ranks, one far behind and one far ahead of the one that sees the request first.
    #[test]
    fn all_ranks_stop_before_the_same_layer() {
        let request = StopRequest::new(Arc::default(), 3);
        let begins = |rank: usize| !request.ends_before_next_layer(rank);
        assert!((0..2).all(|_| begins(0)) && (0..5).all(|_| begins(1)) && begins(2));
        request.flag.store(true, Ordering::Release);
        for (rank, layers) in [(0, 3), (2, 4), (1, 0)] {
            assert_eq!((0..9).take_while(|_| begins(rank)).count(), layers, "rank {rank}");
        }
    }
}
