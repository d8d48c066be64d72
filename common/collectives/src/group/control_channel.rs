//! What ranks tell each other about the run instead of in it.

use crate::backend::{Backend, Call, Result, Watch};
use events::{Emitter, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One rank's way to tell the others of a group a few bytes that are neither shown to watchers nor counted as traffic.
pub struct ControlChannel {
    backend: Arc<dyn Backend>,
    sequence: AtomicU64,
    watch: Watch,
}

/// What a rank tells the others aside. A group has one sub-group for each, since one may be made when the group has been split
/// already: calls of the one never meet those of the other.
#[derive(Clone, Copy)]
pub enum Topic {
    /// Making a communicator of all.
    Setup,
    /// Counting what communicators split off take.
    Splits,
    /// The end of the run.
    Ending,
    /// Writing what the run leaves.
    Writing,
}

impl ControlChannel {
    /// Beside `control`, unpaced. Every rank of the group makes one, once per concern.
    pub(crate) fn beside(control: &Arc<dyn Backend>, topic: Topic) -> Self {
        let rank = control.names()[control.member()];
        ControlChannel::new(control.beside(topic), Emitter::silent(rank))
    }

    /// Over `backend`, a sub-group for this alone, with the pace of `emitter`, who should say nothing.
    pub(crate) fn new(backend: Arc<dyn Backend>, emitter: Emitter) -> Self {
        ControlChannel { backend, sequence: AtomicU64::new(0), watch: Watch::of(emitter, 0) }
    }

    /// This rank's place in the group.
    pub(crate) fn member(&self) -> usize {
        self.backend.member()
    }

    /// This rank's number in the world.
    pub(crate) fn rank(&self) -> u32 {
        self.backend.names()[self.member()]
    }

    /// Everybody's bytes, in rank order. Blocks until every rank is here.
    ///
    /// # Errors
    /// The group's failure.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let call = Call { operation: Operation::Scalars, sequence, ..Call::none() };
        self.backend.issue(&call, &mut [], bytes, &self.watch)?;
        Ok(self.backend.wait(&call, &self.watch)?.gathered)
    }
}
