//! The direct algorithm: each rank does its share of the work straight on all ranks' buffers.
//!
//! Rank r owns slice r of every buffer: it alone writes that slice of any rank's buffer, and no
//! other rank reads what it writes there. In a reduce-scatter it writes only its own buffer. So
//! ranks never wait for each other inside.

use super::OnHop;
use super::published::Published;
use super::shares::{MemberBuffers, share};
use crate::core::buffers::Span;
use crate::core::reduce::{self, Sums};
use std::convert::Infallible;
use std::ops::Range;

/// Bytes copied to one receiver before the next: the source stays in the first-level cache.
const PIECE: usize = 8 << 10;

/// Moves member `me`'s part of the data in main memory.
///
/// # Safety
/// All members have published calls that agree. Their buffers are alive, and are left to this
/// collective. Every member calls this at most once per collective.
pub(crate) unsafe fn run(all: &[Published], me: usize, hop: OnHop<'_>) {
    let issued = &all[me].issued;
    if all.len() == 1 && issued.sums.is_empty() {
        return;
    }
    let signature = &issued.call.signature;
    for index in 0..signature.shapes.len() {
        let spans: Vec<_> = all.iter().map(|member| member.issued.spans[index]).collect();
        let buffers = InMemory { spans, sums: issued.sums.get(index) };
        // SAFETY: the caller's promise.
        let Ok(()) = unsafe { share(&buffers, signature, index, (me, all.len()), hop) };
    }
}

/// One buffer of every member, and this member's place for sums.
struct InMemory<'a> {
    spans: Vec<Span>,
    sums: Option<&'a Span>,
}

impl MemberBuffers for InMemory<'_> {
    type Error = Infallible;

    unsafe fn sum(&self, range: Range<usize>, receivers: Range<usize>) -> Result<(), Infallible> {
        let to = self.sums.map_or(Sums::Rounded(&self.spans[receivers]), Sums::Exact);
        // SAFETY: only this thread touches the range.
        let read = |member: usize, block| unsafe { self.spans[member].read(block) };
        // SAFETY: the caller's promise; the buffers agree in type.
        unsafe { reduce::sum(self.spans[0].dtype(), range, self.spans.len(), read, to) };
        Ok(())
    }

    unsafe fn spread(&self, range: Range<usize>, from: usize) -> Result<(), Infallible> {
        let source = self.spans[from];
        let step = PIECE / source.dtype().size();
        for start in range.clone().step_by(step) {
            let block = start..range.end.min(start + step);
            // SAFETY: the caller's promise.
            let bytes = unsafe { source.read(block.clone()) };
            for (_, to) in self.spans.iter().enumerate().filter(|(member, _)| *member != from) {
                // SAFETY: the caller's promise; another member's buffer is other memory.
                unsafe { to.write(block.clone()) }.copy_from_slice(bytes);
            }
        }
        Ok(())
    }
}
