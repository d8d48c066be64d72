//! Views: contiguous ranges of buffers.

use crate::buffer::{Buffer, ON_HOST, Storage};
use crate::dtype::{DType, Element};
use crate::{DeviceError, Result};
use events::Place;
use std::borrow::Borrow;
use std::ops::Range;

/// A contiguous range of a buffer that is borrowed as `B`: a [`View`] or a [`ViewMut`].
#[derive(Clone)]
pub struct BufferRange<B> {
    buffer: B,
    range: Range<usize>,
}

/// A contiguous range of a buffer, to read.
pub type View<'a> = BufferRange<&'a Buffer>;

/// A contiguous range of a buffer, to write.
pub type ViewMut<'a> = BufferRange<&'a mut Buffer>;

impl Buffer {
    /// Returns all of it, to read.
    pub fn view(&self) -> View<'_> {
        self.slice(0..self.len())
    }

    /// Returns all of it, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_> {
        self.slice_mut(0..self.len())
    }

    /// Returns the elements `range`, to read.
    pub fn slice(&self, range: Range<usize>) -> View<'_> {
        let range = within(&(0..self.len()), range);
        View { buffer: self, range }
    }

    /// Returns the elements `range`, to write.
    pub fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_> {
        let range = within(&(0..self.len()), range);
        ViewMut { buffer: self, range }
    }
}

impl<B: Borrow<Buffer>> BufferRange<B> {
    fn buffer(&self) -> &Buffer {
        self.buffer.borrow()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// True if it has no elements.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.buffer().dtype()
    }

    /// True if the buffer is in main memory.
    pub fn on_host(&self) -> bool {
        self.buffer().on_host()
    }

    /// Returns the place under which the ledger counts the buffer.
    pub fn place(&self) -> Place {
        self.buffer().place()
    }

    /// Returns the address of the first element in a GPU's memory.
    pub(crate) fn address(&self, kernel: &'static str, operand: &'static str) -> Result<u64> {
        let (_, start) = self.buffer().on_gpu().ok_or(DeviceError::Elsewhere { kernel, operand })?;
        Ok(start + self.byte_range().start as u64)
    }

    /// Returns the largest of the buffer's indices; `None` if the host does not know it.
    pub(crate) fn largest_index(&self) -> Option<u32> {
        self.buffer().largest_index()
    }

    /// Returns the buffer's memory, and the view's bytes of it.
    pub(crate) fn memory(&self) -> (&Storage, Range<usize>) {
        (self.buffer().storage(), self.byte_range())
    }

    fn byte_range(&self) -> Range<usize> {
        let size = self.dtype().size();
        self.range.start * size..self.range.end * size
    }
}

impl<'a> View<'a> {
    /// Returns the elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the element type, or the buffer is in a GPU's memory.
    pub fn as_slice<T: Element>(&self) -> &'a [T] {
        assert_eq!(T::DTYPE, self.dtype(), "element type");
        bytemuck::cast_slice(self.bytes())
    }

    /// Returns the bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.buffer.host_range(self.byte_range()).expect(ON_HOST)
    }

    /// Returns the elements `range` of this view.
    pub fn slice(&self, range: Range<usize>) -> View<'a> {
        View { buffer: self.buffer, range: within(&self.range, range) }
    }
}

impl<'a> ViewMut<'a> {
    /// Records the largest index that the buffer holds now. Does nothing if this view is only a
    /// part of it.
    pub(crate) fn note_largest(&mut self, largest: Option<u32>) {
        let whole = self.range == (0..self.buffer.len());
        self.buffer.note_largest(largest.filter(|_| whole));
    }

    /// Returns the same range, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_> {
        ViewMut { buffer: self.buffer, range: self.range.clone() }
    }

    /// Returns the same range, to read.
    pub fn view(&self) -> View<'_> {
        View { buffer: self.buffer, range: self.range.clone() }
    }

    /// Returns the elements as Rust values.
    ///
    /// # Panics
    /// If `T` is not the element type, or the buffer is in a GPU's memory.
    pub fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        self.reborrow().into_mut_slice()
    }

    /// Returns the elements for as long as the view's borrow lasts; `T` is the element type.
    pub(crate) fn into_mut_slice<T: Element>(self) -> &'a mut [T] {
        assert_eq!(T::DTYPE, self.dtype(), "element type");
        bytemuck::cast_slice_mut(self.into_bytes_mut())
    }

    /// Returns the bytes for as long as the view's borrow lasts.
    pub(crate) fn into_bytes_mut(self) -> &'a mut [u8] {
        let bytes = self.byte_range();
        self.buffer.host_range_mut(bytes).expect(ON_HOST)
    }

    /// Returns the elements `range` of this view, to write.
    pub fn slice_mut(&mut self, range: Range<usize>) -> ViewMut<'_> {
        let range = within(&self.range, range);
        ViewMut { buffer: self.buffer, range }
    }
}

/// Returns the elements `range` of the elements `whole` of a buffer.
fn within(whole: &Range<usize>, range: Range<usize>) -> Range<usize> {
    let len = whole.len();
    assert!(range.start <= range.end && range.end <= len, "slice {range:?} of {len} elements");
    whole.start + range.start..whole.start + range.end
}
