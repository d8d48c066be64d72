//! A channel on which ranks exchange a few bytes outside the run.

use crate::core::backend::{Backend, Result, Topic};
use crate::core::call::Call;
use crate::core::observer::Observer;
use events::{Emitter, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One rank's end of a channel for a few bytes that are neither shown to watchers nor counted as
/// traffic.
pub struct ControlChannel {
    backend: Arc<dyn Backend>,
    sequence: AtomicU64,
    observer: Observer,
}

impl ControlChannel {
    /// Opens a channel between the ranks of `control` that does not obey the run's pace. Every rank
    /// of the group opens it, once per topic.
    pub(crate) fn open(control: &Arc<dyn Backend>, topic: Topic) -> Self {
        ControlChannel::new(control.open_control_group(topic), Emitter::silent(control.global_rank()))
    }

    /// Returns a channel over `backend`, a sub-group for this alone, with the pace of `emitter`,
    /// which should emit nothing.
    pub(crate) fn new(backend: Arc<dyn Backend>, emitter: Emitter) -> Self {
        ControlChannel { backend, sequence: AtomicU64::new(0), observer: Observer::new(emitter, 0) }
    }

    /// Returns this rank's place in the group.
    pub(crate) fn member(&self) -> usize {
        self.backend.member()
    }

    /// Returns this rank's number in the world.
    pub(crate) fn global_rank(&self) -> u32 {
        self.backend.global_rank()
    }

    /// Returns every rank's bytes, in rank order. Blocks until every rank has called it.
    ///
    /// # Errors
    /// The group's failure.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let call = Arc::new(Call::new(Operation::Scalars, sequence, self.observer.clone()));
        self.backend.issue(&call, &mut [], bytes)?;
        Ok(self.backend.wait(&call)?.gathered)
    }
}
