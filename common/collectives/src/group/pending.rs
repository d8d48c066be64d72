//! A collective in flight.

use crate::core::backend::{Backend, Outcome, Result};
use crate::core::call::Call;
use crate::traffic::CallTimer;
use device::Buffer;
use events::{Progress, lock};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A collective that has been issued; owns its buffers until it is done.
///
/// Pending collectives may be waited for in any order, but a group moves their data in the order of
/// issue. Dropping one without waiting makes this rank fail the group, unless the group is [winding
/// down](crate::Group::wind_down).
#[must_use = "a pending collective must be waited for"]
pub struct Pending {
    /// `None` once waited for.
    pub(super) buffers: Option<Vec<Buffer>>,
    /// The issued call; `None` if the rank skipped it.
    pub(super) call: Option<Arc<Call>>,
    pub(super) backend: Arc<dyn Backend>,
}

impl Pending {
    /// Blocks until the result is complete on this rank. Returns the buffers in the bucket's order.
    ///
    /// # Errors
    /// The group's failure; the buffers are freed then.
    pub fn wait(self) -> Result<Vec<Buffer>> {
        self.finish().map(|(buffers, _)| buffers)
    }

    /// Blocks as [`Pending::wait`] does. Returns the buffers, and every rank's bytes for scalars.
    pub(super) fn finish(mut self) -> Result<(Vec<Buffer>, Vec<Vec<u8>>)> {
        let Some(call) = &self.call else {
            return Ok((self.buffers.take().unwrap_or_default(), Vec::new()));
        };
        // If this unwinds, the buffers are still here, and Drop keeps them for as long as other
        // ranks need them.
        let timer = CallTimer::start(&call.observer.emitter);
        let outcome = self.backend.wait(call).inspect_err(|_| call.observer.failing());
        let buffers = self.buffers.take().unwrap_or_default();
        let Outcome { sent, gathered, waits, crossing, complete } = outcome?;
        call.observer.spent(call.operation(), &timer);
        call.observer.count(|counters| counters.finished(call.operation(), sent, waits));
        if let Some(crossing) = crossing {
            call.emit_crossing(crossing);
        }
        *lock(&call.observer.complete) = complete.or_else(|| Some(Instant::now()));
        call.emit(Progress::Finished);
        Ok((buffers, gathered))
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let (Some(buffers), Some(call)) = (self.buffers.take(), &self.call) else { return };
        if call.observer.winding_down.load(Ordering::Relaxed) && !std::thread::panicking() {
            // The rank's calls that are still wanted report a failure of the group.
            let _ = self.backend.wait(call);
            return drop(buffers);
        }
        let (during, reason) = if std::thread::panicking() {
            (format!("its work after issuing {}", call.id()), "it panicked".to_string())
        } else {
            (call.id().to_string(), "it dropped the pending collective without waiting for it".to_string())
        };
        self.backend.abandon(call, during, reason);
        drop(buffers);
    }
}
