//! When stretches of a rank's work run, how long single kernels take, and what the rank's part in
//! collectives takes.

use super::laps::Lap;
use super::runtime::Runtime;
use super::timeline::{Begun, Lane, Timeline};
use crate::Result;
use events::lock;
use events::{Emitter, Work};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Calls, time and bytes of a rank's part in collectives.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Communicated {
    pub(crate) calls: u64,
    /// On the communication stream.
    pub(crate) time: Duration,
    /// Read plus written.
    pub(crate) bytes: u64,
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

    /// Begins a stretch of computation, which [`Runtime::end`] ends. `None` if no events are
    /// wanted.
    ///
    /// # Errors
    /// The driver's error.
    pub fn begin(&self) -> Result<Option<Begun>> {
        self.gpu.context.enter()?;
        self.timeline().map(|timeline| timeline.begin(&self.compute)).transpose()
    }

    /// Ends a stretch of computation: an event says when `work` ran, once it has.
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

    /// Queues `work` between two marks.
    pub(crate) fn lap<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Lap)> {
        self.gpu.context.enter()?;
        let lap = Lap { began: self.laps.mark()?, ended: self.laps.mark()? };
        self.compute.mark(&lap.began)?;
        let out = work()?;
        self.compute.mark(&lap.ended)?;
        Ok((out, lap))
    }

    /// True if the stream is past it.
    pub(crate) fn is_past(&self, lap: &Lap) -> Result<bool> {
        lap.ended.is_past()
    }

    /// Returns how long a kernel took that has run.
    pub(crate) fn lap_time(&self, lap: &Lap) -> Result<Duration> {
        Ok(Duration::from_nanos(lap.ended.since(&lap.began)?.max(0) as u64))
    }

    /// Takes back its marks for reuse.
    pub(crate) fn keep_lap(&self, Lap { began, ended }: Lap) {
        lock(&self.laps.spare).extend([began, ended]);
    }

    /// Returns what this rank's part in collectives has taken, of work that has run. Counted from
    /// [`Runtime::time_collectives`] on, or from the start if events are wanted.
    pub(crate) fn communicated(&self) -> Result<Communicated> {
        self.emit_past()?;
        let (calls, time) = self.timeline().map_or((0, Duration::ZERO), |timeline| timeline.communicated());
        Ok(Communicated { calls, time, bytes: self.laps.moved.load(Ordering::Relaxed) })
    }
}
