//! Process groups and the collectives between their ranks.
//!
//! A [`Group`] is one rank's end of a process group. Collectives work in place on whole buffers, as NCCL's in-place
//! forms do, and several buffers can go as one [`Bucket`]:
//!
//! * all-reduce: every rank's buffers hold the sum afterwards;
//! * reduce-scatter: rank r's r-th slice of each buffer holds the sum, the other slices are unspecified;
//! * all-gather: rank r's r-th slice of each buffer is sent to everybody's buffers;
//! * broadcast: everybody's buffers hold the root's.
//!
//! Buffers are handed in by value and come back by value: `issue → Pending → wait`. Between the two nobody can read or
//! free them, and the ledger keeps counting them. Every rank must issue the same operations in the same order on the
//! same group: operation, lengths, element type and sequence number are compared before data moves, and a difference
//! is an error on every rank.
//!
//! [`local`] runs ranks that are threads of one process: sums are added in f32 over a balanced binary tree of ranks in
//! order and rounded once, so that they do not depend on timing or on how the parameters are cut. [`tcp`] runs ranks
//! that are processes, on one machine or many, with the same sums. [`nccl`] goes under either, and has NVIDIA's NCCL move what
//! lies on GPUs.

mod backend;
mod error;
mod group;
pub mod local;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nccl;
pub mod tcp;
mod traffic;
mod wire;

pub use error::CollectiveError;
pub use group::{Bucket, ControlChannel, Group, Pending, Topic};
pub use traffic::Traffic;
