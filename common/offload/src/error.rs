//! Errors of transfers between places.

use collectives::CollectiveError;
use device::DeviceError;
use events::Route;
use std::io::ErrorKind;

/// A transfer failed, or a place has no room for a buffer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// On the device or in main memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// On the disk: the call, its file, and why it failed.
    #[error(
        "{0}\n\
         Give a directory on another disk with --offload-dir, or cpu in place of disk in an --offload flag."
    )]
    Disk(String),
    /// The rank's group failed while the rank waited.
    #[error(transparent)]
    Group(CollectiveError),
    /// Over a simulated link that needs longer than the rank's peers wait.
    #[error(
        "{bytes} bytes {route} take {seconds} s more over the simulated link, and peers wait for {timeout} s\n\
         Give a faster link with --host-link or --disk-link, or more time with --timeout."
    )]
    Slow {
        /// The route that the transfer takes.
        route: Route,
        /// The transfer's bytes.
        bytes: u64,
        /// Seconds until it has delivered.
        seconds: u64,
        /// Seconds that peers wait.
        timeout: u64,
    },
}

impl From<storage::Error> for Error {
    fn from(error: storage::Error) -> Self {
        let full = match error.cause.kind() {
            ErrorKind::FileTooLarge => " (the file system or `ulimit -f` allows no larger file)",
            ErrorKind::QuotaExceeded => " (this user's share of the disk is full)",
            _ if error.is_full() => " (the disk is full)",
            _ => "",
        };
        Error::Disk(format!("{error}{full}"))
    }
}
