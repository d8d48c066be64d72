//! A rank's handle to its group for waits on disks and copies.

use crate::CollectiveError;
use crate::core::backend::Backend;
use std::sync::{Arc, Weak};

/// A handle for waits on disks and copies: it reports the group's failure and pauses peers'
/// deadlines. It does not keep the group alive.
pub struct GroupWatch(Weak<dyn Backend>);

impl GroupWatch {
    pub(crate) fn new(backend: &Arc<dyn Backend>) -> Self {
        GroupWatch(Arc::downgrade(backend))
    }

    /// Returns the group's failure, if it has failed, as an error of this rank.
    pub fn failure(&self) -> Option<CollectiveError> {
        let backend = self.0.upgrade()?;
        backend.receive();
        backend.failure(None)
    }

    /// Tells the other ranks whether this rank is blocked on a disk or a copy: while it is,
    /// deadlines of ranks that wait for it pause, for at most their timeout. A rank that fails
    /// stays blocked.
    pub fn set_blocked(&self, blocked: bool) {
        if let Some(backend) = self.0.upgrade() {
            backend.publish_blocked(blocked);
        }
    }
}
