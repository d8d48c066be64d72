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
    flag: Arc<AtomicBool>,
    /// The signal that requested the stop, here or in another process of the job, or the signal of
    /// the key that did; 0 for other keys, and before a request.
    signal: AtomicI32,
    /// True once the stop has interrupted a validation, or prevented one.
    lacks_validation: AtomicBool,
    /// Number of ranks that still train. At 0, checkpoint and weights are being written.
    training: AtomicUsize,
    /// When this process's rank finished and no longer needed its peers.
    ended: OnceLock<Instant>,
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
            signal: AtomicI32::new(0),
            lacks_validation: AtomicBool::new(false),
            training: AtomicUsize::new(ranks),
            ended: OnceLock::new(),
            points: Mutex::new(StopPoints { begun: vec![0; ranks], end: None }),
        }
    }

    /// True once the run is to stop.
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Returns the flag that requests the stop once it is set.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }

    /// Requests a stop because of `signal`. Returns whether one was requested already; the signal
    /// of that request stays.
    pub(crate) fn request(&self, signal: i32) -> bool {
        if !self.is_set() {
            self.set_signal(signal);
        }
        self.flag.swap(true, Ordering::AcqRel)
    }

    /// Sets the signal that requested the stop.
    pub(crate) fn set_signal(&self, signal: i32) {
        self.signal.store(signal, Ordering::Relaxed);
    }

    /// Notes that the stop has interrupted a validation, or prevented one.
    pub(crate) fn note_missing_validation(&self) {
        self.lacks_validation.store(true, Ordering::Relaxed);
    }

    /// True once the stop has interrupted a validation, or prevented one.
    pub(crate) fn lacks_validation(&self) -> bool {
        self.lacks_validation.load(Ordering::Relaxed)
    }

    /// Notes that one more rank has finished training. Every rank calls it once.
    pub(crate) fn note_training_done(&self) {
        self.training.fetch_sub(1, Ordering::Relaxed);
    }

    /// True while a rank of this process trains. Afterwards checkpoint and weights are written.
    pub(crate) fn is_training(&self) -> bool {
        self.training.load(Ordering::Relaxed) > 0
    }

    /// Notes that this process's rank has finished and no longer needs its peers.
    pub(crate) fn note_rank_ended(&self) {
        self.ended_at();
    }

    /// Returns when this process's rank finished. If it has not, it counts as finished now.
    pub(crate) fn ended_at(&self) -> Instant {
        *self.ended.get_or_init(Instant::now)
    }

    /// Returns the signal that the process ends with if the run is ended early: SIGINT if a key
    /// without a signal requested that.
    pub(crate) fn exit_signal(&self) -> i32 {
        match self.signal.load(Ordering::Relaxed) {
            0 => SIGINT,
            signal => signal,
        }
    }

    /// Returns what this process sends to the others: the signal of its request; 0 if it has none.
    pub(crate) fn own_signal(&self) -> u8 {
        if self.is_set() { self.exit_signal() as u8 } else { 0 }
    }

    /// Reads what the processes sent, in rank order. Returns whether one of them has a request. The
    /// first signal becomes this process's, unless it has its own.
    pub(crate) fn note_signals(&self, mut signals: impl Iterator<Item = u8>) -> bool {
        let Some(first) = signals.find(|&signal| signal != 0) else { return false };
        if !self.is_set() {
            // Fails if a signal has arrived here since.
            let _ = self.signal.compare_exchange(0, i32::from(first), Ordering::Relaxed, Ordering::Relaxed);
        }
        true
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
    /// Every rank has a process of its own: between micro-batches, where the ranks exchange the
    /// signals of their requests.
    EveryMicroBatch(Arc<StopRequest>, ControlChannel),
}

impl StopCheck {
    /// Returns the check of `rank` if all ranks are in this process.
    pub(crate) fn every_layer(request: &Arc<StopRequest>, rank: &Rank) -> Self {
        StopCheck::EveryLayer(request.clone(), rank.number())
    }

    /// Returns the check of `rank` if every rank has a process of its own.
    pub(crate) fn every_micro_batch(request: &Arc<StopRequest>, rank: &Rank) -> Self {
        StopCheck::EveryMicroBatch(request.clone(), rank.group.control_channel(Topic::Ending))
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
    /// the step before has had one ahead of its update, and a validation ends with one.
    ///
    /// # Errors
    /// As [`StopCheck::before_layer`], or the group's failure.
    pub(crate) fn before_micro_batch(&self, micro: MicroBatch) -> Result<()> {
        let StopCheck::EveryMicroBatch(request, channel) = self else { return Ok(()) };
        if micro.is_first() {
            return Ok(());
        }
        let signals = channel.exchange(&[request.own_signal()])?;
        let stops = request.note_signals(signals.into_iter().flatten());
        if stops { Err(RankError::Stopped) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use signal_hook::consts::SIGTERM;

    /// Returns a request of one process, which has received `signal`; none if it is 0.
    fn request(signal: i32) -> StopRequest {
        let request = StopRequest::new(Arc::default(), 1);
        if signal != 0 {
            assert!(!request.request(signal));
        }
        request
    }

    #[test]
    fn a_process_without_a_signal_takes_that_of_another() {
        let processes = [0, SIGTERM, SIGINT].map(request);
        let sent = processes.each_ref().map(StopRequest::own_signal);
        assert_eq!(sent, [0, SIGTERM as u8, SIGINT as u8]);
        assert!(processes.iter().all(|process| process.note_signals(sent.into_iter())));
        assert_eq!(processes.map(|process| process.exit_signal()), [SIGTERM, SIGTERM, SIGINT]);
        assert!(!request(0).note_signals([0, 0].into_iter()));
    }

    #[test]
    fn a_key_without_a_signal_counts_as_an_interrupt() {
        let request = StopRequest::new(Arc::new(AtomicBool::new(true)), 1);
        assert_eq!((request.own_signal(), request.exit_signal()), (SIGINT as u8, SIGINT));
        assert!(request.note_signals([SIGTERM as u8, SIGINT as u8].into_iter()));
        assert_eq!(request.exit_signal(), SIGINT);
    }

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
