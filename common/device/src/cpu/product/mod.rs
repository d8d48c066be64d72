//! Products of matrices on one thread, with one skeleton for every width of float.
//!
//! Part by part of the depth, strips of the right operand and blocks of the left one are copied in
//! the order in which the innermost loop reads them, so that both stay in the middle cache; the left
//! one is read in place where its rows lie along the depth. A tile of sums stays in registers while
//! a part of the depth passes by, then waits in memory for the next part. So an element's bits
//! depend on its row, its column and the depth alone.

mod flush;
mod lanes;
mod pack;
mod registers;
mod unit;

pub(super) use pack::{Groups, packed_row};
pub(super) use registers::{Columns, Instructions, Rows, Start, add_products};

use super::Cpu;
use super::grid::Grid;
use super::operand::Floats;
use super::tile::{Tile, TileMut};
use crate::Result;
use crate::shapes::Write;
use flush::Flushed;
use pack::{pack, pack_rows};
use std::ops::Range;
use unit::Unit;

/// Steps of the depth at a time: as many as a panel of the right operand has in the nearest cache.
const STEPS: usize = 256;

/// Units of a part of a strip of the right operand, at most: 1 MiB.
const STRIP: usize = 1 << 18;

/// Sums that wait, at most: 4 MiB.
const WAITING: usize = 1 << 20;

/// Units of a block of the left operand: half a MiB.
const BLOCK: usize = 1 << 17;

/// Tiles of a block, at least and at most.
const TILES: (usize, usize) = (4, 24);

/// Rows that are so many bytes apart compete for the same lines of the nearest cache.
const ALIASES: usize = 2048;

/// `out = a · b` or `out += a · b`, on this thread: each sum is rounded once more, to `out`'s type.
///
/// # Errors
/// [`OutOfMemory`](crate::OutOfMemory) if the system gives no more.
pub(super) fn multiply(cpu: &Cpu, out: TileMut<'_>, write: Write, a: Tile<'_>, b: Tile<'_>) -> Result<()> {
    let (instructions, unit) = Unit::fastest(a.is_bf16() && b.is_bf16());
    Product { instructions, unit, a, b: b.transposed_if(true) }.compute(cpu, out, write)
}

/// A right operand, copied for the innermost loop: `[columns, depth]`.
pub(super) struct Panels<'a> {
    data: &'a [f32],
    groups: Groups,
    width: usize,
}

impl<'a> Panels<'a> {
    /// f32 of a copy of `columns × depth` elements.
    pub(super) fn len(instructions: Instructions, columns: usize, depth: usize) -> usize {
        Groups::full(columns, instructions.columns(), depth).len()
    }

    /// Copies `from` `[columns, depth]`, widened.
    pub(super) fn copy(instructions: Instructions, to: &'a mut [f32], from: Tile<'_>) -> Self {
        let (columns, depth) = from.shape();
        let groups = Groups::full(columns, instructions.columns(), depth);
        pack(bytemuck::cast_slice_mut(to), from, Unit::Single, groups);
        Panels { data: to, groups, width: instructions.width() }
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
        let (slot, rows) = (self.groups.slot, sums.shape().0);
        for (panel, first) in (0..columns).step_by(slot).enumerate() {
            let width = (columns - first).min(slot).next_multiple_of(self.width);
            let data = &self.data[panel * self.groups.stride + steps.start * slot..];
            let sums = sums.at(0..rows, first..first + width);
            add_products(instructions, sums, start, a, Columns { data, step: slot }, steps.len());
        }
    }
}

/// A left operand `[rows, depth]`, widened to `scratch` if it is not f32.
pub(super) fn left_rows<'s>(scratch: &'s mut [f32], from: Tile<'s>) -> Rows<'s> {
    let (source, stride) = from.stored();
    let step = size_of::<f32>();
    if let Floats::F32(x) = source {
        return Rows { bytes: bytemuck::cast_slice(x), row: stride * step, step };
    }
    pack_rows(bytemuck::cast_slice_mut(scratch), from, Unit::Single);
    Rows { bytes: bytemuck::cast_slice(scratch), row: packed_row(from.shape().1) * step, step }
}

