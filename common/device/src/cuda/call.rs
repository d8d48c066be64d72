//! Errors of NVIDIA's driver and compiler, which say which call failed and why.

use crate::{DeviceError, Result};
use cudarc::driver::result::DriverError;
use cudarc::nvrtc::result::NvrtcError;

/// Names the call in an error.
pub(super) trait Named<T> {
    fn named(self, call: &'static str) -> Result<T>;
}

impl<T> Named<T> for std::result::Result<T, DriverError> {
    fn named(self, call: &'static str) -> Result<T> {
        self.map_err(|error| {
            let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
            DeviceError::Cuda { call, reason: text.unwrap_or_else(|_| format!("{:?}", error.0)) }
        })
    }
}

impl<T> Named<T> for std::result::Result<T, NvrtcError> {
    fn named(self, call: &'static str) -> Result<T> {
        self.map_err(|error| DeviceError::Cuda { call, reason: format!("{:?}", error.0) })
    }
}
