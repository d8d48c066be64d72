//! Products of matrices on one thread, with one skeleton for every width of float.
//!
//! Part by part of the depth, strips of the right operand and blocks of the left one are copied in
//! the order in which the innermost loop reads them, so that both stay in the middle cache; the left
//! one is read in place where its rows lie along the depth. A tile of sums stays in registers while
//! a part of the depth passes by, then waits in memory for the next part. So an element's bits
//! depend on its row, its column and the depth alone.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod coming;
mod flush;
mod lanes;
mod pack;
mod register_tile;
mod registers;
mod unit;

pub(super) use pack::packed_row;
pub(super) use register_tile::Start;
pub(super) use registers::{Instructions, Rows};

use super::Cpu;
use super::grid::Grid;
use super::operand::Floats;
use super::tile::{Tile, TileMut};
use super::workers::pieces;
use crate::Result;
use crate::operations::Rounding;
use crate::shapes::Write;
use coming::Coming;
use flush::Flushed;
use pack::{Groups, pack, pack_rows};
use register_tile::Ahead;
use registers::{Base, Columns, Products};
use std::ops::Range;
use unit::Unit;

/// Steps of the depth at a time: as many as a panel of the right operand has in the nearest cache.
const STEPS: usize = 256;

/// The same where the left operand lies along the depth: its tiles reach the loop faster than the
/// panel does, and fewer parts move fewer sums.
const STEPS_ALONG: usize = 384;

/// Units of a part of a strip of the right operand, at most: 1 MiB.
const STRIP: usize = 1 << 18;

/// Sums that wait, at most: 4 MiB.
const WAITING: usize = 1 << 20;

/// Units of a block of the left operand: half a MiB.
const BLOCK: usize = 1 << 17;

/// Tiles of a block, at least and at most.
const TILES: (usize, usize) = (4, 24);

/// As many of a left operand that is copied step by step: what [`Coming`] asks for of a row.
const TILES_ACROSS: usize = 18;

/// Rows that are so many bytes apart compete for the same lines of the nearest cache.
const ALIASES: usize = 2048;

/// Panels of the right operand for which a transposed left one is read in place, at most: a copy
/// costs less than reading it more often.
const READS: usize = 8;

/// Whole vectors of every processor.
pub(super) const BASE_COLUMNS: usize = 32;

/// Computes `out = a · b` or `out += a · b` on this thread. A sum is rounded once to `out`'s type.
/// Two operands of bf16 are multiplied as bf16, whatever `rounding` says. With a `base`, `out +=`
/// becomes `out = base +`; both are f32 then, and columns are a multiple of [`BASE_COLUMNS`].
///
/// # Errors
/// [`OutOfMemory`](crate::OutOfMemory) if the system gives no more.
pub(super) fn multiply(
    cpu: &Cpu,
    out: TileMut<'_>,
    write: Write,
    a: Tile<'_>,
    b: Tile<'_>,
    rounding: Rounding,
    base: Option<Tile<'_>>,
) -> Result<()> {
    let bf16 = rounding == Rounding::Bf16 || (a.is_bf16() && b.is_bf16());
    let (instructions, unit) = Unit::fastest(bf16);
    Product { instructions, unit, a, b: b.transposed_if(true), write, base }.compute(cpu, out)
}

/// A right operand, copied for the innermost loop.
pub(super) struct Panels<'a> {
    data: &'a [f32],
    groups: Groups,
}

impl<'a> Panels<'a> {
    /// Returns the f32 that a copy of `columns × depth` elements needs.
    pub(super) fn len(instructions: Instructions, columns: usize, depth: usize) -> usize {
        Groups::columns(columns, instructions.columns(), depth).len()
    }

    /// Copies `from` `[columns, depth]`, widened.
    pub(super) fn widened(instructions: Instructions, to: &'a mut [f32], from: Tile<'_>) -> Self {
        Panels::copy(instructions, to, from, Unit::Single)
    }

    fn copy(instructions: Instructions, to: &'a mut [f32], from: Tile<'_>, unit: Unit) -> Self {
        let (columns, depth) = from.shape();
        let groups = Groups::columns(columns, instructions.columns(), unit.steps(depth));
        pack(bytemuck::cast_slice_mut(to), from, unit, groups);
        Panels { data: to, groups }
    }

    /// Returns each panel's columns, and its copy from step `first` on.
    fn iter(&self, first: usize) -> impl Iterator<Item = (Range<usize>, Columns<'a>)> {
        let Groups { slot, stride, .. } = self.groups;
        let panels = self.groups.iter().zip(self.data.chunks(stride));
        panels.map(move |(columns, data)| (columns, Columns { data: &data[first * slot..], step: slot }))
    }