/// A product of `a` `[rows, depth]` and `b` `[columns, depth]`.
struct Product<'a> {
    instructions: Instructions,
    unit: Unit,
    a: Tile<'a>,
    b: Tile<'a>,
}

impl Product<'_> {
    fn compute(&self, cpu: &Cpu, mut out: TileMut<'_>, write: Write) -> Result<()> {
        let ((rows, depth), columns) = (self.a.shape(), self.b.shape().0);
        let cut = Cut::new(self, rows, columns);
        let lengths = [cut.panels(cut.strip, cut.steps).len(), cut.left, cut.sums];
        let mut scratch = cpu.scratch(lengths.iter().sum())?;
        let [right, left, sums] = scratch.parts(lengths);
        let _flushed = (self.unit != Unit::Single).then(Flushed::begin);
        for columns in (0..columns).step_by(cut.strip).map(|start| start..(start + cut.strip).min(columns)) {
            for part in cut.parts() {
                let panels = cut.panels(columns.len(), self.unit.steps(part.len()));
                let b = self.b.at(columns.clone(), part.clone());
                pack(bytemuck::cast_slice_mut(right), b, self.unit, panels);
                let ends = Ends { first: part.start == 0, last: part.end == depth, write };
                for rows in Groups::equal(rows, cut.block, 0).iter() {
                    let waiting = if cut.waits { &mut sums[rows.start * cut.stride..] } else { &mut *sums };
                    let a = self.left(left, self.a.at(rows.clone(), part.clone()));
                    let out = out.at(rows, columns.clone());
                    self.block(&cut, out, ends, &a, (right, panels), waiting);
                }
            }
        }
        Ok(())
    }

    /// True if `a` can be multiplied where it is.
    fn in_place(&self) -> bool {
        let (source, stride) = self.a.stored();
        let fits = match source {
            Floats::F32(_) => self.unit == Unit::Single,
            Floats::Bf16(_) => self.unit == Unit::Pair && self.a.shape().1.is_multiple_of(2),
            Floats::F16(_) => false,
        };
        fits && !self.a.is_transposed() && !(stride * source.size()).is_multiple_of(ALIASES)
    }

    /// Multiplies a block of `a` with a strip of `b`, for a part of the depth. `sums` are those that
    /// do not go to `out` at once.
    fn block(
        &self,
        cut: &Cut,
        mut out: TileMut<'_>,
        ends: Ends,
        a: &Left<'_>,
        (right, panels): (&[f32], Groups),
        sums: &mut [f32],
    ) {
        let (rows, columns) = out.shape();
        let start = if ends.first { Start::Zero } else { Start::Sums };
        let direct = ends.write == Write::Replace && columns.is_multiple_of(cut.least_columns);
        for (columns, data) in panels.iter().zip(right.chunks(panels.stride)) {
            let b = Columns { data, step: panels.slot };
            match out.at(0..rows, columns.clone()) {
                TileMut::F32(sums) if direct => self.tiles(sums, start, a, b),
                mut out => {
                    let sums = if cut.waits { &mut sums[columns.start..] } else { &mut *sums };
                    let width = columns.len().next_multiple_of(cut.least_columns);
                    self.tiles(Grid::new(sums, rows, width, cut.stride), start, a, b);
                    if ends.last {
                        out.finish(sums, cut.stride, ends.write);
                    }
                }
            }
        }
    }

    /// A block of `a`, for a part of the depth, ready to be multiplied.
    fn left<'s>(&self, scratch: &'s mut [f32], a: Tile<'s>) -> Left<'s> {
        let steps = self.unit.steps(a.shape().1);
        let tiles = Groups::equal(a.shape().0, self.instructions.rows(), steps);
        let unit = size_of::<u32>();
        if self.in_place() {
            let (source, stride) = a.stored();
            return Left {
                bytes: source.bytes(),
                row: stride * source.size(),
                step: unit,
                tile: None,
                tiles,
                steps,
            };
        }
        let units: &mut [u32] = bytemuck::cast_slice_mut(scratch);
        let (row, step, tile) = if a.is_transposed() {
            pack(units, a, self.unit, tiles);
            (unit, tiles.slot * unit, Some(tiles.stride * unit))
        } else {
            pack_rows(units, a, self.unit);
            (packed_row(steps) * unit, unit, None)
        };
        Left { bytes: bytemuck::cast_slice(units), row, step, tile, tiles, steps }
    }

    /// Multiplies a block of `a` with a panel of `b`.
    fn tiles(&self, mut sums: Grid<'_, f32>, start: Start, a: &Left<'_>, b: Columns<'_>) {
        for (tile, rows) in a.tiles.iter().enumerate() {
            let left = a.rows(tile, rows.start);
            add_products(self.instructions, sums.rows(rows), start, left, b, a.steps);
        }
    }
}

