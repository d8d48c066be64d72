//! Buffers: flat device memory with an element type and a lease.

use crate::cuda::{Block, Pinned, Runtime};
use crate::dtype::{DType, Element};
use crate::ledger::Lease;
use crate::pool;
use events::Class;
use std::sync::Arc;

/// What holds a buffer's bytes.
pub(crate) enum Memory {
    /// Main memory.
    Host(pool::Memory),
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

    /// The largest of the indices that were written to it last, if the host knows it.
    pub(crate) fn largest_index(&self) -> Option<u32> {
        self.largest_index
    }

    /// Notes the largest index that it holds from now on.
    pub(crate) fn note_largest(&mut self, largest: Option<u32>) {
        self.largest_index = largest;
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
