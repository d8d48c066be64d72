//! Measures when queued work ran, by pairs of marks on a rank's streams, and emits events once they
//! are past.
//!
//! The host queues work and continues, so its own clock does not say when the work runs. Marks on
//! the stream before and after the work do, on the GPU's clock. The host never waits for marks: it
//! queries them when it queues something else.

use super::stream::{Mark, Stream};
use crate::Result;
use events::lock;
use events::{Emitter, What, Work};
use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The streams whose work is measured. Each runs its work in the order of queueing.
#[derive(Clone, Copy)]
pub(super) enum Lane {
    Compute,
    Communication,
    ToGpu,
    ToHost,
}

const LANES: usize = 4;

/// A point in a stream's work, and when it was queued.
struct Point {
    mark: Mark,
    /// In nanoseconds of real time since the run started.
    queued: i64,
    /// How long the run had been paused by then.
    paused: Duration,
}

/// A stretch of work that has begun; see `Timeline::end`.
pub struct Begun(Point);

/// A stretch of work.
struct Stretch {
    work: Work,
    began: Point,
    ended: Point,
}

/// One rank's stretches of work.
pub(super) struct Timeline {
    emitter: Emitter,
    zero: Instant,
    state: Mutex<Pending>,
}

struct Pending {
    alignment: Alignment,
    /// The origin of the GPU's clock.
    origin: Mark,
    /// By [`Lane`], in the order in which they end.
    pending: [VecDeque<Stretch>; LANES],
    /// By [`Lane`]: the end of the last stretch that was emitted.
    reached: [i64; LANES],
    /// Marks for reuse.
    spare: Vec<Mark>,
    /// Stretches on the communication stream that are past, and their time in nanoseconds.
    communicated: (u64, u64),
}

/// Nanoseconds after which a later mark replaces the origin: the driver counts milliseconds in f32,
/// which loses precision.
const FAR: i64 = 4_000_000_000;

impl Timeline {
    /// Returns a timeline that emits events to `emitter`. `stream` is idle.
    pub(super) fn new(emitter: &Emitter, stream: &Stream) -> Result<Self> {
        let zero = emitter.start();
        let (origin, alignment) = Alignment::measure(zero, stream)?;
        let (pending, spare) = (Default::default(), Vec::new());
        let state = Pending { alignment, origin, pending, reached: [0; LANES], spare, communicated: (0, 0) };
        Ok(Timeline { emitter: emitter.clone(), zero, state: Mutex::new(state) })
    }

    fn now(&self) -> i64 {
        self.zero.elapsed().as_nanos() as i64
    }

    fn point(&self, state: &mut Pending, stream: &Stream) -> Result<Point> {
        let mark = state.spare.pop().map_or_else(Mark::new, Ok)?;
        let (queued, paused) = (self.now(), self.emitter.paused());
        stream.mark(&mark)?;
        Ok(Point { mark, queued, paused })
    }

    /// Begins a stretch of work on `stream`. Emits the finished stretches.
    pub(super) fn begin(&self, stream: &Stream) -> Result<Begun> {
        let mut state = lock(&self.state);
        self.emit_from(&mut state)?;
        self.point(&mut state, stream).map(Begun)
    }

    /// Ends a stretch of work: all of `work` is queued.
    pub(super) fn end(&self, lane: Lane, stream: &Stream, Begun(began): Begun, work: Work) -> Result<()> {
        let mut state = lock(&self.state);
        let ended = self.point(&mut state, stream)?;
        state.pending[lane as usize].push_back(Stretch { work, began, ended });
        Ok(())
    }

    /// Emits every stretch that is past.
    pub(super) fn emit_past(&self) -> Result<()> {
        self.emit_from(&mut lock(&self.state))
    }

    /// Returns the stretches on the communication stream that are known to be past, and their time;
    /// counts from 0 again.
    pub(super) fn take_communicated(&self) -> (u64, Duration) {
        let (count, nanoseconds) = std::mem::take(&mut lock(&self.state).communicated);
        (count, Duration::from_nanos(nanoseconds))
    }

