//! Buffers: flat device memory with an element type and a lease, and views into them.

use crate::cpu;
use crate::cuda::{Block, Pinned, Runtime};
use crate::dtype::{DType, Element};
use crate::ledger::Lease;
use crate::{DeviceError, Result};
use events::Class;
use std::ops::Range;
use std::sync::Arc;

/// What holds a buffer's bytes.
pub(crate) enum Memory {
    /// Main memory.
    Host(cpu::Memory),
    /// Main memory that a GPU reaches.
    Pinned(Pinned),
    /// A GPU's memory.
    Gpu(Block),
}

/// Flat memory on a rank's device. Frees itself, in the ledger and for reuse, when dropped.
///
/// Its elements can be borrowed as Rust values only if it lies in main memory ([`Buffer::on_host`]); what works for any
/// buffer goes through [`Device::read`](crate::Device::read), [`Device::write`](crate::Device::write) and the kernels.
pub struct Buffer {
    memory: Memory,
    dtype: DType,
    len: usize,
    /// The largest of the indices that were written to it last, if the host knows it.
    largest_index: Option<u32>,
    lease: Lease,
}

/// The contract of everything that borrows elements.
const ON_HOST: &str = "the buffer lies in a GPU's memory: use Device::read and Device::write";

impl Buffer {
    pub(crate) fn new(memory: Memory, dtype: DType, len: usize, lease: Lease) -> Self {
        Buffer { memory, dtype, len, largest_index: None, lease }
    }

    /// Whether it lies in main memory.
    pub fn on_host(&self) -> bool {
        !matches!(self.memory, Memory::Gpu(_))
    }

    /// The rank on a GPU that it belongs to, and its address there, if it lies in a GPU's memory.
    pub fn on_gpu(&self) -> Option<(&Arc<Runtime>, u64)> {
        match &self.memory {
            Memory::Gpu(block) => Some((block.rank(), block.address())),
            Memory::Host(_) | Memory::Pinned(_) => None,
        }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Size in bytes, as the ledger counts it.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// The class under which the ledger counts it.
    pub fn class(&self) -> Class {
        self.lease.class()
    }

    /// All of it, to read.
    pub fn view(&self) -> View<'_> {
        self.slice(0..self.len)
    }

    /// All of it, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        let range = 0..self.len;
        self.slice_mut(range)
    }

    /// Elements `range`, to read.
    pub fn slice(&self, range: Range<usize>) -> View<'_> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "slice {range:?} of {} elements",
            self.len
        );
        View { buffer: self, range }
    }

    /// Elements `range`, to write.
    pub fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_> {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "slice {range:?} of {} elements",
            self.len
        );
        ViewMut { buffer: self, range }
    }

    /// The bytes, to read, if they lie in main memory.
    pub fn host_bytes(&self) -> Option<&[u8]> {
        let bytes = match &self.memory {
            Memory::Host(memory) => memory.bytes(),
            Memory::Pinned(memory) => memory.bytes(),
            Memory::Gpu(_) => return None,
        };
        Some(&bytes[..self.byte_len()])
    }

    /// The bytes, to write, if they lie in main memory.
    pub fn host_bytes_mut(&mut self) -> Option<&mut [u8]> {
        let len = self.byte_len();
        let bytes = match &mut self.memory {
            Memory::Host(memory) => memory.bytes_mut(),
            Memory::Pinned(memory) => memory.bytes_mut(),
            Memory::Gpu(_) => return None,
        };
        Some(&mut bytes[..len])
    }

    /// The bytes, to read. For copies and hashes; kernels take views.
    ///
    /// # Panics
    /// If it lies in a GPU's memory.
    pub fn bytes(&self) -> &[u8] {
        self.host_bytes().expect(ON_HOST)
    }

    /// The bytes, to write.
    ///
    /// # Panics
    /// If it lies in a GPU's memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.host_bytes_mut().expect(ON_HOST)
    }

    /// The elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the buffer's element type, or it lies in a GPU's memory.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        bytemuck::cast_slice(self.bytes())
    }

    /// The elements as Rust values, to write.
    ///
    /// # Panics
    /// If `T` is not the buffer's element type, or it lies in a GPU's memory.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}

