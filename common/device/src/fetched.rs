//! Values that are being copied from a device.

use crate::cuda::Download;
use crate::{Element, Result};

/// A number computed from elements that are being copied to the host; see
/// [`Device::fetch`](crate::Device::fetch).
#[must_use = "a fetched value must be waited for"]
pub struct Fetched<T, R>(Progress<T, R>);

enum Progress<T, R> {
    /// The elements were in main memory.
    Arrived(R),
    Copying(Download, fn(&[T]) -> R),
}

impl<T: Element, R> Fetched<T, R> {
    pub(crate) fn arrived(value: R) -> Self {
        Fetched(Progress::Arrived(value))
    }

    pub(crate) fn copying(bytes: Download, what: fn(&[T]) -> R) -> Self {
        Fetched(Progress::Copying(bytes, what))
    }

    /// Blocks until the value has arrived and returns it.
    ///
    /// # Errors
    /// An error of work queued on a GPU before.
    pub fn wait(self) -> Result<R> {
        match self.0 {
            Progress::Arrived(value) => Ok(value),
            Progress::Copying(bytes, what) => bytes.wait(|bytes| what(bytemuck::cast_slice(bytes))),
        }
    }
}
