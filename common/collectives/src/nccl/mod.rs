//! Ranks on GPUs whose data NCCL moves: threads of one process, or processes.
//!
//! | file | what |
//! |---|---|
//! | `raw` | NCCL's functions as its header declares them |
//! | `calls` | the same with results for codes |
//! | `communicator` | an owned communicator: never blocks, can be aborted from any thread |
//! | `member` | one rank's end of a group: a group of threads or processes agrees, NCCL moves |
//! | `handing` | from a call that all agree about to NCCL's queue |
//! | `watchdog` | errors and deadlines on the GPU |
//! | `repeat` | NCCL's own calls, to measure all this against |
//! | `memory_probe` | what communicators take of a GPU's memory |
//! | `setup` | how ranks come to have communicators, and what stands in the way |
//!
//! NCCL trusts its callers: ranks that pass different lengths wait for each other forever, or write where they must not.
//! So a call takes two ways. What it means goes to the group under it at `issue`, a few bytes to every other rank. At
//! `wait`, when everybody's are here and agree, it is handed to NCCL on the communication stream, behind the point at
//! which the rank had issued it. The host runs ahead of the GPU, so that the words have long arrived when the GPU comes
//! to the data: what they cost hides behind what is still queued.
//!
//! Messages between two ranks go to NCCL together with all others that are open then; so a rank that waits for one waits
//! until the partners of all have issued theirs. Sums are NCCL's: in its own order, rounded at every hop in 16 bits.

mod calls;
mod communicator;
mod handing;
mod member;
mod memory_probe;
mod raw;
mod repeat;
mod setup;
mod watchdog;

pub use repeat::Repeater;
pub use setup::{
    SharedGpu, Version, allow_sharing, allow_sharing_among_processes, caution, join, share, version,
};
