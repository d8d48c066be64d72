//! Why nothing was measured.

use collectives::CollectiveError;
use device::DeviceError;

/// Why nothing was measured.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line makes no sense.
    Usage(String),
    /// The measurement failed.
    Run(String),
}

impl From<CollectiveError> for Failure {
    fn from(error: CollectiveError) -> Self {
        Failure::Run(error.to_string())
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Failure::Run(error.to_string())
    }
}