    fn emit_from(&self, state: &mut Pending) -> Result<()> {
        for lane in [Lane::Compute, Lane::Communication, Lane::ToGpu, Lane::ToHost] {
            while let Some(stretch) = state.next_past(lane)? {
                let seen = self.now();
                let Stretch { work, began, ended } = stretch;
                let from = state.place(&began, seen)?.max(state.reached[lane as usize]);
                let to = state.place(&ended, seen)?.max(from);
                state.reached[lane as usize] = to;
                if let Lane::Communication = lane {
                    state.communicated.0 += 1;
                    state.communicated.1 += (to - from) as u64;
                }
                let on_clock = |at: i64, point: &Point| (at - point.paused.as_nanos() as i64).max(0) as u64;
                let (from, to) = (on_clock(from, &began), on_clock(to, &ended));
                self.emitter.emit_timed(|at| What::Ran {
                    work,
                    began: at.saturating_sub(from),
                    ended: at.saturating_sub(to),
                });
                state.retire(began.mark, ended.mark)?;
            }
        }
        Ok(())
    }
}

impl Pending {
    /// Takes the oldest stretch of `lane`; `None` if it has not finished.
    fn next_past(&mut self, lane: Lane) -> Result<Option<Stretch>> {
        let pending = &mut self.pending[lane as usize];
        match pending.front() {
            Some(stretch) if stretch.ended.mark.is_past()? => Ok(pending.pop_front()),
            _ => Ok(None),
        }
    }

    fn place(&mut self, point: &Point, seen: i64) -> Result<i64> {
        let elapsed = point.mark.since(&self.origin)?;
        Ok(self.alignment.place(elapsed, point.queued, seen))
    }

    /// Keeps marks for reuse. The later one may become the origin of the GPU's clock.
    fn retire(&mut self, began: Mark, mut ended: Mark) -> Result<()> {
        let elapsed = ended.since(&self.origin)?;
        if elapsed > FAR {
            self.alignment.origin += elapsed;
            std::mem::swap(&mut self.origin, &mut ended);
        }
        self.spare.extend([began, ended]);
        Ok(())
    }
}

/// The alignment of the GPU's clock with the host's: the origin's time, in nanoseconds.
struct Alignment {
    origin: i64,
}

/// Comparisons of the clocks at the start, of which the closest is used.
const COMPARISONS: usize = 16;

impl Alignment {
    /// Returns a mark on an idle `stream` from which the GPU counts, and where it lies after
    /// `zero`: between its queueing and its being seen to be past.
    fn measure(zero: Instant, stream: &Stream) -> Result<(Mark, Self)> {
        let now = || zero.elapsed().as_nanos() as i64;
        let compare = || -> Result<_> {
            let (mark, queued) = (Mark::new()?, now());
            stream.mark(&mark)?;
            stream.synchronize()?;
            Ok((now() - queued, mark, queued))
        };
        let (mut width, mut mark, mut queued) = compare()?;
        for _ in 1..COMPARISONS {
            let closer = compare()?;
            if closer.0 < width {
                (width, mark, queued) = closer;
            }
        }
        Ok((mark, Alignment { origin: queued + width / 2 }))
    }

    /// Returns the time of a point that is `elapsed` after the origin, was queued at `queued` and
    /// seen to be past at `seen`. If the time is outside these bounds, the clocks have drifted
    /// apart, and the origin moves.
    fn place(&mut self, elapsed: i64, queued: i64, seen: i64) -> i64 {
        let at = (self.origin + elapsed).max(queued).min(seen);
        self.origin = at - elapsed;
        at
    }
}

#[cfg(test)]
mod tests {
    use super::Alignment;

    #[test]
    fn what_lies_between_its_bounds_is_where_the_gpu_says() {
        let mut alignment = Alignment { origin: 100 };
        assert_eq!(alignment.place(50, 120, 200), 150);
        assert_eq!(alignment.origin, 100);
    }

    /// With a GPU whose clock runs a thousandth too fast, bounds 20 µs wide keep it aligned with
    /// the host's for any time.
    #[test]
    fn bounds_correct_a_clock_that_drifts() {
        let mut alignment = Alignment { origin: 0 };
        for second in 1..100 {
            let truth = second * 1_000_000_000;
            let placed = alignment.place(truth + truth / 1000, truth - 10_000, truth + 10_000);
            assert!((placed - truth).abs() <= 10_000, "second {second}: {placed}");
        }
        let (late, early) = (alignment.place(0, 5, 9), alignment.place(0, -9, -5));
        assert_eq!((late, early), (5, -5), "neither before it was queued nor after it was seen");
    }
}
