//! Both operands as the innermost loop reads them.

use super::pack::{Groups, pack, pack_rows, packed_row};
use super::register_tile::{Run, Source, Start, UNIT};
use super::registers::{Columns, Instructions, Products, Rows};
use super::unit::Unit;
use crate::cpu::grid::Grid;
use crate::cpu::operand::Floats;
use crate::cpu::tile::Tile;
use crate::cpu::workers::blocks;
use std::ops::Range;

/// A right operand, copied for the innermost loop.
pub(in crate::cpu) struct Panels<'a> {
    instructions: Instructions,
    data: &'a [f32],
    groups: Groups,
}

impl<'a> Panels<'a> {
    /// Returns the number of f32 that a copy of `columns × depth` elements needs.
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
        Panels { instructions, data: to, groups }
    }

    /// Returns each panel's columns, and its copy.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<usize>, Columns<'a>)> {
        let Groups { slot, stride, .. } = self.groups;
        let panels = self.groups.iter().zip(self.data.chunks(stride));
        panels.map(move |(columns, data)| (columns, Columns { data, step: slot }))
    }

    /// Multiplies `a` with `steps` of the depth, for the first `columns` columns of the sums, up to
    /// whole vectors.
    ///
    /// # Panics
    /// If there are fewer columns, steps or sums than asked for.
    pub(in crate::cpu) fn add_products(
        &self,
        mut sums: Grid<'_, f32>,
        start: Start,
        a: Rows<'_>,
        columns: usize,
        steps: Range<usize>,
    ) {
        let (rows, full) = (sums.shape().0, self.instructions.rows());
        let Groups { slot: panel, stride, .. } = self.groups;
        let padded = columns.next_multiple_of(self.instructions.width());
        let mut add = |run: Run, rows: Range<usize>, panels: Range<usize>| {
            let data = &self.data[panels.start * stride + steps.start * panel..];
            let (a, b) = (a.starting_at(rows.start), Columns { data, step: panel });
            let products = Products { start, run, a, b, steps: steps.len(), ahead: None };
            let sums = sums.at(rows, panels.start * panel..padded.min(panels.end * panel));
            products.add_to(self.instructions, sums);
        };
        // Several full tiles of rows make a run per panel. A single one, and the rows that are
        // left, make a run over all full panels and one for the last columns.
        let (tiles, count, full_panels) = (rows / full, columns.div_ceil(panel), columns / panel);
        let left = if tiles > 1 { tiles * full } else { 0 };
        if tiles > 1 {
            for number in 0..count {
                add(Run::below(tiles, full, full * a.row), 0..left, number..number + 1);
            }
        }
        for rows in blocks(left..rows, full) {
            if full_panels > 0 {
                add(Run::beside(full_panels, panel, stride), rows.clone(), 0..full_panels);
            }
            if full_panels < count {
                add(Run::ONE, rows, full_panels..count);
            }
        }
    }
}

/// Prepares a left operand `[rows, depth]`, which is stored along the depth: widened to `scratch`
/// if it is not f32.
pub(in crate::cpu) fn widened_rows<'s>(scratch: &'s mut [f32], from: Tile<'s>) -> Rows<'s> {
    if matches!(from.stored().0, Floats::F32(_)) {
        return stored_rows(from);
    }
    pack_rows(bytemuck::cast_slice_mut(scratch), from, Unit::Single);
    Rows { bytes: bytemuck::cast_slice(scratch), row: packed_row(from.shape().1) * UNIT, step: UNIT }
}

/// A block of the left operand, as the innermost loop reads it.
pub(super) struct Left<'a> {
    source: LeftSource<'a>,
    pub(super) tiles: Groups,
    /// Steps of the part of the depth.
    pub(super) steps: usize,
}

