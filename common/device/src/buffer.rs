//! Buffers: flat device memory with an element type and a lease, and views into them.

use crate::cpu::{Memory, Pool};
use crate::dtype::{DType, Element};
use crate::ledger::Lease;
use events::Class;
use std::ops::Range;
use std::sync::Arc;

/// Flat memory on a rank's device. Frees itself, in the ledger and for reuse, when dropped.
pub struct Buffer {
    memory: Memory,
    dtype: DType,
    len: usize,
    lease: Lease,
}

impl Buffer {
    pub(crate) fn new(pool: &Arc<Pool>, dtype: DType, len: usize, lease: Lease) -> Self {
        Buffer { memory: pool.take(len * dtype.size()), dtype, len, lease }
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

    /// The bytes, to read. For copies and hashes; kernels take views.
    pub fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.len * self.dtype.size()]
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.byte_len();
        &mut self.memory.bytes_mut()[..len]
    }

    /// The elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the buffer's element type.
    pub fn as_slice<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.dtype, "element type");
        bytemuck::cast_slice(self.bytes())
    }

    /// The elements as Rust values, to write.
    ///
    /// # Panics
    /// If `T` is not the buffer's element type.
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
    /// If `T` is not the element type.
    pub fn as_slice<T: Element>(&self) -> &'a [T] {
        &self.buffer.as_slice::<T>()[self.range.clone()]
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
    /// If `T` is not the element type.
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
