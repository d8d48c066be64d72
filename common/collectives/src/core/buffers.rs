//! Raw access to issued buffers in main memory, those of other ranks included.

use super::call::{BufferShape, Call};
use device::{Buffer, DType};
use events::Operation;
use std::ops::Range;
use std::sync::Arc;

/// Where an issued buffer lies. Its rank does not touch it until the collective has settled.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: *mut u8,
    len: usize,
    dtype: DType,
}

// SAFETY: a span is only an address. Its unsafe methods alone reach the memory, and their callers
// guarantee which thread reads and writes it.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// Returns the spans of buffers, which their owner must keep in place and leave untouched while
    /// the spans are used. Moving a `Buffer` is fine: its elements live on the heap. `None` unless
    /// all lie in main memory.
    pub(crate) fn of(buffers: &mut [Buffer]) -> Option<Vec<Self>> {
        let span = |buffer: &mut Buffer| {
            let (len, dtype) = (buffer.len(), buffer.dtype());
            Some(Span { start: buffer.host_bytes_mut()?.as_mut_ptr(), len, dtype })
        };
        buffers.iter_mut().map(span).collect()
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes of `range`.
    pub(crate) fn bytes_of(&self, range: &Range<usize>) -> u64 {
        (range.len() * self.dtype.size()) as u64
    }

    /// Returns the bytes of elements `range`, to read.
    ///
    /// # Safety
    /// The buffer is alive, and no thread writes to `range` during `'a`.
    pub(crate) unsafe fn read<'a>(&self, range: Range<usize>) -> &'a [u8] {
        // SAFETY: in bounds; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start_of(&range), self.bytes_of(&range) as usize) }
    }

    /// Returns the bytes of elements `range`, to write.
    ///
    /// # Safety
    /// The buffer is alive, and no other thread reads or writes `range` during `'a`.
    pub(crate) unsafe fn write<'a>(&self, range: Range<usize>) -> &'a mut [u8] {
        // SAFETY: in bounds; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start_of(&range), self.bytes_of(&range) as usize) }
    }

    /// Returns the address of `range`, which lies within the buffer.
    fn start_of(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        self.start.wrapping_add(range.start * self.dtype.size())
    }
}

/// A call with the buffers that its rank handed in, in main memory.
pub(crate) struct Issued {
    pub(crate) call: Arc<Call>,
    pub(crate) spans: Vec<Span>,
    /// Where the sums of the rank's slice go, f32, if they are not rounded into the buffers.
    pub(crate) sums: Vec<Span>,
    /// The bytes of scalars.
    pub(crate) bytes: Vec<u8>,
}

impl Issued {
    /// Returns the call with `spans`: those of its shapes, then the places for sums.
    pub(crate) fn new(call: &Arc<Call>, mut spans: Vec<Span>, bytes: &[u8]) -> Self {
        let sums = spans.split_off(call.signature.shapes.len().min(spans.len()));
        Issued { call: call.clone(), spans, sums, bytes: bytes.to_vec() }
    }

    /// Returns the payload bytes that `member` of `count` members sends, where each member sends
    /// its data straight to those that need it.
    pub(crate) fn bytes_sent(&self, member: usize, count: usize) -> u64 {
        let (others, signature) = (count as u64 - 1, &self.call.signature);
        let per_buffer = |shape: &BufferShape| {
            let (all, size) = (shape.bytes() as u64, shape.dtype.size() as u64);
            let own = slice(shape.len, member, count).len() as u64 * size;
            match signature.operation {
                Operation::AllReduce => all - own + others * own,
                Operation::ReduceScatter => all - own,
                Operation::AllGather => others * own,
                Operation::Broadcast if signature.root == member => others * all,
                _ => 0,
            }
        };
        signature.shapes.iter().map(per_buffer).sum::<u64>() + others * self.bytes.len() as u64
    }
}

/// Returns slice `index` of `count` of `len` elements; slices differ by at most one element if
/// `count` does not divide `len`.
pub(crate) fn slice(len: usize, index: usize, count: usize) -> Range<usize> {
    let cut = |index: usize| (index as u128 * len as u128 / count as u128) as usize;
    cut(index)..cut(index + 1)
}