enum LeftSource<'a> {
    InPlace(Rows<'a>),
    /// Copied before any tile is computed, since neighbouring rows lie across all tiles.
    Across(&'a [u32]),
    /// Rows that lie along the depth. They are copied when the first product of their tile is
    /// computed, which then finds them in the nearest cache. So are those of `copied` tiles.
    Along {
        from: Tile<'a>,
        unit: Unit,
        to: &'a mut [u32],
        copied: usize,
    },
}

impl<'a> Left<'a> {
    /// Prepares the block `a` for tiles of at most `rows` rows: in place, or copied to `scratch`.
    pub(super) fn new(scratch: &'a mut [f32], a: Tile<'a>, unit: Unit, rows: usize, in_place: bool) -> Self {
        let steps = unit.steps(a.shape().1);
        let tiles = Groups::rows(a.shape().0, rows, steps);
        let to: &mut [u32] = bytemuck::cast_slice_mut(scratch);
        let source = match (in_place, a.is_transposed()) {
            (true, _) => LeftSource::InPlace(stored_rows(a)),
            (false, true) => {
                pack(to, a, unit, tiles);
                LeftSource::Across(to)
            }
            (false, false) => LeftSource::Along { from: a, unit, to, copied: 0 },
        };
        Left { source, tiles, steps }
    }

    /// True if rows lie along the depth.
    pub(super) fn along(&self) -> bool {
        match &self.source {
            LeftSource::InPlace(rows) => rows.step == UNIT,
            LeftSource::Across(_) => false,
            LeftSource::Along { .. } => true,
        }
    }

    /// Returns the number of tiles, from number `tile` on, that can be computed in one run: they
    /// have the same number of rows, which the loop reads in place, and another tile follows. A
    /// block's last tile is a run of its own.
    pub(super) fn run(&self, tile: usize) -> usize {
        match &self.source {
            LeftSource::Along { copied, .. } if tile >= *copied => 1,
            _ => (self.tiles.count() - 1 - tile).max(1),
        }
    }

    /// Returns the bytes from a tile's rows to the next one's.
    pub(super) fn tile_bytes(&self) -> usize {
        match &self.source {
            LeftSource::InPlace(rows) => self.tiles.size * rows.row,
            LeftSource::Across(_) => self.tiles.stride * UNIT,
            LeftSource::Along { .. } => self.tiles.size * packed_row(self.steps) * UNIT,
        }
    }

    /// Returns the rows of the tile after number `tile`, the first after the last, and where they
    /// are stored.
    pub(super) fn after(&self, tile: usize) -> (Range<usize>, Source) {
        let next = if tile + 1 < self.tiles.count() { tile + 1 } else { 0 };
        let lanes = self.tiles.lanes(next);
        let rows = match &self.source {
            LeftSource::Along { from, copied, .. } if next >= *copied => {
                stored_rows(*from).starting_at(lanes.start)
            }
            _ => self.stored_tile(next),
        };
        (lanes, Source { first: rows.bytes.as_ptr(), row: rows.row, tile: self.tile_bytes() })
    }

    /// Returns the rows of tile number `tile`. Callers take tiles in ascending order.
    pub(super) fn tile(&mut self, tile: usize) -> Rows<'_> {
        if let LeftSource::Along { from, unit, to, copied } = &mut self.source
            && tile >= *copied
        {
            let (rows, depth) = (self.tiles.lanes(tile), from.shape().1);
            pack_rows(&mut to[rows.start * packed_row(self.steps)..], from.at(rows, 0..depth), *unit);
            *copied = tile + 1;
        }
        self.stored_tile(tile)
    }

    fn stored_tile(&self, tile: usize) -> Rows<'_> {
        let first = self.tiles.lanes(tile).start;
        match &self.source {
            LeftSource::InPlace(rows) => rows.starting_at(first),
            LeftSource::Across(copy) => {
                let bytes = bytemuck::cast_slice(&copy[tile * self.tiles.stride..]);
                Rows { bytes, row: UNIT, step: self.tiles.slot * UNIT }
            }
            LeftSource::Along { to, .. } => {
                let row = packed_row(self.steps) * UNIT;
                Rows { bytes: bytemuck::cast_slice(to), row, step: UNIT }.starting_at(first)
            }
        }
    }
}

/// Returns the rows of `a` where they are. Across the depth they are f32.
fn stored_rows(a: Tile<'_>) -> Rows<'_> {
    let (source, stride) = a.stored();
    let (bytes, stored) = (source.bytes(), stride * source.size());
    let (row, step) = if a.is_transposed() { (UNIT, stored) } else { (stored, UNIT) };
    Rows { bytes, row, step }
}
