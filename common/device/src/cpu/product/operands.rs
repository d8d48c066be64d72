//! Both operands as the innermost loop reads them.

use super::pack::{Groups, pack, pack_rows, packed_row};
use super::register_tile::Start;
use super::registers::{Columns, Instructions, Products, Rows};
use super::unit::Unit;
use crate::cpu::grid::Grid;
use crate::cpu::operand::Floats;
use crate::cpu::tile::Tile;
use std::ops::Range;

/// A right operand, copied for the innermost loop.
pub(in crate::cpu) struct Panels<'a> {
    data: &'a [f32],
    groups: Groups,
}

impl<'a> Panels<'a> {
    /// Returns the f32 that a copy of `columns × depth` elements needs.
    pub(in crate::cpu) fn len(instructions: Instructions, columns: usize, depth: usize) -> usize {
        Groups::columns(columns, instructions.columns(), depth).len()
    }

    /// Copies `from` `[columns, depth]`, widened.
    pub(in crate::cpu) fn widened(instructions: Instructions, to: &'a mut [f32], from: Tile<'_>) -> Self {
        Panels::copy(instructions, to, from, Unit::Single)
    }

    pub(super) fn copy(instructions: Instructions, to: &'a mut [f32], from: Tile<'_>, unit: Unit) -> Self {
        let (columns, depth) = from.shape();
        let groups = Groups::columns(columns, instructions.columns(), unit.steps(depth));
        pack(bytemuck::cast_slice_mut(to), from, unit, groups);
        Panels { data: to, groups }
    }

    /// Returns each panel's columns, and its copy from step `first` on.
    pub(super) fn iter(&self, first: usize) -> impl Iterator<Item = (Range<usize>, Columns<'a>)> {
        let Groups { slot, stride, .. } = self.groups;
        let panels = self.groups.iter().zip(self.data.chunks(stride));
        panels.map(move |(columns, data)| (columns, Columns { data: &data[first * slot..], step: slot }))
    }

    /// Multiplies `a` with `steps` of the depth, for the first `columns` columns of a tile's sums, up
    /// to whole vectors.
    pub(in crate::cpu) fn add_products(
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
pub(in crate::cpu) fn widened_rows<'s>(scratch: &'s mut [f32], from: Tile<'s>) -> Rows<'s> {
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

/// A block of the left operand, as the innermost loop reads it.
pub(super) struct Left<'a> {
    rows: Rows<'a>,
    /// Bytes from a tile's rows to the next tile's, if they are copied tile by tile.
    tile: Option<usize>,
    pub(super) tiles: Groups,
    /// Steps of the part of the depth.
    pub(super) steps: usize,
}

impl<'a> Left<'a> {
    /// Prepares the block `a` for tiles of at most `rows` rows: in place, or copied to `scratch`.
    pub(super) fn new(scratch: &'a mut [f32], a: Tile<'a>, unit: Unit, rows: usize, in_place: bool) -> Self {
        let steps = unit.steps(a.shape().1);
        let tiles = Groups::rows(a.shape().0, rows, steps);
        if !a.is_transposed() {
            return Left { rows: rows_along(scratch, a, unit, in_place), tile: None, tiles, steps };
        }
        if in_place {
            let (source, stride) = a.stored();
            let rows = Rows { bytes: source.bytes(), row: source.size(), step: stride * source.size() };
            return Left { rows, tile: None, tiles, steps };
        }
        let units: &mut [u32] = bytemuck::cast_slice_mut(scratch);
        pack(units, a, unit, tiles);
        let (bytes, unit) = (bytemuck::cast_slice(units), size_of::<u32>());
        let rows = Rows { bytes, row: unit, step: tiles.slot * unit };
        Left { rows, tile: Some(tiles.stride * unit), tiles, steps }
    }

    /// True if rows lie along the depth.
    pub(super) fn along(&self) -> bool {
        self.rows.step == size_of::<u32>()
    }

    /// Returns the first row and step of the tile after number `tile`, the first after the last,
    /// and its rows.
    pub(super) fn after(&self, tile: usize) -> (*const u8, Range<usize>) {
        let next = if tile + 1 < self.tiles.count() { tile + 1 } else { 0 };
        let rows = self.tiles.lanes(next);
        (self.tile(next, rows.start).bytes.as_ptr(), rows)
    }

    /// Returns the rows of tile number `tile`, the first of which is `row`.
    pub(super) fn tile(&self, tile: usize, row: usize) -> Rows<'_> {
        match self.tile {
            Some(distance) => Rows { bytes: &self.rows.bytes[tile * distance..], ..self.rows },
            None => self.rows.starting_at(row),
        }
    }
}