/// A contiguous range of a buffer, to read.
#[derive(Clone)]
pub struct View<'a> {
    buffer: &'a Buffer,
    range: Range<usize>,
}

impl<'a> View<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.buffer.dtype
    }

    /// The elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the element type, or the buffer lies in a GPU's memory.
    pub fn as_slice<T: Element>(&self) -> &'a [T] {
        &self.buffer.as_slice::<T>()[self.range.clone()]
    }

    /// Whether the buffer lies in main memory.
    pub fn on_host(&self) -> bool {
        self.buffer.on_host()
    }

    /// The address of the first element in a GPU's memory.
    pub(crate) fn address(&self, kernel: &'static str, operand: &'static str) -> Result<u64> {
        address(self.buffer, &self.range, kernel, operand)
    }

    /// The largest of the buffer's indices, if the host knows it.
    pub(crate) fn largest_index(&self) -> Option<u32> {
        self.buffer.largest_index
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        let size = self.dtype().size();
        &self.buffer.bytes()[self.range.start * size..self.range.end * size]
    }

    /// Elements `range` of this view.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        let start = self.range.start;
        assert!(range.end <= self.len(), "slice {range:?} of {} elements", self.len());
        View { buffer: self.buffer, range: start + range.start..start + range.end }
    }

    /// Whether `next` begins in the same buffer where this view ends, so that both can be read as one.
    pub fn joins(&self, next: &View<'_>) -> bool {
        std::ptr::eq(self.buffer, next.buffer) && self.range.end == next.range.start
    }

    /// This view and the adjacent `next` as one; see [`View::joins`].
    pub fn join(&self, next: &View<'_>) -> View<'a> {
        assert!(self.joins(next), "views are not adjacent");
        View { buffer: self.buffer, range: self.range.start..next.range.end }
    }
}

/// A contiguous range of a buffer, to write.
pub struct ViewMut<'a> {
    buffer: &'a mut Buffer,
    range: Range<usize>,
}

impl<'a> ViewMut<'a> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.buffer.dtype
    }

    /// Whether the buffer lies in main memory.
    pub fn on_host(&self) -> bool {
        self.buffer.on_host()
    }

    /// The address of the first element in a GPU's memory.
    pub(crate) fn address(&self, kernel: &'static str, operand: &'static str) -> Result<u64> {
        address(self.buffer, &self.range, kernel, operand)
    }

    /// Notes the largest index that the whole buffer holds from now on.
    pub(crate) fn note_largest(&mut self, largest: Option<u32>) {
        let whole = self.range == (0..self.buffer.len);
        self.buffer.largest_index = largest.filter(|_| whole);
    }

    /// The same range, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { buffer: self.buffer, range: self.range.clone() }
    }

    /// The same range, to read.
    pub fn view(&self) -> View<'_> {
        View { buffer: self.buffer, range: self.range.clone() }
    }

    /// The elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the element type, or the buffer lies in a GPU's memory.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        let range = self.range.clone();
        &mut self.buffer.as_mut_slice::<T>()[range]
    }

    /// The elements for as long as the view's borrow lasts; `T` is the element type.
    pub(crate) fn into_mut_slice<T: Element>(self) -> &'a mut [T] {
        &mut self.buffer.as_mut_slice::<T>()[self.range]
    }

    /// The bytes for as long as the view's borrow lasts.
    pub(crate) fn into_bytes_mut(self) -> &'a mut [u8] {
        let size = self.buffer.dtype.size();
        &mut self.buffer.bytes_mut()[self.range.start * size..self.range.end * size]
    }

    /// Elements `range` of this view, to write.
    pub fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_> {
        let start = self.range.start;
        assert!(range.end <= self.len(), "slice {range:?} of {} elements", self.len());
        ViewMut { buffer: self.buffer, range: start + range.start..start + range.end }
    }
}

fn address(
    buffer: &Buffer,
    range: &Range<usize>,
    kernel: &'static str,
    operand: &'static str,
) -> Result<u64> {
    let (_, start) = buffer.on_gpu().ok_or(DeviceError::Elsewhere { kernel, operand })?;
    Ok(start + (range.start * buffer.dtype.size()) as u64)
}
