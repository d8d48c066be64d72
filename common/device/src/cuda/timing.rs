//! When stretches of a rank's work run, how long single pieces of it take, and what its part in collectives does.

use super::laps::Lap;
use super::runtime::Runtime;
use super::timeline::{Begun, Lane, Timeline};
use crate::Result;
use events::{Emitter, Work};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a rank's part in collectives has taken.
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

    /// Times this rank's part in collectives from now on, whether or not somebody listens.
    pub(crate) fn time_collectives(&self) -> Result<()> {
        self.synchronize()?;
        if self.timeline().is_none() {
            let silent = Emitter::silent(0);
            let _ = self.timeline.set(Timeline::new(&silent, &self.compute)?);
        }
        Ok(())
    }

    /// What this rank computes from now on belongs to a stretch of work, which [`Runtime::end`] ends. `None` if nobody listens.
    ///
    /// # Errors
    /// The driver's.
    pub fn begin(&self) -> Result<Option<Begun>> {
        self.gpu.context.enter()?;
        self.timeline().map(|timeline| timeline.begin(&self.compute)).transpose()
    }

    /// What this rank has computed since `begun` was `work`: watchers are told when it ran, once it is past.
    ///
    /// # Errors
    /// The driver's.
    pub fn end(&self, begun: Begun, work: Work) -> Result<()> {
        self.gpu.context.enter()?;
        self.timeline().map_or(Ok(()), |t| t.end(Lane::Compute, &self.compute, begun, work))
    }

    /// Tells watchers when the work ran that is past by now. Waits for nothing.
    ///
    /// # Errors
    /// The driver's.
    pub fn tell_past(&self) -> Result<()> {
        self.gpu.context.enter()?;
        self.timeline().map_or(Ok(()), Timeline::tell_past)
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

    /// Whether the stream is past it.
    pub(crate) fn is_past(&self, lap: &Lap) -> Result<bool> {
        lap.ended.is_past()
    }

    /// How long it took; it is past.
    pub(crate) fn lap_time(&self, lap: &Lap) -> Result<Duration> {
        Ok(Duration::from_nanos(lap.ended.since(&lap.began)?.max(0) as u64))
    }

    /// Keeps its marks for others.
    pub(crate) fn keep_lap(&self, Lap { began, ended }: Lap) {
        self.laps.spare.lock().unwrap_or_else(PoisonError::into_inner).extend([began, ended]);
    }

    /// This rank's part in collectives so far, as far as it is past. Counted from [`Runtime::time_collectives`] on, or from the beginning where somebody listens.
    pub(crate) fn communicated(&self) -> Result<Communicated> {
        self.tell_past()?;
        let (calls, time) = self.timeline().map_or((0, Duration::ZERO), |timeline| timeline.communicated());
        Ok(Communicated { calls, time, bytes: self.laps.moved.load(Ordering::Relaxed) })
    }
}
