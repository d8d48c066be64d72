//! Matrices of floats of any width, cut into tiles.

use super::grid::Grid;
use super::operand::{Floats, FloatsMut, both, each_width};
use super::prefetch::prefetch_rows;
use crate::convert::{narrow_bf16, narrow_f16, widen_bf16, widen_f16};
use crate::dispatch::vectorized;
use crate::operations::Addend;
use half::{bf16, f16};
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
    /// Returns `rows × columns` elements of `source`, whose rows start `stride` elements apart.
    pub(super) fn new(source: Floats<'a>, rows: usize, columns: usize, stride: usize) -> Self {
        Tile { source, start: 0, rows, columns, stride, transposed: false }
    }

    /// Returns the transpose if `transposed`.
    pub(super) fn transposed_if(self, transposed: bool) -> Self {
        Tile { transposed: self.transposed != transposed, ..self }
    }

    /// True if it reads as the transpose of the stored tile.
    pub(super) fn is_transposed(&self) -> bool {
        self.transposed
    }

    /// Returns the number of rows and of columns, as it reads.
    pub(super) fn shape(&self) -> (usize, usize) {
        if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) }
    }

    /// Returns the tile at `rows` and `columns` of the matrix that this tile reads as.
    pub(super) fn at(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let (rows, columns) = if self.transposed { (columns, rows) } else { (rows, columns) };
        Tile {
            start: self.start + rows.start * self.stride + columns.start,
            rows: rows.len(),
            columns: columns.len(),
            ..self
        }
    }

    /// True if its elements are bf16.
    pub(super) fn is_bf16(&self) -> bool {
        matches!(self.source, Floats::Bf16(_))
    }

    /// Prefetches some stored rows, which need not be there. They may lie on different pages, where
    /// a core's own prefetching stops.
    pub(super) fn prefetch_rows(&self, rows: Range<usize>) {
        let (source, stride) = self.stored();
        let size = source.size();
        prefetch_rows(source.bytes().as_ptr(), stride * size, rows, self.columns * size);
    }

    /// Returns the elements from the first stored one on, and the distance of its stored rows.
    #[inline(always)]
    pub(super) fn stored(&self) -> (Floats<'a>, usize) {
        (self.source.starting_at(self.start), self.stride)
    }
}

