//! From a call that all ranks agree about to NCCL's queue.

use super::calls::{Move, State, Transfer};
use super::watchdog::WatchedCommunicator;
use crate::backend::{Call, Watch};
use device::DeviceError;
use device::cuda::Communication;
use events::Operation;
use std::time::Instant;

/// Waits on the host until NCCL has taken what was handed in; or until the group has failed, or patience is over, in
/// which case somebody is blamed. `count`: collectives handed in by then.
pub(crate) fn patience<'a>(
    watched: &'a WatchedCommunicator,
    call: &'a Call,
    count: Option<u64>,
    watch: &'a Watch,
) -> impl Fn() -> Option<String> + 'a {
    let (since, before) = (Instant::now(), watch.held());
    move || {
        if watched.control.failure(call).is_some() {
            return Some("the group has failed".into());
        }
        let held = watch.held().saturating_sub(before);
        if since.elapsed().saturating_sub(held) < watched.timeout {
            return None;
        }
        let (culprit, reason) = watched.late(count);
        watched.control.blame(culprit, call.label(), reason.clone());
        Some(reason)
    }
}

/// Hands `transfers` to NCCL for the communication stream; how many collectives have been handed in with them.
///
/// Where threads share a GPU, none goes on before all have handed in. What a rank does next may load machine code, as cuBLASLt does
/// for every new shape: that waits for all that runs in the context, the rank's own kernel included, which waits for kernels that the
/// driver launches for nobody meanwhile.
pub(crate) fn hand_in(
    watched: &WatchedCommunicator,
    call: &Call,
    transfers: &[Transfer],
    stream: &Communication<'_>,
    watch: &Watch,
) -> device::Result<Option<u64>> {
    let nccl = |reason| DeviceError::Cuda { call: "NCCL", reason };
    // SAFETY: all ranks agree about operation, lengths and types, and hand in in the same order; what was handed in
    // before has settled. The callers keep the buffers where they are until `wait` has put its fence before what comes next.
    let state = unsafe { watched.communicator.hand_in(transfers, stream.handle()) }.map_err(nccl)?;
    let collective = !matches!(call.operation, Operation::Send | Operation::Recv);
    let count = collective.then(|| watched.count());
    let give_up = patience(watched, call, count, watch);
    if state == State::Running {
        watched.communicator.settle(&give_up).map_err(nccl)?;
    }
    if let Some(count) = count.filter(|_| watched.together) {
        watched.meet(count, &give_up).map_err(nccl)?;
    }
    Ok(count)
}

/// What NCCL is to do for a call; nothing for empty buffers.
pub(crate) fn transfers(call: &Call, addresses: &[u64]) -> impl Iterator<Item = Transfer> {
    let peer = call.peer;
    let movement = match call.operation {
        Operation::AllReduce => Some(Move::AllReduce),
        Operation::ReduceScatter => Some(Move::ReduceScatter),
        Operation::AllGather => Some(Move::AllGather),
        Operation::Broadcast => Some(Move::Broadcast { root: peer }),
        Operation::Send => Some(Move::Send { to: peer }),
        Operation::Recv => Some(Move::Recv { from: peer }),
        Operation::Barrier | Operation::Scalars => None,
    };
    let buffers = call.shapes.iter().zip(addresses);
    buffers.filter_map(move |(&(len, dtype), &address)| {
        let movement = movement.filter(|_| len > 0)?;
        Some(Transfer { movement, address, len, dtype })
    })
}
