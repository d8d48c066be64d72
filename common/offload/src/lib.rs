//! Transfers between the places of a rank: its device, main memory and a disk.
//!
//! A transfer is to places what a collective is to ranks: issued, waited for, numbered, counted and
//! shown ([`Transfers`]). Transfers move [`device::Buffer`]s under the rank's ledger; data on a
//! disk are stored in [`Extent`]s of the rank's [swap file](swap). Only the rank's own thread
//! allocates and frees; the threads that read and write for it return the buffers that they were
//! given.
//!
//! A route between two places may be simulated, as `collectives::local::Link` simulates those
//! between ranks: each route has a queue of transfers. A wait ends when the rank's group fails, or
//! the disk has not answered for too long ([`WaitLimits`]).

mod error;
mod route_queue;
pub mod swap;
pub mod transfers;
mod wait;

pub use error::Error;
pub use storage::Effect;
pub use swap::{DiskBuffer, Extent, PAGE, paged};
pub use transfers::{
    Crossing, DiskTransfer, OnDisk, Options, ReadBuffer, TransferCounters, TransferLabel, Transfers,
};
pub use wait::WaitLimits;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
