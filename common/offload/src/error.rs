//! Errors of transfers between places.

use collectives::CollectiveError;
use device::DeviceError;
use events::Route;
use std::io::ErrorKind;

/// The remedy for a disk that fails or is full.
const OTHER_DISK: &str =
    "Give a directory on another disk with --offload-dir, or cpu in place of disk in an --offload flag.";

/// A transfer failed, or a place has no room for a buffer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// On the device or in main memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// On the disk: the call, its file, why it failed, and the remedy.
    #[error("{0}")]
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
        let remedy = storage::remedy_for_open_files(&error.cause).unwrap_or(OTHER_DISK);
        Error::Disk(format!("{error}{full}\n{remedy}"))
    }
}
