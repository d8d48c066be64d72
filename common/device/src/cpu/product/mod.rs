//! Products of matrices on one thread, with one skeleton for every width of float.
//!
//! Part by part of the depth, strips of the right operand and blocks of the left one are copied in
//! the order in which the innermost loop reads them, so that both stay in the middle cache. The
//! left one is read in place if it needs no conversion and its rows do not compete for cache lines;
//! across the depth, if it is also read few times. A tile of sums stays in registers while a part
//! of the depth passes by, then waits in memory for the next part. So an element's bits depend only
//! on its row, its column and the depth.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod coming;
mod cut;
mod flush;
mod lanes;
mod operands;
mod pack;
mod rates;
mod register_tile;
mod registers;
mod target;
mod unit;

pub(super) use operands::{Panels, widened_rows};
pub(super) use pack::packed_row;
pub(crate) use rates::multiply_add_rate;
pub(super) use register_tile::Start;
pub(super) use registers::{Instructions, Rows};

use super::Cpu;
use super::grid::Grid;
use super::operand::Floats;
use super::tile::{Tile, TileMut};
use super::workers::{blocks, pieces};
use crate::Result;
use crate::operations::{Addend, Rounding};
use coming::Coming;
use cut::Cut;
use flush::Flushed;
use operands::Left;
use register_tile::{Ahead, Run};
use registers::{Columns, Products};
use std::ops::Range;
use target::Target;
use unit::Unit;

/// Rows whose distance is a multiple of this many bytes compete for the same lines of the nearest
/// cache.
const ALIASES: usize = 2048;

/// The same for a left operand that is stored across the depth: every step reads another row, so
/// rows at half that distance already evict each other.
const ALIASES_ACROSS: usize = ALIASES / 2;

/// Maximum number of panels of the right operand for which a transposed left one is read in place:
/// a copy costs less than reading it more often.
const READS: usize = 8;

/// Computes `out = addend + a · b` on this thread. A sum is rounded once to `out`'s type. Two
/// operands of bf16 are multiplied as bf16, whatever `rounding` says.
///
/// # Errors
/// [`OutOfMemory`](crate::OutOfMemory) if the system gives no more.
pub(super) fn multiply(
    cpu: &Cpu,
    out: TileMut<'_>,
    addend: Addend<Tile<'_>>,
    a: Tile<'_>,
    b: Tile<'_>,
    rounding: Rounding,
) -> Result<()> {
    let bf16 = rounding == Rounding::Bf16 || (a.is_bf16() && b.is_bf16());
    let (instructions, unit) = Unit::fastest(bf16);
    Product { instructions, unit, a, b: b.transposed_if(true), addend }.compute(cpu, out)
}

/// A product of `a` `[rows, depth]` and `b` `[columns, depth]`.
struct Product<'a> {
    instructions: Instructions,
    unit: Unit,
    a: Tile<'a>,
    b: Tile<'a>,
    addend: Addend<Tile<'a>>,
}

