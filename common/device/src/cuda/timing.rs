//! Measures when stretches of a rank's work run, how long single kernels take, and how long the
//! rank's part in collectives takes.

use super::runtime::Runtime;
use super::stream::Mark;
use super::timeline::{Begun, Lane, Timeline};
use crate::Result;
use events::{Emitter, Work};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A piece of work between two points on the compute stream.
pub(crate) struct Lap {
    began: Mark,
    ended: Mark,
}

impl Lap {
    fn new() -> Result<Self> {
        Ok(Lap { began: Mark::new()?, ended: Mark::new()? })
    }

    /// True if the stream is past it.
    pub(crate) fn is_past(&self) -> Result<bool> {
        self.ended.is_past()
    }

    /// Returns the time that it took. The stream must be past it.
    pub(crate) fn time(&self) -> Result<Duration> {
        Ok(Duration::from_nanos(self.ended.since(&self.began)?.max(0) as u64))
    }
}

impl Runtime {
    pub(super) fn timeline(&self) -> Option<&Timeline> {
        self.timeline.get()
    }

    /// Times this rank's part in collectives from now on, with or without a receiver of events.
    pub(crate) fn time_collectives(&self) -> Result<()> {
        self.synchronize()?;
        if self.timeline().is_none() {
            let silent = Emitter::silent(0);
            let _ = self.timeline.set(Timeline::new(&silent, &self.compute)?);
        }
        Ok(())
    }

    /// Begins a stretch of computation, which [`Runtime::end`] ends. Returns `None` if no events
    /// are requested.
    ///
    /// # Errors
    /// The driver's error.
    pub fn begin(&self) -> Result<Option<Begun>> {
        self.gpu.context.enter()?;
        self.timeline().map(|timeline| timeline.begin(&self.compute)).transpose()
    }

    /// Ends a stretch of computation. An event reports when `work` ran, once it has run.
    ///
    /// # Errors
    /// The driver's error.
    pub fn end(&self, begun: Begun, work: Work) -> Result<()> {
        self.gpu.context.enter()?;
        self.timeline().map_or(Ok(()), |t| t.end(Lane::Compute, &self.compute, begun, work))
    }

    /// Emits the events of work that has run. Does not block.
    ///
    /// # Errors
    /// The driver's error.
    pub fn emit_past(&self) -> Result<()> {
        self.gpu.context.enter()?;
        self.timeline().map_or(Ok(()), Timeline::emit_past)
    }

    /// Queues `work` between two marks: those of `spare`, or new ones.
    pub(crate) fn lap<T>(&self, spare: Option<Lap>, work: impl FnOnce() -> Result<T>) -> Result<(T, Lap)> {
        self.gpu.context.enter()?;
        let lap = spare.map_or_else(Lap::new, Ok)?;
        self.compute.mark(&lap.began)?;
        let out = work()?;
        self.compute.mark(&lap.ended)?;
        Ok((out, lap))
    }

    /// Returns the calls of this rank's part in collectives, their time on the communication stream
    /// and the bytes that they read plus those that they wrote: of work that has run since the last
    /// call. Calls are counted from [`Runtime::time_collectives`] on, or from the start if events
    /// are requested.
    pub(crate) fn take_communicated(&self) -> Result<(u64, Duration, u64)> {
        self.emit_past()?;
        let (calls, time) = self.timeline().map_or((0, Duration::ZERO), Timeline::take_communicated);
        Ok((calls, time, self.moved.swap(0, Ordering::Relaxed)))
    }
}
