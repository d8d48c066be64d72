//! Values on their way from a device.

use crate::cuda::Coming;
use crate::{Element, Result};

/// What is made of elements that have been sent for; see [`Device::fetch`](crate::Device::fetch).
#[must_use = "a fetched value must be waited for"]
pub struct Fetched<T, R>(State<T, R>);

enum State<T, R> {
    /// The device is main memory.
    Here(R),
    Coming(Coming, fn(&[T]) -> R),
}

impl<T: Element, R> Fetched<T, R> {
    pub(crate) fn here(value: R) -> Self {
        Fetched(State::Here(value))
    }

    pub(crate) fn coming(bytes: Coming, what: fn(&[T]) -> R) -> Self {
        Fetched(State::Coming(bytes, what))
    }

    /// The value, once it is here.
    ///
    /// # Errors
    /// What went wrong on a GPU meanwhile.
    pub fn wait(self) -> Result<R> {
        match self.0 {
            State::Here(value) => Ok(value),
            State::Coming(bytes, what) => bytes.wait(|bytes| what(bytemuck::cast_slice(bytes))),
        }
    }
}
