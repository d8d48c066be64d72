//! Row-major matrices to write, cut by rows and by columns.

use super::prefetch::prefetch_rows;
use std::marker::PhantomData;
use std::ops::Range;
use std::slice::from_raw_parts_mut;

/// A matrix, whose elements nothing else refers to while it lives.
pub(super) struct Grid<'a, T> {
    first: *mut T,
    rows: usize,
    columns: usize,
    stride: usize,
    elements: PhantomData<&'a mut [T]>,
}

// SAFETY: as a mutable slice, it is the only way to its elements.
unsafe impl<T: Send> Send for Grid<'_, T> {}

impl<'a, T> Grid<'a, T> {
    /// Takes `rows × columns` elements of `x`, whose rows start `stride` elements apart.
    ///
    /// # Panics
    /// If `x` does not have them, or rows overlap.
    pub(super) fn new(x: &'a mut [T], rows: usize, columns: usize, stride: usize) -> Self {
        let fits = rows * columns == 0
            || (rows - 1) * stride + columns <= x.len() && (columns <= stride || rows == 1);
        assert!(fits, "{rows} × {columns} elements, {stride} apart, of {}", x.len());
        Grid { first: x.as_mut_ptr(), rows, columns, stride, elements: PhantomData }
    }

    /// Returns the number of rows and of columns.
    pub(super) fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Returns the first element's place, and how far rows are apart.
    pub(super) fn stored(&mut self) -> (*mut T, usize) {
        (self.first, self.stride)
    }

    /// Returns the address of `row` and the bytes from a row to the next, for prefetching.
    #[inline(always)]
    pub(super) fn place_of(&mut self, row: usize) -> (*const u8, usize) {
        (self.first.wrapping_add(row * self.stride).cast(), self.stride * size_of::<T>())
    }

    /// Prefetches some rows, which need not be there.
    pub(super) fn prefetch_rows(&mut self, rows: Range<usize>) {
        let (first, stride) = self.place_of(0);
        prefetch_rows(first, stride, rows, self.columns * size_of::<T>());
    }

    /// Borrows the whole matrix.
    pub(super) fn reborrow(&mut self) -> Grid<'_, T> {
        Grid { ..*self }
    }

    /// Borrows the elements at `rows` and `columns`.
    ///
    /// # Panics
    /// If they are not all there.
    #[inline(always)]
    pub(super) fn at(&mut self, rows: Range<usize>, columns: Range<usize>) -> Grid<'_, T> {
        self.reborrow().part(rows, columns)
    }

    /// Borrows some rows.
    ///
    /// # Panics
    /// If they are not all there.
    #[inline(always)]
    pub(super) fn rows(&mut self, rows: Range<usize>) -> Grid<'_, T> {
        self.at(rows, 0..self.columns)
    }

    #[inline(always)]
    fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let fits = rows.start <= rows.end
            && rows.end <= self.rows
            && columns.start <= columns.end
            && columns.end <= self.columns;
        assert!(fits, "{rows:?} and {columns:?} of {} × {}", self.rows, self.columns);
        let first = self.first.wrapping_add(rows.start * self.stride + columns.start);
        Grid { first, rows: rows.len(), columns: columns.len(), ..self }
    }

    /// Splits off the rows before `row`.
    pub(super) fn split_rows(self, row: usize) -> (Self, Self) {
        let (rows, columns) = self.shape();
        let upper = Grid { ..self };
        (upper.part(0..row, 0..columns), self.part(row..rows, 0..columns))
    }

    /// Splits off the columns before `column`.
    pub(super) fn split_columns(self, column: usize) -> (Self, Self) {
        let (rows, columns) = self.shape();
        let left = Grid { ..self };
        (left.part(0..rows, 0..column), self.part(0..rows, column..columns))
    }

    /// Hands out row by row.
    #[inline(always)]
    pub(super) fn into_rows(self) -> impl Iterator<Item = &'a mut [T]> {
        let Grid { first, rows, columns, stride, .. } = self;
        // SAFETY: the rows are the matrix's and do not overlap.
        (0..rows).map(move |row| unsafe { from_raw_parts_mut(first.wrapping_add(row * stride), columns) })
    }
}