    /// Multiplies `a` with `steps` of the depth, for the first `columns` columns of a tile's sums, up
    /// to whole vectors.
    pub(super) fn add_products(
        &self,
        instructions: Instructions,
        mut sums: Grid<'_, f32>,
        start: Start,
        a: Rows<'_>,
        columns: usize,
        steps: Range<usize>,
    ) {
        let rows = sums.shape().0;
        for (panel, b) in self.iter(steps.start).take_while(|(panel, _)| panel.start < columns) {
            let width = (panel.end.min(columns) - panel.start).next_multiple_of(instructions.width());
            let sums = sums.at(0..rows, panel.start..panel.start + width);
            let products = Products { start, a, b, steps: steps.len(), ahead: None };
            products.add_to(instructions, sums);
        }
    }
}

/// Prepares a left operand `[rows, depth]`: widened to `scratch` if it is not f32.
pub(super) fn widened_rows<'s>(scratch: &'s mut [f32], from: Tile<'s>) -> Rows<'s> {
    let in_place = matches!(from.stored().0, Floats::F32(_));
    rows_along(scratch, from, Unit::Single, in_place)
}

/// Prepares a left operand `[rows, depth]` that is stored along the depth: in place, or copied to
/// `scratch`.
fn rows_along<'s>(scratch: &'s mut [f32], from: Tile<'s>, unit: Unit, in_place: bool) -> Rows<'s> {
    let step = size_of::<u32>();
    if in_place {
        let (source, stride) = from.stored();
        return Rows { bytes: source.bytes(), row: stride * source.size(), step };
    }
    pack_rows(bytemuck::cast_slice_mut(scratch), from, unit);
    let row = packed_row(unit.steps(from.shape().1)) * step;
    Rows { bytes: bytemuck::cast_slice(scratch), row, step }
}

/// A product of `a` `[rows, depth]` and `b` `[columns, depth]`.
struct Product<'a> {
    instructions: Instructions,
    unit: Unit,
    a: Tile<'a>,
    b: Tile<'a>,
    write: Write,
    base: Option<Tile<'a>>,
}

