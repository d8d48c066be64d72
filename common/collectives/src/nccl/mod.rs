//! Ranks on GPUs whose data NCCL moves: threads of one process, or processes.
//!
//! | file | contents |
//! |---|---|
//! | `raw` | NCCL's functions as its header declares them |
//! | `calls` | NCCL's functions with results in place of codes |
//! | `communicator` | an owned communicator: never blocks, can be aborted from any thread |
//! | `member` | one rank's end of a group: a group of threads or processes agrees, NCCL moves the data |
//! | `enqueue` | from a call that all ranks agree about to NCCL's queue |
//! | `watched_communicator` | a communicator, and how long its queued calls take |
//! | `watchdog` | the thread that notices errors and timeouts on the GPU |
//! | `repeat` | NCCL's own calls, to measure the layer above them against |
//! | `memory_probe` | how much of a GPU's memory communicators take |
//! | `setup` | how ranks get communicators, and what can prevent it |
//!
//! NCCL trusts its callers: ranks that pass different lengths wait for each other forever, or write
//! out of bounds. So a call has two parts. At `issue` its signature goes to the group under NCCL, a
//! few bytes to every other rank. At `wait`, once all signatures have arrived and agree, the call
//! is handed to NCCL on the communication stream, after the point at which the rank had issued it.
//! The host runs ahead of the GPU, so the signatures have usually arrived before the GPU gets to
//! the data, and their cost is hidden behind the work that is still queued.
//!
//! Sums are NCCL's: in its own order, rounded at every hop in 16 bits.

mod calls;
mod communicator;
mod enqueue;
mod member;
mod memory_probe;
mod raw;
mod repeat;
mod setup;
mod watchdog;
mod watched_communicator;

pub use repeat::Repeater;
pub use setup::{
    SharedGpu, Version, allow_sharing, allow_sharing_among_processes, lazy_loading_warning,
    prepare_shared_gpus, version,
};

use crate::CollectiveError;
use crate::group::Group;
use device::cuda::Runtime;
use member::NcclMember;
use setup::Setup;
use std::sync::Arc;
use std::time::Duration;

/// Puts NCCL under `group`: buffers on the GPU of `runtime`, this rank's, then travel through it.
/// Every rank of the group calls it.
///
/// # Errors
/// [`CollectiveError::Setup`] if NCCL is missing, too old, or refuses; the group's failure if
/// another rank could not.
pub fn join(group: Group, runtime: &Arc<Runtime>, timeout: Duration) -> Result<Group, CollectiveError> {
    let control = group.backend().clone();
    let connected = Setup::new(&control, runtime, timeout).run().inspect_err(|error| {
        if let CollectiveError::Setup { reason, .. } = error {
            control.poison("its NCCL setup".into(), reason.clone());
        }
    })?;
    Ok(group.over(Arc::new(NcclMember::new(control, runtime.clone(), timeout, connected))))
}
