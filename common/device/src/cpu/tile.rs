//! Matrices of floats of any width, cut into tiles and handed out as f32.

use super::dense::{matrix, matrix_mut, packed, packed_mut, row_of, row_of_mut};
use super::operand::{Floats, FloatsMut};
use super::transpose::{transpose, transposed_stride};
use crate::convert::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::shapes::Write;
use crate::vectorized;
use half::{bf16, f16};
use ndarray::{ArrayView2, ArrayViewMut2, Axis, s};
use std::ops::Range;

/// A row-major matrix of floats to read, or its transpose.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    source: Floats<'a>,
    start: usize,
    rows: usize,
    columns: usize,
    stride: usize,
    transposed: bool,
}

impl<'a> Tile<'a> {
    /// `rows × columns` elements of `source`, whose rows start `stride` elements apart.
    pub(super) fn new(source: Floats<'a>, rows: usize, columns: usize, stride: usize) -> Self {
        Tile { source, start: 0, rows, columns, stride, transposed: false }
    }

    /// The transpose if `transposed`.
    pub(super) fn transposed_if(self, transposed: bool) -> Self {
        Tile { transposed: self.transposed != transposed, ..self }
    }

    /// True if it reads as the transpose of the stored tile.
    pub(super) fn is_transposed(&self) -> bool {
        self.transposed
    }

    /// True if [`Tile::read`] needs no scratch.
    pub(super) fn is_f32(&self) -> bool {
        self.source.is_f32()
    }

    /// Number of rows and of columns, as it reads.
    pub(super) fn shape(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// The tile at `rows` and `columns` of what this one reads as.
    pub(super) fn at(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let (rows, columns) = if self.transposed { (columns, rows) } else { (rows, columns) };
        Tile {
            start: self.start + rows.start * self.stride + columns.start,
            rows: rows.len(),
            columns: columns.len(),
            ..self
        }
    }

    /// The tile as f32; `scratch` holds at least as many elements.
    pub(super) fn read<'s>(&self, scratch: &'s mut [f32]) -> ArrayView2<'s, f32>
    where
        'a: 's,
    {
        let stored = match self.source {
            Floats::F32(x) => self.matrix(x),
            Floats::Bf16(x) => self.widen(self.matrix(x), scratch, widen_bf16),
            Floats::F16(x) => self.widen(self.matrix(x), scratch, widen_f16),
        };
        if self.transposed { stored.reversed_axes() } else { stored }
    }

    /// The tile as f32 by rows, copied if it is transposed; `scratch` holds at least as many
    /// elements, and for a transposed one as many rows of [`transposed_stride`].
    pub(super) fn read_by_rows<'s>(&self, scratch: &'s mut [f32]) -> ArrayView2<'s, f32>
    where
        'a: 's,
    {
        if !self.transposed {
            return self.read(scratch);
        }
        match self.source {
            Floats::F32(x) => transpose(scratch, self.matrix(x), <[f32]>::copy_from_slice),
            Floats::Bf16(x) => transpose(scratch, self.matrix(x), widen_bf16),
            Floats::F16(x) => transpose(scratch, self.matrix(x), widen_f16),
        }
        let stride = transposed_stride(self.rows);
        matrix(&scratch[..self.columns * stride], self.columns, self.rows, stride)
    }

    fn matrix<T>(&self, x: &'a [T]) -> ArrayView2<'a, T> {
        matrix(x.get(self.start..).unwrap_or_default(), self.rows, self.columns, self.stride)
    }

    fn widen<'s, T>(
        &self,
        from: ArrayView2<'_, T>,
        scratch: &'s mut [f32],
        widen: impl Fn(&mut [f32], &[T]),
    ) -> ArrayView2<'s, f32> {
        load(scratch, from, widen);
        packed(scratch, self.rows, self.columns)
    }
}

