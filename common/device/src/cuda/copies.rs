//! Copies between page-locked memory and a GPU that run concurrently with its computation.
//!
//! Each direction has a stream of its own. A copy starts after all computation issued before it:
//! its source has been computed by then, and nothing reads its target any more. The memory at both
//! ends keeps the point at which the copy is done ([`InFlight`]), so that the host and later copies
//! wait for it, and memory that is freed earlier is reused only after it.

use super::block::Block;
use super::call::Named;
use super::in_flight::InFlight;
use super::pinned::Pinned;
use super::runtime::Runtime;
use super::stream::{Fence, Stream};
use super::timeline::Lane;
use crate::Result;
use cudarc::driver::sys;
use events::Work;
use std::ops::Range;
use std::sync::Arc;

/// A copy that has been queued on a stream of its own.
pub(crate) struct QueuedCopy {
    done: Arc<Fence>,
    lane: Lane,
    runtime: Arc<Runtime>,
}

impl QueuedCopy {
    /// True if [`QueuedCopy::wait`] would not block.
    pub(crate) fn is_over(&self) -> Result<bool> {
        match self.lane {
            Lane::ToHost => self.done.is_reached(),
            _ => Ok(true),
        }
    }

    /// Blocks the host until a copy to main memory is done. Makes the compute stream wait for a
    /// copy to the GPU.
    pub(crate) fn wait(self) -> Result<()> {
        match self.lane {
            Lane::ToHost => self.runtime.reach(&self.done),
            _ => self.runtime.compute_after(&self.done),
        }
    }
}

impl Runtime {
    /// Queues a copy of bytes `from` of `pages` to bytes `to` of `block`, as many.
    pub(crate) fn copy_in(
        self: &Arc<Self>,
        (block, to): (&Block, Range<usize>),
        (pages, from): (&Pinned, Range<usize>),
        work: Option<Work>,
    ) -> Result<QueuedCopy> {
        let (source, target) = (pages.start(&from), block.address + to.start as u64);
        let (reads, writes) = ((pages.in_flight(), from), (&block.in_flight, to));
        self.queue_copy(Lane::ToGpu, reads, writes, work, |stream, bytes| {
            // SAFETY: both ranges lie within their blocks, which are kept, unchanged and unread,
            // until the copy is done: their marks see to it.
            unsafe { sys::cuMemcpyHtoDAsync_v2(target, source.cast(), bytes, stream.handle()) }
                .result()
                .named("cuMemcpyHtoDAsync")
        })
    }

    /// Queues a copy of bytes `from` of `block` to bytes `to` of `pages`, as many.
    pub(crate) fn copy_out(
        self: &Arc<Self>,
        (pages, to): (&Pinned, Range<usize>),
        (block, from): (&Block, Range<usize>),
        work: Option<Work>,
    ) -> Result<QueuedCopy> {
        let (source, target) = (block.address + from.start as u64, pages.start(&to));
        let (reads, writes) = ((&block.in_flight, from), (pages.in_flight(), to));
        self.queue_copy(Lane::ToHost, reads, writes, work, |stream, bytes| {
            // SAFETY: as in `copy_in`.
            unsafe { sys::cuMemcpyDtoHAsync_v2(target.cast(), source, bytes, stream.handle()) }
                .result()
                .named("cuMemcpyDtoHAsync")
        })
    }

    /// Queues a copy after everything computed so far and after the copies in its way, and marks
    /// the memory at both ends.
    fn queue_copy(
        self: &Arc<Self>,
        lane: Lane,
        reads: (&InFlight, Range<usize>),
        writes: (&InFlight, Range<usize>),
        work: Option<Work>,
        copy: impl FnOnce(&Stream, usize) -> Result<()>,
    ) -> Result<QueuedCopy> {
        self.gpu.context.enter()?;
        let stream = self.copies.stream(lane)?;
        stream.wait(&self.compute.fence()?)?;
        let before = reads.0.before(&reads.1, false).into_iter().chain(writes.0.before(&writes.1, true));
        before.into_iter().try_for_each(|fence| stream.wait(&fence))?;
        let timed = self.timeline().zip(work);
        let begun = timed.map(|(timeline, _)| timeline.begin(stream)).transpose()?;
        copy(stream, reads.1.len())?;
        let done = Arc::new(stream.fence_after_copy()?);
        reads.0.add(reads.1, false, done.clone());
        writes.0.add(writes.1, true, done.clone());
        if let Some(((timeline, work), begun)) = timed.zip(begun) {
            timeline.end(lane, stream, begun, work)?;
        }
        Ok(QueuedCopy { done, lane, runtime: self.clone() })
    }
}