impl Product<'_> {
    fn compute(&self, cpu: &Cpu, mut out: TileMut<'_>) -> Result<()> {
        let ((rows, depth), columns) = (self.a.shape(), self.b.shape().0);
        let cut = Cut::new(self);
        let mut scratch = cpu.scratch(cut.right + cut.left + cut.sums)?;
        let [right, left, sums] = scratch.parts([cut.right, cut.left, cut.sums]);
        let _flushed = (self.unit != Unit::Single).then(Flushed::begin);
        for columns in (0..columns).step_by(cut.strip).map(|start| start..(start + cut.strip).min(columns)) {
            let mut parts = cut.parts(depth).peekable();
            while let Some(steps) = parts.next() {
                let next = parts.peek().cloned();
                let b = |steps| self.b.at(columns.clone(), steps);
                let (first, last) = (steps.start == 0, next.is_none());
                let mut part = Part {
                    first,
                    last,
                    base: None,
                    coming: [Coming::of(None), Coming::of(next.clone().map(b))],
                };
                let b = Panels::copy(self.instructions, right, b(steps.clone()), self.unit);
                for rows in pieces(rows, cut.block) {
                    part.base = self.base.map(|base| base.at(rows.clone(), columns.clone()));
                    part.coming[0] = Coming::of(self.left_after(&cut, &rows, &steps, next.clone()));
                    let waiting = if cut.waits { &mut sums[rows.start * cut.stride..] } else { &mut *sums };
                    let a = self.left(left, self.a.at(rows.clone(), steps.clone()));
                    self.block(&cut, out.at(rows, columns.clone()), &mut part, &a, &b, waiting);
                }
            }
        }
        Ok(())
    }

    /// True if `a` is multiplied where it is.
    fn in_place(&self) -> bool {
        let (source, stride) = self.a.stored();
        if self.a.is_transposed() {
            let near =
                stride * source.size() < ALIASES && self.b.shape().0 <= READS * self.instructions.columns();
            return near && self.unit == Unit::Single && matches!(source, Floats::F32(_));
        }
        let fits = match source {
            Floats::F32(_) => self.unit == Unit::Single,
            Floats::Bf16(_) => self.unit == Unit::Pair && self.a.shape().1.is_multiple_of(2),
            Floats::F16(_) => false,
        };
        fits && !(stride * source.size()).is_multiple_of(ALIASES)
    }

    /// Returns the block that is copied after the one of `rows` and `steps`: of these steps, or the
    /// first one of the next ones. None if there is none, or blocks are read in place.
    fn left_after(
        &self,
        cut: &Cut,
        rows: &Range<usize>,
        steps: &Range<usize>,
        next: Option<Range<usize>>,
    ) -> Option<Tile<'_>> {
        let all = self.a.shape().0;
        let of = |start: usize, steps| pieces(all, cut.block).find(|rows| rows.start == start).zip(steps);
        let (rows, steps) = of(rows.end, Some(steps.clone())).or_else(|| of(0, next))?;
        (!self.in_place()).then(|| self.a.at(rows, steps))
    }

    /// Multiplies a block of `a` with a strip of `b`, for a part of the depth. `sums` are those that
    /// do not go to `out` at once.
    fn block(
        &self,
        cut: &Cut,
        mut out: TileMut<'_>,
        part: &mut Part<'_>,
        a: &Left<'_>,
        b: &Panels<'_>,
        sums: &mut [f32],
    ) {
        let ((rows, columns), width) = (out.shape(), self.instructions.width());
        let start = if part.first { Start::Zero } else { Start::Sums };
        let whole = columns.is_multiple_of(width);
        for (columns, b) in b.iter(0) {
            let width = columns.len().next_multiple_of(width);
            let sums = if cut.waits { &mut sums[columns.start..] } else { &mut *sums };
            match (out.at(0..rows, columns.clone()), self.write) {
                (TileMut::F32(out), Write::Replace) if whole => {
                    self.tiles(out, start, a, b, None, &mut part.coming)
                }
                (TileMut::F32(out), Write::Accumulate) if whole && part.last => {
                    let base = part.base.map(|base| base.at(0..rows, columns.clone()));
                    self.tiles(
                        Grid::new(sums, rows, width, cut.stride),
                        start,
                        a,
                        b,
                        Some(Finished { out, base }),
                        &mut part.coming,
                    );
                }
                (mut out, write) => {
                    debug_assert!(part.base.is_none(), "a base is added to whole vectors of f32");
                    self.tiles(Grid::new(sums, rows, width, cut.stride), start, a, b, None, &mut part.coming);
                    if part.last {
                        out.finish(sums, cut.stride, write);
                    }
                }
            }
        }
    }

    /// Prepares a block of `a` for a part of the depth.
    fn left<'s>(&self, scratch: &'s mut [f32], a: Tile<'s>) -> Left<'s> {
        let (rows, depth) = a.shape();
        let steps = self.unit.steps(depth);
        let tiles = Groups::rows(rows, self.instructions.rows(), steps);
        if !a.is_transposed() {
            let rows = rows_along(scratch, a, self.unit, self.in_place());
            return Left { rows, tile: None, tiles, steps };
        }
        if self.in_place() {
            let (source, stride) = a.stored();
            let rows = Rows { bytes: source.bytes(), row: source.size(), step: stride * source.size() };
            return Left { rows, tile: None, tiles, steps };
        }
        let units: &mut [u32] = bytemuck::cast_slice_mut(scratch);
        pack(units, a, self.unit, tiles);
        let (bytes, unit) = (bytemuck::cast_slice(units), size_of::<u32>());
        let rows = Rows { bytes, row: unit, step: tiles.slot * unit };
        Left { rows, tile: Some(tiles.stride * unit), tiles, steps }
    }

    /// Multiplies a block of `a` with a panel of `b`; then finishes the sums, if these are the last.
    fn tiles(
        &self,
        mut sums: Grid<'_, f32>,
        start: Start,
        a: &Left<'_>,
        b: Columns<'_>,
        mut finished: Option<Finished<'_>>,
        coming: &mut [Coming; 2],
    ) {
        for (tile, rows) in a.tiles.iter().enumerate() {
            let left = a.tile(tile, rows.start);
            let (next, next_rows) = a.after(tile);
            let (next_sums, sums_stride) = match &mut finished {
                Some(Finished { out, .. }) if start == Start::Zero => out.rows(next_rows).stored(),
                _ => sums.rows(next_rows).stored(),
            };
            let source = if a.along() { None } else { coming.iter_mut().find_map(|rows| rows.take(a.steps)) };
            let (next, row) = source.unwrap_or((next, 0));
            let ahead = Some(Ahead { a: next, row, sums: next_sums, sums_stride });
            let products = Products { start, a: left, b, steps: a.steps, ahead };
            match &mut finished {
                None => products.add_to(self.instructions, sums.rows(rows)),
                Some(Finished { out, base }) => {
                    let base = base.and_then(|base| base_at(base, rows.start));
                    products.finish(self.instructions, sums.rows(rows.clone()), out.rows(rows), base);
                }
            }
        }
    }
}