/// A row-major matrix of floats to write.
pub(super) enum TileMut<'a> {
    F32(ArrayViewMut2<'a, f32>),
    Bf16(ArrayViewMut2<'a, bf16>),
    F16(ArrayViewMut2<'a, f16>),
}

fn both<T, U>((a, b): (T, T), wrap: impl Fn(T) -> U) -> (U, U) {
    (wrap(a), wrap(b))
}

impl<'a> TileMut<'a> {
    /// `rows × columns` elements of `target`, whose rows start `stride` elements apart.
    pub(super) fn new(target: FloatsMut<'a>, rows: usize, columns: usize, stride: usize) -> Self {
        match target {
            FloatsMut::F32(x) => TileMut::F32(matrix_mut(x, rows, columns, stride)),
            FloatsMut::Bf16(x) => TileMut::Bf16(matrix_mut(x, rows, columns, stride)),
            FloatsMut::F16(x) => TileMut::F16(matrix_mut(x, rows, columns, stride)),
        }
    }

    /// True if [`TileMut::compute`] needs no scratch.
    pub(super) fn is_f32(&self) -> bool {
        matches!(self, TileMut::F32(_))
    }

    /// Number of rows and of columns.
    pub(super) fn shape(&self) -> (usize, usize) {
        match self {
            TileMut::F32(x) => x.dim(),
            TileMut::Bf16(x) => x.dim(),
            TileMut::F16(x) => x.dim(),
        }
    }

    /// The rows before `row`, and the others.
    pub(super) fn split_rows(self, row: usize) -> (Self, Self) {
        match self {
            TileMut::F32(x) => both(x.split_at(Axis(0), row), TileMut::F32),
            TileMut::Bf16(x) => both(x.split_at(Axis(0), row), TileMut::Bf16),
            TileMut::F16(x) => both(x.split_at(Axis(0), row), TileMut::F16),
        }
    }

    /// The columns before `column`, and the others.
    pub(super) fn split_columns(self, column: usize) -> (Self, Self) {
        match self {
            TileMut::F32(x) => both(x.split_at(Axis(1), column), TileMut::F32),
            TileMut::Bf16(x) => both(x.split_at(Axis(1), column), TileMut::Bf16),
            TileMut::F16(x) => both(x.split_at(Axis(1), column), TileMut::F16),
        }
    }

    /// The tile at `rows` and `columns`.
    pub(super) fn at(&mut self, rows: Range<usize>, columns: Range<usize>) -> TileMut<'_> {
        let part = s![rows, columns];
        match self {
            TileMut::F32(x) => TileMut::F32(x.slice_mut(part)),
            TileMut::Bf16(x) => TileMut::Bf16(x.slice_mut(part)),
            TileMut::F16(x) => TileMut::F16(x.slice_mut(part)),
        }
    }

    /// Calls `f` to overwrite the tile or add to it, as `write` says; `scratch` holds at least as
    /// many elements. A 16-bit tile is rounded once.
    pub(super) fn compute(
        &mut self,
        write: Write,
        scratch: &mut [f32],
        f: impl FnOnce(ArrayViewMut2<'_, f32>, Write),
    ) {
        let (rows, columns) = self.shape();
        match self {
            TileMut::F32(x) => f(x.view_mut(), write),
            TileMut::Bf16(x) => {
                if write == Write::Accumulate {
                    load(scratch, x.view(), widen_bf16);
                }
                f(packed_mut(scratch, rows, columns), write);
                store(x.view_mut(), scratch, narrow_bf16);
            }
            TileMut::F16(x) => {
                if write == Write::Accumulate {
                    load(scratch, x.view(), widen_f16);
                }
                f(packed_mut(scratch, rows, columns), write);
                store(x.view_mut(), scratch, narrow_f16);
            }
        }
    }
}

fn load<T>(to: &mut [f32], from: ArrayView2<'_, T>, widen: impl Fn(&mut [f32], &[T])) {
    let (rows, columns) = from.dim();
    vectorized!({
        for row in 0..rows {
            widen(&mut to[row * columns..(row + 1) * columns], row_of(from, row));
        }
    });
}

fn store<T>(mut to: ArrayViewMut2<'_, T>, from: &[f32], narrow: impl Fn(&mut [T], &[f32])) {
    let (rows, columns) = to.dim();
    vectorized!({
        for row in 0..rows {
            narrow(row_of_mut(to.view_mut(), row), &from[row * columns..(row + 1) * columns]);
        }
    });
}