/// Where a part of the depth lies, and what the whole product does.
#[derive(Clone, Copy)]
struct Ends {
    first: bool,
    last: bool,
    write: Write,
}

/// Sizes of the pieces of a product.
struct Cut {
    instructions: Instructions,
    depth: usize,
    /// Depth of a part, at most, and its steps.
    part: usize,
    steps: usize,
    /// Rows of a block and columns of a strip, at most.
    block: usize,
    strip: usize,
    /// What a tile's columns are a multiple of.
    least_columns: usize,
    /// Units of a copy of a block.
    left: usize,
    /// True if sums wait for the next part of the depth.
    waits: bool,
    /// f32 of the sums that do not go to the output at once, and from one of their rows to the next.
    sums: usize,
    stride: usize,
}

impl Cut {
    fn new(product: &Product<'_>, rows: usize, columns: usize) -> Self {
        let Product { instructions, unit, a, .. } = *product;
        let (width, tile, depth) = (instructions.columns(), instructions.rows(), a.shape().1);
        let part = if unit == Unit::Pair { 2 * STEPS } else { STEPS };
        let (waits, steps) = (depth > part, unit.steps(part.min(depth)));
        let most = if waits { WAITING / rows } else { usize::MAX };
        let most = (STRIP / steps.max(1)).min(most).max(width);
        let strip = columns.div_ceil(columns.div_ceil(most)).next_multiple_of(width);
        let tiles = (BLOCK / steps.max(1) / tile).clamp(TILES.0, TILES.1);
        let block = rows.div_ceil(rows.div_ceil(tiles * tile));
        let left = match (product.in_place(), a.is_transposed()) {
            (true, _) => 0,
            (false, true) => Groups::equal(block, tile, steps).len(),
            (false, false) => block * packed_row(steps),
        };
        let (sums, stride) = if waits { (rows * strip, strip) } else { (block * width, width) };
        let least_columns = if unit == Unit::Pair { width } else { instructions.width() };
        Cut { instructions, depth, part, steps, block, strip, least_columns, left, waits, sums, stride }
    }

    /// Panels of a strip.
    fn panels(&self, columns: usize, steps: usize) -> Groups {
        Groups::full(columns, self.instructions.columns(), steps)
    }

    /// Parts of the depth, of even lengths but for the last.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> {
        let pairs = Groups::equal(self.depth.div_ceil(2), self.part / 2, 0);
        pairs.iter().map(|pairs| 2 * pairs.start..(2 * pairs.end).min(self.depth))
    }
}

/// A block of the left operand, as the innermost loop reads it. Distances are in bytes.
struct Left<'a> {
    bytes: &'a [u8],
    row: usize,
    step: usize,
    /// From a tile's rows to the next tile's, if they are copied tile by tile.
    tile: Option<usize>,
    tiles: Groups,
    /// Steps of the part of the depth.
    steps: usize,
}

impl Left<'_> {
    fn rows(&self, tile: usize, row: usize) -> Rows<'_> {
        let start = self.tile.map_or(row * self.row, |distance| tile * distance);
        Rows { bytes: &self.bytes[start..], row: self.row, step: self.step }
    }
}

#[cfg(test)]
mod tests;
