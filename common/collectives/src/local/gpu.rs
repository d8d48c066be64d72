//! Collectives between ranks on GPUs of one process: device copies and sums over all ranks' memory.
//!
//! The shape is that of main memory: a rank publishes where its buffers lie and does its share at `wait`. But on a GPU
//! neither happens at once, so fences take the place of "has returned". A contribution carries the point at which its
//! rank's computation is done with the buffers; a rank's share is queued on its communication stream after everybody's
//! points; and what a rank computes after `wait` starts after everybody's shares.

use super::data::slice;
use crate::backend::Call;
use device::cuda::{Communication, Fence, Runtime, kernels};
use device::{Buffer, DType, Result};
use events::{Operation, Work};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// One rank's buffers on its GPU.
pub(crate) struct OnGpu {
    rank: Arc<Runtime>,
    /// Of each buffer's first element.
    addresses: Vec<u64>,
    /// Of the places where the sums of its slice go, f32, if they are not to be rounded into the buffers.
    sums: Vec<u64>,
    /// After what the rank had computed when it issued.
    ready: Fence,
    /// After the share that this party did, once it has queued one.
    done: OnceLock<Fence>,
}

impl OnGpu {
    /// Where `buffers` lie, if all are on a GPU; `None` if some are not. Those after `count` are places for sums.
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

/// Where sums over everybody's buffers go.
enum To {
    /// Rounded, to where they were read, in the buffers of these parties.
    Buffers(Range<usize>),
    /// As they are, to this address.
    Exact(u64),
}

/// Everybody's buffers.
pub(crate) struct Parties<'a> {
    pub(crate) call: &'a Call,
    pub(crate) all: Vec<&'a OnGpu>,
}

impl Parties<'_> {
    /// Queues party `me`'s share, which watchers know as `what`; alone, there is none. `hop(from, to, chunk, bytes)` hears of
    /// each transfer.
    ///
    /// # Errors
    /// The driver's.
    ///
    /// # Safety
    /// All contributions agree; their buffers are alive and given to this collective until everybody has settled; every
    /// party calls this at most once per collective (of a message, only one of the two does).
    pub(crate) unsafe fn run(
        &self,
        me: usize,
        what: Work,
        hop: &mut dyn FnMut(usize, usize, usize, u64),
    ) -> Result<()> {
        let own = self.all[me];
        if self.all.len() == 1 && own.sums.is_empty() {
            return Ok(());
        }
        let fence = own.rank.communicate_as(what, self.all.iter().map(|party| &party.ready), |stream| {
            for index in 0..self.call.shapes.len() {
                // SAFETY: the caller's promise; slices of different parties do not overlap.
                unsafe { self.part(stream, index, me, hop) }?;
            }
            Ok(())
        });
        // What a failed share has queued has no fence.
        let fence = fence.inspect_err(|_| drop(own.rank.synchronize()))?;
        // A party does its share once, so there is no other fence here.
        let _ = own.done.set(fence);
        Ok(())
    }

    /// What party `me` computes from now on starts after everybody's shares.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) fn settle(&self, me: usize) -> Result<()> {
        let shares = self.all.iter().filter_map(|party| party.done.get());
        shares.into_iter().try_for_each(|fence| self.all[me].rank.compute_after(fence))
    }

    /// Waits on the host until no share is under way any more. After a failure: only then may buffers be freed, since what another
    /// GPU has queued does not wait for this one.
    pub(crate) fn drain(&self, me: usize) {
        let shares = self.all.iter().filter_map(|party| party.done.get());
        // What the driver has to say about a failed run adds nothing to the failure.
        shares.for_each(|fence| drop(self.all[me].rank.reach(fence)));
    }

    /// # Safety
    /// As [`Parties::run`].
    unsafe fn part(
        &self,
        stream: &Communication<'_>,
        index: usize,
        me: usize,
        hop: &mut dyn FnMut(usize, usize, usize, u64),
    ) -> Result<()> {
        let (len, dtype) = self.call.shapes[index];
        let count = self.all.len();
        let own = slice(len, me, count);
        let bytes = (own.len() * dtype.size()) as u64;
        let others = || (0..count).filter(|&party| party != me);
        // SAFETY: as in main memory: slice `me` of every buffer is this party's alone.
        unsafe {
            match self.call.operation {
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
                    let root = self.call.peer;
                    self.spread(stream, index, own, root)?;
                    (0..count).filter(|&to| to != root).for_each(|to| hop(root, to, me, bytes));
                }
                Operation::Send | Operation::Recv => {
                    self.spread(stream, index, 0..len, 0)?;
                    hop(0, 1, 0, (len * dtype.size()) as u64);
                }
                Operation::Barrier | Operation::Scalars => {}
            }
        }
        Ok(())
    }

    /// Sums `range` over everybody's buffers, over the same tree as in main memory.
    ///
    /// # Safety
    /// Nobody else touches `range` of any of the buffers, or a place of its own for the sums.
    unsafe fn sum(
        &self,
        stream: &Communication<'_>,
        index: usize,
        range: Range<usize>,
        to: To,
    ) -> Result<()> {
        let (_, dtype) = self.call.shapes[index];
        let inputs: Vec<u64> =
            self.all.iter().map(|party| at(party.addresses[index], range.start, dtype)).collect();
        let (outputs, stored) = match &to {
            To::Buffers(parties) => (&inputs[parties.clone()], dtype),
            To::Exact(place) => (std::slice::from_ref(place), DType::F32),
        };
        stream.moves(range.len() * (inputs.len() * dtype.size() + outputs.len() * stored.size()));
        kernels::tree_sum(stream, outputs, &inputs, (dtype, stored), range.len())
    }

    /// Copies `range` of party `from`'s buffer into everybody else's.
    ///
    /// # Safety
    /// Nobody writes to `range` of the source, and nobody else touches `range` of the others.
    unsafe fn spread(
        &self,
        stream: &Communication<'_>,
        index: usize,
        range: Range<usize>,
        from: usize,
    ) -> Result<()> {
        let (_, dtype) = self.call.shapes[index];
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
