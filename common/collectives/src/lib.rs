//! Process groups and the collectives between their ranks.
//!
//! A [`Group`] is one rank's end of a process group. Collectives work in place on whole buffers, as
//! NCCL's in-place forms do, and several buffers can go as one [`Bucket`]:
//!
//! * all-reduce: afterwards every rank's buffers hold the sum;
//! * reduce-scatter: rank r's r-th slice of each buffer holds the sum, the other slices are
//!   unspecified;
//! * all-gather: rank r's r-th slice of each buffer is copied to every rank's buffers;
//! * broadcast: afterwards every rank's buffers hold the root's.
//!
//! Buffers are handed in by value and come back by value: `issue → Pending → wait`. In between the
//! rank can neither read nor free them, and the ledger keeps counting them. Every rank must issue
//! the same collectives in the same order on the same group: operation, lengths, element types and
//! sequence number are compared before data moves, and a difference is an error on every rank.
//!
//! There are three engines. [`local`] runs ranks that are threads of one process: sums are added in
//! f32 over a balanced binary tree of ranks and rounded once, so that they depend neither on timing
//! nor on how the parameters are cut. [`tcp`] (or MPI) runs ranks that are processes, on one
//! machine or many, with the same sums. [`nccl`] goes under either, and lets NVIDIA's NCCL move the
//! buffers that lie on GPUs. `core` holds what all of them share.

mod call_id;
mod core;
mod error;
mod group;
#[doc(hidden)]
pub mod hostile;
pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nccl;
pub mod tcp;
mod traffic;
mod vote;
mod wire;

pub use call_id::CallId;
pub use core::backend::Topic;
pub use error::CollectiveError;
pub use group::{Bucket, ControlChannel, Group, GroupWatch, Pending};
pub use traffic::Traffic;
pub use vote::odd_one_out;