/// Where complete sums go, and what they are added to if not what is there.
struct Finished<'a> {
    out: Grid<'a, f32>,
    base: Option<Tile<'a>>,
}

/// Returns a base's elements from a row on.
fn base_at(base: Tile<'_>, row: usize) -> Option<Base<'_>> {
    let (rows, columns) = base.shape();
    match base.at(row..rows, 0..columns).stored() {
        (Floats::F32(data), stride) => Some(Base { data, stride }),
        _ => None,
    }
}

/// A part of the depth.
struct Part<'a> {
    first: bool,
    last: bool,
    /// What the last part's sums are added to, if not the output.
    base: Option<Tile<'a>>,
    /// What is copied after a block of the left operand, and after a strip of the right one.
    coming: [Coming; 2],
}

/// Sizes of the pieces of a product.
struct Cut {
    /// Depth of a part, at most.
    part: usize,
    /// Rows of a block and columns of a strip, at most.
    block: usize,
    strip: usize,
    /// Units of a copy of a strip's part and of a block's.
    right: usize,
    left: usize,
    /// True if sums wait for the next part of the depth.
    waits: bool,
    /// f32 of the sums that do not go to the output at once, and from one of their rows to the next.
    sums: usize,
    stride: usize,
}

impl Cut {
    fn new(product: &Product<'_>) -> Self {
        let Product { instructions, unit, a, b, .. } = *product;
        let ((rows, depth), columns) = (a.shape(), b.shape().0);
        let (width, tile) = (instructions.columns(), instructions.rows());
        let steps = if a.is_transposed() { STEPS } else { STEPS_ALONG };
        let part = if unit == Unit::Pair { 2 * steps } else { steps };
        let (waits, steps) = (depth > part, unit.steps(part.min(depth)));
        let most = if waits { WAITING / rows } else { usize::MAX };
        let most = (STRIP / steps.max(1)).min(most).max(width);
        let strip = columns.div_ceil(columns.div_ceil(most)).next_multiple_of(width);
        let most_tiles = if a.is_transposed() { TILES_ACROSS } else { TILES.1 };
        let tiles = (BLOCK / steps.max(1) / tile).clamp(TILES.0, most_tiles);
        let block = rows.min(tiles * tile);
        let left = match (product.in_place(), a.is_transposed()) {
            (true, _) => 0,
            (false, true) => Groups::rows(block, tile, steps).len(),
            (false, false) => block * packed_row(steps),
        };
        let (sums, stride) = if waits { (rows * strip, strip) } else { (block * width, width) };
        let right = Panels::len(instructions, strip, steps);
        Cut { part, block, strip, right, left, waits, sums, stride }
    }

    /// Cuts a depth into parts of even lengths; the last one may be odd.
    fn parts(&self, depth: usize) -> impl Iterator<Item = Range<usize>> {
        let pairs = pieces(depth.div_ceil(2), self.part / 2);
        pairs.map(move |pairs| 2 * pairs.start..(2 * pairs.end).min(depth))
    }
}

/// A block of the left operand, as the innermost loop reads it.
struct Left<'a> {
    rows: Rows<'a>,
    /// Bytes from a tile's rows to the next tile's, if they are copied tile by tile.
    tile: Option<usize>,
    tiles: Groups,
    /// Steps of the part of the depth.
    steps: usize,
}

impl Left<'_> {
    /// True if rows lie along the depth.
    fn along(&self) -> bool {
        self.rows.step == size_of::<u32>()
    }

    /// Returns the first row and step of the tile after number `tile`, the first after the last,
    /// and its rows.
    fn after(&self, tile: usize) -> (*const u8, Range<usize>) {
        let next = if tile + 1 < self.tiles.count() { tile + 1 } else { 0 };
        let rows = self.tiles.lanes(next);
        (self.tile(next, rows.start).bytes.as_ptr(), rows)
    }

    /// Returns the rows of tile number `tile`, the first of which is `row`.
    fn tile(&self, tile: usize, row: usize) -> Rows<'_> {
        match self.tile {
            Some(distance) => Rows { bytes: &self.rows.bytes[tile * distance..], ..self.rows },
            None => self.rows.starting_at(row),
        }
    }
}

#[cfg(test)]
mod tests;
