//! Products of matrices on one thread, with one skeleton for every width of float.
//!
//! The right operand is copied strip by strip, so that a strip stays in the outer caches; a block
//! of the left one stays in the middle cache, and is read in place where its rows lie along the
//! depth. A tile of sums stays in registers while the depth passes by. Where the depth is cut, the
//! sums wait in memory and go on, so that an element's bits depend on its row, its column and the
//! depth alone.

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

/// Units of a strip of the right operand, at most: 4 MiB.
const STRIP: usize = 1 << 20;

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
        let lengths = [cut.panels(cut.strip).len(), cut.left, cut.block * cut.sums];
        let mut scratch = cpu.scratch(lengths.iter().sum())?;
        let [right, left, sums] = scratch.parts(lengths);
        let _flushed = (self.unit != Unit::Single).then(Flushed::begin);
        for columns in (0..columns).step_by(cut.strip).map(|start| start..(start + cut.strip).min(columns)) {
            let panels = cut.panels(columns.len());
            let b = self.b.at(columns.clone(), 0..depth);
            pack(bytemuck::cast_slice_mut(right), b, self.unit, panels);
            for rows in Groups::equal(rows, cut.block, 0).iter() {
                let a = self.a.at(rows.clone(), 0..depth);
                let out = out.at(rows, columns.clone());
                self.block(&cut, out, write, a, (right, panels), (left, sums));
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

    /// Multiplies a block of `a` with a strip of `b`, a part of the depth after the other.
    fn block(
        &self,
        cut: &Cut,
        mut out: TileMut<'_>,
        write: Write,
        a: Tile<'_>,
        (right, panels): (&[f32], Groups),
        (left, sums): (&mut [f32], &mut [f32]),
    ) {
        let ((rows, columns), parts) = (out.shape(), cut.parts());
        let direct = write == Write::Replace && columns.is_multiple_of(cut.least_columns);
        for (number, depth) in parts.clone().enumerate() {
            let start = if number == 0 { Start::Zero } else { Start::Sums };
            let last = depth.end == a.shape().1;
            let (first, steps) = (self.unit.steps(depth.start), self.unit.steps(depth.len()));
            let a = self.left(left, a.at(0..rows, depth), steps);
            for (panel, columns) in panels.iter().enumerate() {
                let data = &right[panel * panels.stride + first * panels.slot..];
                let b = Columns { data, step: panels.slot };
                match out.at(0..rows, columns.clone()) {
                    TileMut::F32(sums) if direct => self.tiles(sums, start, &a, b, steps),
                    mut out => {
                        let width = columns.len().next_multiple_of(cut.least_columns);
                        let at = if cut.sums == panels.slot { 0 } else { columns.start };
                        let waiting = Grid::new(&mut sums[at..], rows, width, cut.sums);
                        self.tiles(waiting, start, &a, b, steps);
                        if last {
                            out.finish(&sums[at..], cut.sums, write);
                        }
                    }
                }
            }
        }
    }

    /// A block of `a`, ready to be multiplied.
    fn left<'s>(&self, scratch: &'s mut [f32], a: Tile<'s>, steps: usize) -> Left<'s> {
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
        Left { bytes: bytemuck::cast_slice(units), row, step, tile, tiles }
    }

    /// Multiplies a block of `a` with a panel of `b`.
    fn tiles(&self, mut sums: Grid<'_, f32>, start: Start, a: &Left<'_>, b: Columns<'_>, steps: usize) {
        for (tile, rows) in a.tiles.iter().enumerate() {
            let a = a.rows(tile, rows.start);
            add_products(self.instructions, sums.rows(rows), start, a, b, steps);
        }
    }
}

/// Sizes of the pieces of a product.
struct Cut {
    instructions: Instructions,
    depth: usize,
    /// Depth of a part, at most.
    part: usize,
    /// Steps of the whole depth.
    steps: usize,
    /// Rows of a block and columns of a strip, at most.
    block: usize,
    strip: usize,
    /// Units of a copy of a block's part.
    left: usize,
    /// Columns of the sums that wait: a panel's, or a strip's if the depth has parts.
    sums: usize,
    /// What a tile's columns are a multiple of.
    least_columns: usize,
}

impl Cut {
    fn new(product: &Product<'_>, rows: usize, columns: usize) -> Self {
        let Product { instructions, unit, a, .. } = *product;
        let (width, tile, depth) = (instructions.columns(), instructions.rows(), a.shape().1);
        let per_step = if unit == Unit::Pair { 2 } else { 1 };
        let (steps, part) = (unit.steps(depth), STEPS * per_step);
        let strip =
            columns.div_ceil(columns.div_ceil((STRIP / steps.max(1)).max(width))).next_multiple_of(width);
        let sums = if depth <= part { width } else { strip };
        let part_steps = unit.steps(part.min(depth));
        let tiles = (BLOCK / part_steps.max(sums).max(1) / tile).clamp(TILES.0, TILES.1);
        let block = rows.div_ceil(rows.div_ceil(tiles * tile).max(1)).max(1);
        let left = match (product.in_place(), a.is_transposed()) {
            (true, _) => 0,
            (false, true) => Groups::equal(block, tile, part_steps).len(),
            (false, false) => block * packed_row(part_steps),
        };
        let least_columns = if unit == Unit::Pair { width } else { instructions.width() };
        Cut { instructions, depth, part, steps, block, strip, left, sums, least_columns }
    }

    /// Panels of a strip.
    fn panels(&self, columns: usize) -> Groups {
        Groups::full(columns, self.instructions.columns(), self.steps)
    }

    /// Parts of the depth, of even lengths but for the last.
    fn parts(&self) -> impl Iterator<Item = Range<usize>> + Clone {
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
}

impl Left<'_> {
    fn rows(&self, tile: usize, row: usize) -> Rows<'_> {
        let start = self.tile.map_or(row * self.row, |distance| tile * distance);
        Rows { bytes: &self.bytes[start..], row: self.row, step: self.step }
    }
}

#[cfg(test)]
mod tests;
