//! Copies between a device and main memory that have been issued.

use crate::Result;
use crate::cuda::QueuedCopy;

/// A copy that has been issued; see [`Device::start_copy`](crate::Device::start_copy). Dropping it
/// does not end the copy.
#[must_use = "what is copied may be used once it is waited for"]
pub struct Copying(Option<QueuedCopy>);

impl Copying {
    /// Returns a copy that is done.
    pub fn done() -> Self {
        Copying(None)
    }

    pub(crate) fn queued(copy: QueuedCopy) -> Self {
        Copying(Some(copy))
    }

    /// True if the copy was done when it was issued.
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// True if [`Copying::wait`] would not block. A copy whose state the GPU cannot report counts
    /// as over: waiting for it reports the reason.
    pub fn is_over(&self) -> bool {
        self.0.as_ref().is_none_or(|copy| copy.is_over().unwrap_or(true))
    }

    /// Makes the elements usable: those in main memory once this has returned, those on the device
    /// by computation issued from now on. Blocks only for a copy to main memory.
    ///
    /// # Errors
    /// An error of work queued on a GPU before.
    pub fn wait(self) -> Result<()> {
        self.0.map_or(Ok(()), QueuedCopy::wait)
    }
}
