//! Buffers: flat device memory with an element type and a lease.

use crate::cuda::{Block, Pinned, Runtime};
use crate::dtype::{DType, Element};
use crate::ledger::Lease;
use crate::pool;
use events::{Class, Place};
use std::ops::Range;
use std::sync::Arc;

/// The memory of a buffer.
pub(crate) enum Storage {
    /// Main memory.
    Host(pool::Memory),
    /// Page-locked main memory, which a GPU accesses directly.
    Pinned(Pinned),
    /// A GPU's memory.
    Gpu(Block),
}

/// Flat memory on a rank's device. Dropping it ends its lease in the ledger and frees the memory
/// for reuse.
///
/// Its elements can be borrowed as Rust values only if it is in main memory ([`Buffer::on_host`]).
/// For any buffer there are [`Device::read`](crate::Device::read),
/// [`Device::write`](crate::Device::write) and the kernels.
pub struct Buffer {
    storage: Storage,
    dtype: DType,
    len: usize,
    /// The largest of the indices that were written to it; `None` if the host does not know it.
    largest_index: Option<u32>,
    lease: Lease,
}

/// The panic of functions that borrow elements.
pub(crate) const ON_HOST: &str = "the buffer is in a GPU's memory: use Device::read and Device::write";

impl Buffer {
    pub(crate) fn new(storage: Storage, dtype: DType, len: usize, lease: Lease) -> Self {
        Buffer { storage, dtype, len, largest_index: None, lease }
    }

    /// True if it is in main memory.
    pub fn on_host(&self) -> bool {
        !matches!(self.storage, Storage::Gpu(_))
    }

    /// Returns the rank that it belongs to and its address in a GPU's memory; `None` if it is in
    /// main memory.
    pub fn on_gpu(&self) -> Option<(&Arc<Runtime>, u64)> {
        match &self.storage {
            Storage::Gpu(block) => Some((&block.runtime, block.address)),
            Storage::Host(_) | Storage::Pinned(_) => None,
        }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the size in bytes, as the ledger counts it.
    pub fn byte_len(&self) -> usize {
        self.len * self.dtype.size()
    }

    /// Returns the class under which the ledger counts it.
    pub fn class(&self) -> Class {
        self.lease.class()
    }

    /// Returns the place under which the ledger counts it. The device of a rank that computes on
    /// the CPU is also main memory.
    pub fn place(&self) -> Place {
        self.lease.place()
    }

    /// Returns the largest of the indices that were written to it; `None` if the host does not know
    /// it.
    pub(crate) fn largest_index(&self) -> Option<u32> {
        self.largest_index
    }

    /// Records the largest index that it holds now.
    pub(crate) fn note_largest(&mut self, largest: Option<u32>) {
        self.largest_index = largest;
    }

    /// Returns its memory.
    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Returns the bytes, to read; `None` if they are in a GPU's memory. Blocks until copies to
    /// them are done.
    pub fn host_bytes(&self) -> Option<&[u8]> {
        self.host_range(0..self.byte_len())
    }

    /// Returns the bytes, to write; `None` if they are in a GPU's memory. Blocks until copies to
    /// and from them are done.
    pub fn host_bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.host_range_mut(0..self.byte_len())
    }

    /// Returns bytes `range` of [`Buffer::host_bytes`].
    pub(crate) fn host_range(&self, range: Range<usize>) -> Option<&[u8]> {
        match &self.storage {
            Storage::Host(memory) => Some(&memory.bytes()[range]),
            Storage::Pinned(memory) => Some(memory.bytes(range)),
            Storage::Gpu(_) => None,
        }
    }

    /// Returns bytes `range` of [`Buffer::host_bytes_mut`].
    pub(crate) fn host_range_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        match &mut self.storage {
            Storage::Host(memory) => Some(&mut memory.bytes_mut()[range]),
            Storage::Pinned(memory) => Some(memory.bytes_mut(range)),
            Storage::Gpu(_) => None,
        }
    }

    /// Returns the bytes, to read. For copies and hashes; kernels take views.
    ///
    /// # Panics
    /// If it is in a GPU's memory.
    pub fn bytes(&self) -> &[u8] {
        self.host_bytes().expect(ON_HOST)
    }

    /// Returns the bytes, to write.
    ///
    /// # Panics
    /// If it is in a GPU's memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.host_bytes_mut().expect(ON_HOST)
    }

    /// Returns the elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the buffer's element type, or it is in a GPU's memory.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        bytemuck::cast_slice(self.bytes())
    }

    /// Returns the elements as Rust values, to write.
    ///
    /// # Panics
    /// If `T` is not the buffer's element type, or it is in a GPU's memory.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        bytemuck::cast_slice_mut(self.bytes_mut())
    }
}
