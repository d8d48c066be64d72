//! Raw access to the buffers of other ranks.

use crate::backend::Call;
use crate::local::gpu::OnGpu;
use crate::local::ticket;
use device::{Buffer, DType};
use events::Operation;
use events::event::NO_UNIT;
use std::ops::Range;

/// Where an issued buffer lies. Its owner has given it away until the collective has settled.
#[derive(Clone, Copy)]
pub(crate) struct Span {
    start: *mut u8,
    len: usize,
    dtype: DType,
}

// SAFETY: a span is only an address. Memory is reached through its unsafe methods alone, and their callers answer for
// who reads and writes what.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// The span of a buffer, whose memory must stay where it is and untouched by its owner while the span is used.
    /// Moving the `Buffer` is fine: its elements live on the heap. `None` if it does not lie in main memory.
    pub(crate) fn new(buffer: &mut Buffer) -> Option<Self> {
        let (len, dtype) = (buffer.len(), buffer.dtype());
        Some(Span { start: buffer.host_bytes_mut()?.as_mut_ptr(), len, dtype })
    }

    /// The spans of buffers, if all lie in main memory.
    pub(crate) fn of(buffers: &mut [Buffer]) -> Option<Vec<Self>> {
        buffers.iter_mut().map(Span::new).collect()
    }

    /// Elements.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// Bytes of `range`.
    pub(crate) fn bytes_of(&self, range: &Range<usize>) -> u64 {
        (range.len() * self.dtype.size()) as u64
    }

    /// Elements `range`, to read.
    ///
    /// # Safety
    /// The buffer is alive, holds elements of type `T`, and nobody writes to `range` during `'a`.
    pub(crate) unsafe fn read<'a, T>(&self, range: Range<usize>) -> &'a [T] {
        self.check(&range, size_of::<T>());
        // SAFETY: in bounds, and aligned since blocks start on cache lines; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.cast::<T>().add(range.start), range.len()) }
    }

    /// Elements `range`, to write.
    ///
    /// # Safety
    /// The buffer is alive, holds elements of type `T`, and nobody else reads or writes `range` during `'a`.
    pub(crate) unsafe fn write<'a, T>(&self, range: Range<usize>) -> &'a mut [T] {
        self.check(&range, size_of::<T>());
        // SAFETY: as in `read`.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast::<T>().add(range.start), range.len()) }
    }

    /// The bytes of elements `range`, to read.
    ///
    /// # Safety
    /// As [`Span::read`], for any element type.
    pub(crate) unsafe fn read_bytes<'a>(&self, range: Range<usize>) -> &'a [u8] {
        let size = self.dtype.size();
        self.check(&range, size);
        // SAFETY: in bounds; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start * size), range.len() * size) }
    }

    /// The bytes of elements `range`, to write.
    ///
    /// # Safety
    /// As [`Span::write`], for any element type.
    pub(crate) unsafe fn write_bytes<'a>(&self, range: Range<usize>) -> &'a mut [u8] {
        let size = self.dtype.size();
        self.check(&range, size);
        // SAFETY: in bounds; the rest is the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start * size), range.len() * size) }
    }

    fn check(&self, range: &Range<usize>, size: usize) {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} elements", self.len);
        assert_eq!(size, self.dtype.size(), "element size");
    }
}

/// What a rank leaves in a slot.
pub(crate) struct Contribution {
    pub(crate) call: Call,
    /// Its buffers, if they lie in main memory.
    pub(crate) spans: Vec<Span>,
    /// Where the sums of its slice go, f32, if they are not to be rounded into the buffers.
    pub(crate) sums: Vec<Span>,
    /// Its buffers, if they lie on a GPU.
    pub(crate) gpu: Option<OnGpu>,
    pub(crate) bytes: Vec<u8>,
}

impl Contribution {
    /// Where its buffers lie, in words.
    fn place(&self) -> &'static str {
        if self.gpu.is_some() || self.call.elsewhere { "on a GPU" } else { "in main memory" }
    }
}

impl ticket::Contribution for Contribution {
    fn operation(&self) -> Operation {
        self.call.operation
    }

    fn agrees(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.call, &other.call);
        let root = |call: &Call| (call.operation == Operation::Broadcast).then_some(call.peer);
        kind(ours.operation) == kind(theirs.operation)
            && ours.shapes == theirs.shapes
            && holds(ours) == holds(theirs)
            && root(ours) == root(theirs)
            && self.place() == other.place()
    }

    fn describe(&self, other: &Self) -> String {
        let (ours, theirs) = (&self.call, &other.call);
        let root = match ours.operation {
            Operation::Broadcast => format!(" from root {}", ours.peer),
            _ => String::new(),
        };
        let buffers = match ours.shapes.len() {
            0 => String::new(),
            1 => " of 1 buffer".to_string(),
            count => format!(" of {count} buffers"),
        };
        let differing = ours.shapes.iter().zip(&theirs.shapes).position(|(a, b)| a != b);
        let index = differing.unwrap_or(theirs.shapes.len());
        let buffer = match ours.shapes.get(index).or(ours.shapes.first()) {
            Some((len, dtype)) => format!(" (buffer {}: {len} × {dtype})", index.min(ours.shapes.len() - 1)),
            None => String::new(),
        };
        let units = if holds(ours) == holds(theirs) { String::new() } else { held(ours) };
        let place = if self.place() == other.place() { String::new() } else { format!(" {}", self.place()) };
        format!("{}{root}{buffers}{buffer}{units}{place}", ours.operation)
    }
}

/// Whose data its buffers hold: the first unit, and how many.
fn holds(call: &Call) -> (u16, u16) {
    (call.first_unit, call.units)
}

fn held(call: &Call) -> String {
    match holds(call) {
        (NO_UNIT, _) => " of no unit".into(),
        (first, 0 | 1) => format!(" of unit {first}"),
        (first, count) => format!(" of {count} units from {first} on"),
    }
}

/// Both ends of a message are one operation.
fn kind(operation: Operation) -> Operation {
    if operation == Operation::Recv { Operation::Send } else { operation }
}

/// Slice `index` of `count` of `len` elements; slices differ by at most one element if `count` does not divide `len`.
pub(crate) fn slice(len: usize, index: usize, count: usize) -> Range<usize> {
    let cut = |index: usize| (index as u128 * len as u128 / count as u128) as usize;
    cut(index)..cut(index + 1)
}
