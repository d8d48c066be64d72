//! Collectives between ranks on GPUs of one process: device copies and sums over all ranks' memory.
//!
//! It works as in main memory: a rank publishes where its buffers lie and does its share at `wait`.
//! A GPU only queues both, so fences take the place of a function's return. What a rank publishes
//! carries the point at which its computation is done with the buffers. A rank's
//! share is queued on its communication stream after all ranks' points. What a rank computes after
//! `wait` starts after all ranks' shares.

use super::Hop;
use crate::core::buffers::slice;
use crate::core::call::{BufferShape, Signature};
use device::cuda::{Communication, Fence, Runtime, kernels};
use device::{Buffer, DType, Result};
use events::{Operation, Work};
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
    /// Reached once the GPU has done what the rank had computed when it issued.
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

/// Where sums over all ranks' buffers go.
enum To {
    /// Rounded, to where they were read, in the buffers of these members.
    Buffers(Range<usize>),
    /// Unrounded, to this address.
    Exact(u64),
}

/// All members' buffers.
pub(crate) struct Parties<'a> {
    pub(crate) signature: &'a Signature,
    pub(crate) all: Vec<&'a OnGpu>,
}

impl Parties<'_> {
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
    pub(crate) unsafe fn run(&self, me: usize, what: Work, hop: Hop<'_>) -> Result<()> {
        let own = self.all[me];
        if self.all.len() == 1 && own.sums.is_empty() {
            return Ok(());
        }
        let fence = own.rank.communicate_as(what, self.all.iter().map(|party| &party.ready), |stream| {
            for index in 0..self.signature.shapes.len() {
                // SAFETY: the caller's promise; slices of different members do not overlap.
                unsafe { self.run_one(stream, index, me, hop) }?;
            }
            Ok(())
        });
        // No fence follows what a failed share has queued: wait for all of it.
        let fence = fence.inspect_err(|_| drop(own.rank.synchronize()))?;
        // A member does its share once, so no other fence is set.
        let _ = own.done.set(fence);
        Ok(())
    }

    /// Lets what member `me` computes from now on start after all members' shares.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn settle(&self, me: usize) -> Result<()> {
        let shares = self.all.iter().filter_map(|party| party.done.get());
        shares.into_iter().try_for_each(|fence| self.all[me].rank.compute_after(fence))
    }

    /// Blocks on the host until no share is under way. After a failure, buffers may be freed only
    /// then: what another GPU has queued does not wait for this one.
    pub(crate) fn drain(&self, me: usize) {
        let shares = self.all.iter().filter_map(|party| party.done.get());
        // After a failure, a further error of the driver adds nothing.
        shares.for_each(|fence| drop(self.all[me].rank.reach(fence)));
    }

    /// Queues for one buffer what [`Parties::run`] queues for all.
    ///
    /// # Safety
    /// As [`Parties::run`].
    unsafe fn run_one(
        &self,
        stream: &Communication<'_>,
        index: usize,
        me: usize,
        hop: Hop<'_>,
    ) -> Result<()> {
        let BufferShape { len, dtype } = self.signature.shapes[index];
        let count = self.all.len();
        let own = slice(len, me, count);
        let bytes = (own.len() * dtype.size()) as u64;
        let others = || (0..count).filter(|&party| party != me);
        // SAFETY: as in main memory: slice `me` of every buffer is this member's alone.
        unsafe {
            match self.signature.operation {
                Operation::AllReduce => {
                    others().for_each(|from| hop(from, me, me, bytes));
                    self.sum(stream, index, own, To::Buffers(0..count))?;
                    others().for_each(|to| hop(me, to, me, bytes));
                }
                Operation::ReduceScatter => {
                    others().for_each(|from| hop(from, me, me, bytes));
                    let place = self.all[me].sums.get(index);
                    let to = place.map_or(To::Buffers(me..me + 1), |&place| To::Exact(place));
                    self.sum(stream, index, own, to)?;
                }
                Operation::AllGather => {
                    self.spread(stream, index, own, me)?;
                    others().for_each(|to| hop(me, to, me, bytes));
                }
                Operation::Broadcast => {
                    let root = self.signature.root;
                    self.spread(stream, index, own, root)?;
                    (0..count).filter(|&to| to != root).for_each(|to| hop(root, to, me, bytes));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sums `range` over all members' buffers, over the same tree as in main memory.
    ///
    /// # Safety
    /// No other member touches `range` of any of the buffers, or the place for exact sums.
    unsafe fn sum(
        &self,
        stream: &Communication<'_>,
        index: usize,
        range: Range<usize>,
        to: To,
    ) -> Result<()> {
        let dtype = self.signature.shapes[index].dtype;
        let inputs: Vec<u64> =
            self.all.iter().map(|party| at(party.addresses[index], range.start, dtype)).collect();
        let (outputs, stored) = match &to {
            To::Buffers(parties) => (&inputs[parties.clone()], dtype),
            To::Exact(place) => (std::slice::from_ref(place), DType::F32),
        };
        stream.moves(range.len() * (inputs.len() * dtype.size() + outputs.len() * stored.size()));
        kernels::tree_sum(stream, outputs, &inputs, (dtype, stored), range.len())
    }

    /// Copies `range` of member `from`'s buffer into every other member's.
    ///
    /// # Safety
    /// No member writes to `range` of the source, and no other member touches `range` of the
    /// others.
    unsafe fn spread(
        &self,
        stream: &Communication<'_>,
        index: usize,
        range: Range<usize>,
        from: usize,
    ) -> Result<()> {
        let dtype = self.signature.shapes[index].dtype;
        let place = |party: usize| at(self.all[party].addresses[index], range.start, dtype);
        for to in (0..self.all.len()).filter(|&to| to != from) {
            // SAFETY: the caller's promise.
            unsafe { stream.copy(place(to), place(from), range.len() * dtype.size()) }?;
        }
        Ok(())
    }
}

fn at(address: u64, element: usize, dtype: DType) -> u64 {
    address + (element * dtype.size()) as u64
}
