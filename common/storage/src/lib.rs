//! Files under offload, checkpoints, recordings and reports.
//!
//! * [`disk`]: every call that reaches the file system, among them queued reads and writes that
//!   complete out of order. Any memory may travel; what does not begin on a [`PAGE`] goes through
//!   the page cache;
//! * [`mod@file`]: an open file, which bypasses the page cache where the file system allows it;
//! * [`journal`]: a record of changes and flushes, for tests of a loss of power;
//! * [`publication`]: a file that gets its name only when it is whole;
//! * [`fault`]: errors, short transfers, delays, hangs and crashes on request, so that the code
//!   above a disk is tested at every call.
//!
//! The threads that read and write for a rank give the memory back through the [`Ticket`], so that
//! the memory of a run is decided by the rank's own thread.

mod calls;
pub mod disk;
mod error;
pub mod fault;
pub mod file;
pub mod journal;
mod paths;
pub mod publication;
mod queue;

pub use disk::Disk;
pub use error::Error;
pub use fault::{Answers, Call, Effect, Fault, Kind};
pub use file::{File, PAGE};
pub use journal::Change;
pub use paths::parent;
pub use publication::Publication;
pub use queue::{Moved, Ticket};

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;
