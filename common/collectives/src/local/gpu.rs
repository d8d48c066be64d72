//! Collectives between ranks on GPUs of one process: device copies and sums over all ranks' memory.
//!
//! The order is that of main memory: a rank publishes where its buffers lie and does its share at
//! `wait`. A GPU only queues both, so fences take the place of a function's return. With its
//! addresses a rank publishes the point at which its computation is done with the buffers. A rank's
//! share is queued on its communication stream after all ranks' points. Its next computation after
//! `wait` starts after all ranks' shares.

use super::OnHop;
use super::shares::{MemberBuffers, share};
use crate::core::call::Signature;
use device::cuda::{Communication, Fence, Runtime, kernels};
use device::{Buffer, DType, DeviceError, Result};
use events::Work;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// One rank's buffers on its GPU.
pub(crate) struct OnGpu {
    rank: Arc<Runtime>,
    /// Address of each buffer's first element.
    addresses: Vec<u64>,
    /// Addresses of the places where the sums of the rank's slice go, f32, if they are not rounded
    /// into the buffers.
    sums: Vec<u64>,
    /// Reached once the GPU has finished the work that the rank had queued when it issued.
    ready: Fence,
    /// Reached once the GPU has done this rank's share; set when the share is queued.
    done: OnceLock<Fence>,
}

impl OnGpu {
    /// Returns where `buffers` lie, if all are on a GPU; `None` if some are not. Those after
    /// `count` are places for sums.
    pub(crate) fn of(buffers: &[Buffer], count: usize) -> Result<Option<Self>> {
        let places: Option<Vec<_>> = buffers.iter().map(Buffer::on_gpu).collect();
        let Some(places) = places else { return Ok(None) };
        let Some((rank, _)) = places.first() else { return Ok(None) };
        let (rank, mut addresses) =
            ((*rank).clone(), places.iter().map(|(_, address)| *address).collect::<Vec<_>>());
        let sums = addresses.split_off(count);
        Ok(Some(OnGpu { ready: rank.computed()?, rank, addresses, sums, done: OnceLock::new() }))
    }
}

/// All members' buffers.
pub(crate) struct GpuMembers<'a> {
    pub(crate) signature: &'a Signature,
    pub(crate) all: Vec<&'a OnGpu>,
}

impl GpuMembers<'_> {
    /// Queues member `me`'s share, which watchers know as `what`. A member that is alone has no
    /// share.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// All members have published calls that agree. Their buffers are alive, and are left to this
    /// collective until all members have settled. Every member calls this at most once per
    /// collective.
    pub(crate) unsafe fn run(&self, me: usize, what: Work, hop: OnHop<'_>) -> Result<()> {
        let own = self.all[me];
        if self.all.len() == 1 && own.sums.is_empty() {
            return Ok(());
        }
        let fence = own.rank.communicate_as(what, self.all.iter().map(|member| &member.ready), |stream| {
            for index in 0..self.signature.shapes.len() {
                let buffers = OnStream { members: self, stream, index, me };
                // SAFETY: the caller's promise.
                unsafe { share(&buffers, self.signature, index, (me, self.all.len()), hop) }?;
            }
            Ok(())
        });
        // No fence follows the work that a failed share has queued: wait for all of it.
        let fence = fence.inspect_err(|_| drop(own.rank.synchronize()))?;
        // A member does its share once, so no other fence is set.
        let _ = own.done.set(fence);
        Ok(())
    }

    /// Makes member `me`'s next computation start after all members' shares.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn settle(&self, me: usize) -> Result<()> {
        let shares = self.all.iter().filter_map(|member| member.done.get());
        shares.into_iter().try_for_each(|fence| self.all[me].rank.compute_after(fence))
    }

    /// Blocks on the host until no share is in progress. After a failure, buffers may be freed only
    /// then: another GPU's queue does not wait for this one.
    pub(crate) fn drain(&self, me: usize) {
        let shares = self.all.iter().filter_map(|member| member.done.get());
        // After a failure, a further error of the driver adds nothing.
        shares.for_each(|fence| drop(self.all[me].rank.reach(fence)));
    }
}

/// The buffers of all members with one number, for member `me`, which queues its work on `stream`.
struct OnStream<'a> {
    members: &'a GpuMembers<'a>,
    stream: &'a Communication<'a>,
    index: usize,
    me: usize,
}

impl OnStream<'_> {
    fn dtype(&self) -> DType {
        self.members.signature.shapes[self.index].dtype
    }

    /// Returns the address of `element` in each member's buffer.
    fn addresses(&self, element: usize) -> Vec<u64> {
        let offset = (element * self.dtype().size()) as u64;
        self.members.all.iter().map(|member| member.addresses[self.index] + offset).collect()
    }
}

impl MemberBuffers for OnStream<'_> {
    type Error = DeviceError;

    /// Sums over the same tree as in main memory.
    unsafe fn sum(&self, range: Range<usize>, receivers: Range<usize>) -> Result<()> {
        let (dtype, inputs) = (self.dtype(), self.addresses(range.start));
        let (outputs, stored) = match self.members.all[self.me].sums.get(self.index) {
            Some(place) => (std::slice::from_ref(place), DType::F32),
            None => (&inputs[receivers], dtype),
        };
        self.stream.moves(range.len() * (inputs.len() * dtype.size() + outputs.len() * stored.size()));
        kernels::tree_sum(self.stream, outputs, &inputs, (dtype, stored), range.len())
    }

    unsafe fn spread(&self, range: Range<usize>, from: usize) -> Result<()> {
        let (places, bytes) = (self.addresses(range.start), range.len() * self.dtype().size());
        for (_, to) in places.iter().enumerate().filter(|(member, _)| *member != from) {
            // SAFETY: the caller's promise.
            unsafe { self.stream.copy(*to, places[from], bytes) }?;
        }
        Ok(())
    }
}