/// A row-major matrix of floats to write.
pub(super) enum TileMut<'a> {
    F32(Grid<'a, f32>),
    Bf16(Grid<'a, bf16>),
    F16(Grid<'a, f16>),
}

impl<'a> TileMut<'a> {
    /// Returns `rows × columns` elements of `target`, whose rows start `stride` elements apart.
    pub(super) fn new(target: FloatsMut<'a>, rows: usize, columns: usize, stride: usize) -> Self {
        each_width!(target, FloatsMut(x) as TileMut => Grid::new(x, rows, columns, stride))
    }

    /// Returns the number of rows and of columns.
    pub(super) fn shape(&self) -> (usize, usize) {
        each_width!(self, TileMut(x) => x.shape())
    }

    /// Prefetches some rows, which are to be written and need not be there.
    pub(super) fn prefetch_rows(&mut self, rows: Range<usize>) {
        each_width!(self, TileMut(x) => x.prefetch_rows(rows));
    }

    /// Returns the address of `row` and the bytes from a row to the next, for prefetching.
    pub(super) fn place_of(&mut self, row: usize) -> (*const u8, usize) {
        each_width!(self, TileMut(x) => x.place_of(row))
    }

    /// Returns the rows before `row`, and the others.
    pub(super) fn split_rows(self, row: usize) -> (Self, Self) {
        match self {
            TileMut::F32(x) => both(x.split_rows(row), TileMut::F32),
            TileMut::Bf16(x) => both(x.split_rows(row), TileMut::Bf16),
            TileMut::F16(x) => both(x.split_rows(row), TileMut::F16),
        }
    }

    /// Returns the columns before `column`, and the others.
    pub(super) fn split_columns(self, column: usize) -> (Self, Self) {
        match self {
            TileMut::F32(x) => both(x.split_columns(column), TileMut::F32),
            TileMut::Bf16(x) => both(x.split_columns(column), TileMut::Bf16),
            TileMut::F16(x) => both(x.split_columns(column), TileMut::F16),
        }
    }

    /// Returns the tile at `rows` and `columns`.
    pub(super) fn at(&mut self, rows: Range<usize>, columns: Range<usize>) -> TileMut<'_> {
        each_width!(self, TileMut(x) as TileMut => x.at(rows, columns))
    }

    /// Calls `f` with a matrix to write sums to, whose columns are whole vectors of `width`: the
    /// tile itself if it is f32 and has such columns, otherwise `scratch`, which is then rounded to
    /// the tile.
    pub(super) fn overwrite(&mut self, scratch: &mut [f32], width: usize, f: impl FnOnce(Grid<'_, f32>)) {
        let (rows, columns) = self.shape();
        if let TileMut::F32(x) = self
            && columns.is_multiple_of(width)
        {
            return f(x.reborrow());
        }
        let stride = columns.next_multiple_of(width);
        f(Grid::new(scratch, rows, stride, stride));
        self.finish(Grid::new(scratch, rows, stride, stride), Addend::Zero);
    }

    /// Sets the tile to `addend` + `sums`, rounded once. `sums` has as many rows, and at least as
    /// many columns.
    pub(super) fn finish(&mut self, sums: Grid<'_, f32>, addend: Addend<Tile<'_>>) {
        if let Addend::Base(base) = addend {
            self.copy(base);
        }
        let adds = !matches!(addend, Addend::Zero);
        match self {
            TileMut::F32(x) => finish_f32(x.reborrow(), sums, adds),
            TileMut::Bf16(x) => finish(x.reborrow(), sums, adds, widen_bf16, narrow_bf16),
            TileMut::F16(x) => finish(x.reborrow(), sums, adds, widen_f16, narrow_f16),
        }
    }

    /// Copies `from`, which must not be a transpose, rounded to the tile's type.
    fn copy(&mut self, from: Tile<'_>) {
        match self {
            TileMut::F32(x) => copy(x.reborrow(), from, |to, from| to.copy_from_slice(from)),
            TileMut::Bf16(x) => copy(x.reborrow(), from, narrow_bf16),
            TileMut::F16(x) => copy(x.reborrow(), from, narrow_f16),
        }
    }
}

/// Elements that are widened at a time.
const CHUNK: usize = 32;

fn copy<T>(to: Grid<'_, T>, from: Tile<'_>, narrow: impl Fn(&mut [T], &[f32])) {
    let (source, stride) = from.stored();
    vectorized!(for (row, to) in to.into_rows().enumerate() {
        for (chunk, to) in to.chunks_mut(CHUNK).enumerate() {
            let at = row * stride + chunk * CHUNK;
            narrow(to, source.read(at..at + to.len(), &mut [0.0; CHUNK]));
        }
    });
}

fn finish_f32(to: Grid<'_, f32>, sums: Grid<'_, f32>, adds: bool) {
    vectorized!(for (to, sums) in to.into_rows().zip(sums.into_rows()) {
        if adds {
            to.iter_mut().zip(&*sums).for_each(|(to, sum)| *to += sum)
        } else {
            to.copy_from_slice(&sums[..to.len()])
        }
    });
}

fn finish<T>(
    to: Grid<'_, T>,
    sums: Grid<'_, f32>,
    adds: bool,
    widen: impl Fn(&mut [f32], &[T]),
    narrow: impl Fn(&mut [T], &[f32]),
) {
    vectorized!(for (to, sums) in to.into_rows().zip(sums.into_rows()) {
        if !adds {
            narrow(to, &sums[..to.len()]);
            continue;
        }
        for (to, sums) in to.chunks_mut(CHUNK).zip(sums.chunks(CHUNK)) {
            let mut wide = [0.0; CHUNK];
            let wide = &mut wide[..to.len()];
            widen(wide, to);
            for (x, sum) in wide.iter_mut().zip(sums) {
                *x += sum;
            }
            narrow(to, wide);
        }
    });
}
