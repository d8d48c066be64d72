//! From a call that all ranks agree about to NCCL's queue.

use super::calls::{CallState, Transfer, nccl_error};
use super::watched_communicator::{HostBarrier, WatchedCommunicator, stopwatch};
use crate::call_id::CallId;
use crate::core::call::{Call, Signature};
use crate::core::observer::Observer;
use device::cuda::{Communication, Launching};
use std::cell::RefCell;

/// Returns a condition that ends a wait for NCCL: once the group has failed, or once the timeout is
/// over. In the latter case it blames a rank. `call` is `None` while this rank splits its
/// communicator. `step` is the number of the step that this rank took last; `None` unless it is one
/// of the call's.
pub(crate) fn give_up_at_timeout<'a>(
    watched: &'a WatchedCommunicator,
    call: Option<CallId>,
    step: Option<u64>,
    observer: &'a Observer,
) -> impl Fn() -> Option<String> + 'a {
    let waited = RefCell::new(stopwatch(watched.paused(observer), watched.timeout));
    move || {
        if watched.control.failure(call).is_some() {
            return Some("the group has failed".into());
        }
        if waited.borrow_mut().poll(watched.paused(observer)) < watched.timeout {
            return None;
        }
        let (culprit, reason) = watched.blame_for_timeout(step);
        let during = call.map_or("the split of the communicator".into(), |call| call.to_string());
        watched.control.blame(culprit, during, reason.clone());
        Some(reason)
    }
}

/// Enqueues `transfers` on the communication stream, through NCCL.
///
/// Where ranks are threads, no rank returns before all have enqueued theirs. A rank's next
/// operation may load machine code, as cuBLASLt does for every new shape, or free memory. That
/// waits for everything that runs in the context, the rank's own kernel included, and during that
/// wait the driver may hold a lock of the process. The kernel waits for the other ranks' kernels,
/// which the driver then does not launch, on this GPU or on another.
///
/// Where threads share a GPU, rank A's queued kernel may block rank B's allocation while it waits
/// for B's kernel or, in a sub-group, for one of a third rank. So all members first report that
/// they are ready and then enqueue. Until all have enqueued, no thread of the process begins an
/// operation that waits for a context.
pub(crate) fn enqueue(
    watched: &WatchedCommunicator,
    call: &Call,
    transfers: &[Transfer],
    stream: &Communication<'_>,
) -> device::Result<()> {
    let ready = watched.step();
    let _launching = match watched.host_barrier {
        HostBarrier::AroundEnqueue => {
            let give_up = give_up_at_timeout(watched, Some(call.id()), Some(ready), &call.observer);
            watched.pass_barrier(ready, &give_up).map_err(nccl_error)?;
            Some(Launching::begin())
        }
        HostBarrier::Never | HostBarrier::AfterEnqueue => None,
    };
    // SAFETY: all ranks agree about operation, lengths and types, and enqueue in the same order;
    // the calls enqueued before have settled. The callers keep the buffers in place until `wait`
    // has put the call's fence before the rank's next computation.
    let state = unsafe { watched.communicator.enqueue(transfers, stream.handle()) }.map_err(nccl_error)?;
    let step = watched.step();
    let give_up = give_up_at_timeout(watched, Some(call.id()), Some(step), &call.observer);
    if state == CallState::Running {
        watched.communicator.settle(&give_up).map_err(nccl_error)?;
    }
    if watched.host_barrier != HostBarrier::Never {
        watched.pass_barrier(step, &give_up).map_err(nccl_error)?;
    }
    Ok(())
}

/// Returns the transfers of a call; none for empty buffers.
pub(crate) fn transfers(signature: &Signature, addresses: &[u64]) -> impl Iterator<Item = Transfer> {
    let Signature { operation, root, .. } = *signature;
    let buffers = signature.shapes.iter().zip(addresses).filter(|(shape, _)| shape.len > 0);
    buffers.map(move |(shape, &address)| Transfer {
        operation,
        root,
        address,
        len: shape.len,
        dtype: shape.dtype,
    })
}