impl Product<'_> {
    fn compute(&self, cpu: &Cpu, mut out: TileMut<'_>) -> Result<()> {
        let ((rows, depth), columns) = (self.a.shape(), self.b.shape().0);
        let cut = Cut::new(self);
        let mut scratch = cpu.scratch(cut.right + cut.left + cut.sums)?;
        let [right, left, sums] = scratch.parts([cut.right, cut.left, cut.sums]);
        let _flushed = (self.unit != Unit::Single).then(Flushed::begin);
        for columns in blocks(0..columns, cut.strip) {
            let mut parts = cut.parts(depth).peekable();
            while let Some(steps) = parts.next() {
                let next = parts.peek().cloned();
                let b = |steps| self.b.at(columns.clone(), steps);
                let (first, last) = (steps.start == 0, next.is_none());
                let mut part = Part {
                    first,
                    last,
                    addend: self.addend,
                    coming: [Coming::of(None), Coming::of(next.clone().map(b))],
                };
                let b = Panels::copy(self.instructions, right, b(steps.clone()), self.unit);
                for rows in pieces(rows, cut.block) {
                    part.addend = self.addend.map(|base| base.at(rows.clone(), columns.clone()));
                    part.coming[0] = Coming::of(self.left_after(&cut, &rows, &steps, next.clone()));
                    let waiting = if cut.waits { &mut sums[rows.start * cut.stride..] } else { &mut *sums };
                    let a = self.a.at(rows.clone(), steps.clone());
                    let mut a = Left::new(left, a, self.unit, self.instructions.rows(), self.in_place());
                    self.block(&cut, out.at(rows, columns.clone()), &mut part, &mut a, &b, waiting);
                }
            }
        }
        Ok(())
    }

    /// True if `a` is multiplied in place.
    fn in_place(&self) -> bool {
        let ((source, stride), across) = (self.a.stored(), self.a.is_transposed());
        let stored = match source {
            Floats::F32(_) => self.unit == Unit::Single,
            Floats::Bf16(_) => self.unit == Unit::Pair && !across && self.a.shape().1.is_multiple_of(2),
            Floats::F16(_) => false,
        };
        let (few, aliases) = if across {
            (self.b.shape().0 <= READS * self.instructions.columns(), ALIASES_ACROSS)
        } else {
            (true, ALIASES)
        };
        stored && few && !(stride * source.size()).is_multiple_of(aliases)
    }

    /// Returns the block that is read after the one of `rows` and `steps`: the next rows of these
    /// steps, or the first rows of the `next` steps. `None` after the last block.
    fn left_after(
        &self,
        cut: &Cut,
        rows: &Range<usize>,
        steps: &Range<usize>,
        next: Option<Range<usize>>,
    ) -> Option<Tile<'_>> {
        let all = self.a.shape().0;
        let of = |start: usize, steps| pieces(all, cut.block).find(|rows| rows.start == start).zip(steps);
        let after = of(rows.end, Some(steps.clone())).or_else(|| of(0, next));
        after.map(|(rows, steps)| self.a.at(rows, steps))
    }

    /// Multiplies a block of `a` with a strip of `b`, for a part of the depth. `sums` are those
    /// that do not go to `out` at once.
    fn block(
        &self,
        cut: &Cut,
        mut out: TileMut<'_>,
        part: &mut Part<'_>,
        a: &mut Left<'_>,
        b: &Panels<'_>,
        sums: &mut [f32],
    ) {
        let ((rows, columns), width) = (out.shape(), self.instructions.width());
        let start = if part.first { Start::Zero } else { Start::Sums };
        let whole = columns.is_multiple_of(width);
        for (columns, b) in b.iter() {
            let width = columns.len().next_multiple_of(width);
            let sums = if cut.waits { &mut sums[columns.start..] } else { &mut *sums };
            let addend = part.addend.map(|base| base.at(0..rows, columns.clone()));
            match (out.at(0..rows, columns.clone()), addend) {
                (TileMut::F32(out), Addend::Zero) if whole => {
                    self.tiles(out, start, a, b, Then::Stay, &mut part.coming);
                }
                (out, addend) => {
                    // Sums that do not wait all take the same place, in the nearest cache.
                    let rows = if cut.waits { rows } else { rows.min(self.instructions.rows()) };
                    let sums = Grid::new(sums, rows, width, cut.stride);
                    let then = match part.last {
                        false => Then::Stay,
                        true if whole => self.finish(out, addend),
                        true => Then::Round { out, addend },
                    };
                    self.tiles(sums, start, a, b, then, &mut part.coming);
                }
            }
        }
    }

    /// Returns how sums of whole vectors go to `out`.
    fn finish<'o>(&self, out: TileMut<'o>, addend: Addend<Tile<'o>>) -> Then<'o> {
        let rounds = self.unit != Unit::Single && self.instructions.round();
        match Target::of(out, addend, rounds) {
            Ok(target) => Then::Finish(target),
            Err(out) => Then::Round { out, addend },
        }
    }

    /// Multiplies a block of `a` with a panel of `b`, tile by tile.
    fn tiles(
        &self,
        mut sums: Grid<'_, f32>,
        start: Start,
        a: &mut Left<'_>,
        b: Columns<'_>,
        mut then: Then<'_>,
        coming: &mut [Coming; 2],
    ) {
        let (steps, tile_bytes) = (a.steps, a.tile_bytes());
        let mut tile = 0;
        while tile < a.tiles.count() {
            let most = if matches!(then, Then::Round { .. }) { 1 } else { a.run(tile) };
            let (next_rows, next) = a.after(tile);
            let (next_sums, sums_row) = match &mut then {
                Then::Finish(target) if start == Start::Zero => target.place_of(next_rows.start),
                Then::Round { out, .. } if start == Start::Zero => out.place_of(next_rows.start),
                _ => sums.place_of(next_rows.start),
            };
            let coming =
                if a.along() { None } else { coming.iter_mut().find_map(|rows| rows.take(steps, most)) };
            let (tiles, source) = coming.unwrap_or((most, next));
            let ahead = Some(Ahead { rows: source, sums: next_sums, sums_row });
            let one = a.tiles.lanes(tile);
            let rows = one.start..a.tiles.lanes(tile + tiles - 1).end;
            let run = Run::below(tiles, one.len(), tile_bytes);
            let products = Products { start, run, a: a.tile(tile), b, steps, ahead };
            let stay = start == Start::Sums || matches!(then, Then::Stay);
            let place = if stay { rows.clone() } else { 0..one.len() };
            tile += tiles;
            match &mut then {
                Then::Stay => products.add_to(self.instructions, sums.rows(place)),
                Then::Finish(target) => {
                    products.finish(self.instructions, sums.rows(place), target.rows(rows));
                }
                Then::Round { out, addend } => {
                    products.add_to(self.instructions, sums.rows(place.clone()));
                    let columns = 0..out.shape().1;
                    let addend = addend.map(|base| base.at(rows.clone(), columns.clone()));
                    out.at(rows, columns).finish(sums.rows(place), addend);
                }
            }
        }
    }
}

/// The destination of a tile's sums.
enum Then<'a> {
    /// The sums stay where they are: for the next part of the depth, or complete.
    Stay,
    /// The sums are complete, and are stored to their target from registers.
    Finish(Target<'a>),
    /// The sums are complete: `out` becomes `addend` plus the sums, rounded to its type.
    Round { out: TileMut<'a>, addend: Addend<Tile<'a>> },
}

/// A part of the depth.
struct Part<'a> {
    first: bool,
    last: bool,
    /// The addend of the last part's sums.
    addend: Addend<Tile<'a>>,
    /// The operands read after a block of the left operand, and after a strip of the right one.
    coming: [Coming; 2],
}

#[cfg(test)]
mod tests;
