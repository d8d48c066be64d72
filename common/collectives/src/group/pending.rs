//! A collective on its way.

use crate::backend::{Backend, Call, Outcome, Result, Watch};
use device::Buffer;
use events::Progress;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A collective that has been issued; owns its buffers until it is done.
///
/// Pending collectives may be waited for in any order, but a group moves their data in the order of issue. Dropping
/// one without waiting is a failure of this rank, for all, unless the group is [winding down](crate::Group::wind_down).
#[must_use = "a pending collective must be waited for"]
pub struct Pending {
    /// `None` once waited for.
    pub(super) buffers: Option<Vec<Buffer>>,
    /// What was issued; nothing if it was left out.
    pub(super) call: Option<Call>,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) watch: Watch,
}

impl Pending {
    /// Waits until the result is complete on this rank and gives the buffers back, in the bucket's order.
    ///
    /// # Errors
    /// The group's failure; the buffers are freed then.
    pub fn wait(self) -> Result<Vec<Buffer>> {
        self.finish().map(|(buffers, _)| buffers)
    }

    /// The same with everybody's bytes, where these travel.
    pub(super) fn finish(mut self) -> Result<(Vec<Buffer>, Vec<Vec<u8>>)> {
        let Some(call) = &self.call else {
            return Ok((self.buffers.take().unwrap_or_default(), Vec::new()));
        };
        // Should this unwind, the buffers are still here and Drop keeps them for as long as peers need them.
        let started = Instant::now();
        let outcome = self.backend.wait(call, &self.watch).inspect_err(|_| self.watch.failing());
        let buffers = self.buffers.take().unwrap_or_default();
        let Outcome { sent, gathered, waits, crossing } = outcome?;
        let elapsed = started.elapsed();
        for counters in [&self.watch.counters, &self.watch.overall] {
            counters.finished(call.operation, sent, elapsed, waits);
        }
        if let Some(crossing) = crossing {
            self.watch.tell_crossing(call, crossing);
        }
        self.watch.tell(call, Progress::Finished);
        Ok((buffers, gathered))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let (Some(buffers), Some(call)) = (self.buffers.take(), &self.call) else { return };
        if self.watch.winding_down.load(Ordering::Relaxed) && !std::thread::panicking() {
            // A failure of the group is told by what is still wanted of it.
            let _ = self.backend.wait(call, &self.watch);
            return drop(buffers);
        }
        let (during, reason) = if std::thread::panicking() {
            (format!("its work after issuing {}", call.label()), "it panicked".to_string())
        } else {
            (call.label(), "it dropped the pending collective without waiting for it".to_string())
        };
        self.backend.abandon(call, during, reason, &self.watch);
        drop(buffers);
    }
}
