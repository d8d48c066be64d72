//! Files for offload, checkpoints, recordings and reports.
//!
//! * [`disk`]: every call to the file system, including queued reads and writes that complete out
//!   of order. Any memory may be transferred; a transfer that does not begin on a [`PAGE`] goes
//!   through the page cache;
//! * [`mod@file`]: an open file, which bypasses the page cache where the file system allows it;
//! * [`journal`]: a record of changes and flushes, for tests of a loss of power;
//! * [`publication`]: a file that gets its name only when it is complete;
//! * [`fault`]: errors, short transfers, delays, hangs and crashes that tests inject, so that the
//!   code above a disk is tested at every call.
//!
//! The threads that read and write for a rank return the memory through the [`Ticket`]. So only the
//! rank's own thread allocates and frees a run's memory.

mod calls;
pub mod disk;
mod error;
pub mod fault;
pub mod file;
pub mod journal;
mod paths;
pub mod publication;
mod queue;
mod regular;

pub use disk::Disk;
pub use error::{Error, remedy_for_open_files};
pub use fault::{Answers, Call, CallKind, DiskFault, Effect};
pub use file::{File, PAGE};
pub use journal::Change;
pub use paths::parent;
pub use publication::Publication;
pub use queue::{Completed, Ticket};
pub use regular::{open_regular, read_regular};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
