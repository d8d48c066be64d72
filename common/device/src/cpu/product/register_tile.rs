//! A tile of sums in registers, for vectors of any width.
//!
//! A sum is one chain of multiply-additions in ascending order, so its bits do not depend on the
//! tile that it is in, nor on the processor.

use super::lanes::Lanes;
use super::target::Target;
use crate::cpu::prefetch::{LINE, prefetch_line, prefetch_near};
use std::hint::black_box;

/// Number of steps of a tile per row of memory that its loop prefetches.
pub(super) const SOURCE_STEPS: usize = 64;

/// Maximum number of vectors of columns of a tile.
pub(super) const VECTORS: usize = 2;

/// Where a tile's sums begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) enum Start {
    /// At 0.
    Zero,
    /// Where an earlier part of the depth has left them.
    Sums,
}

/// What is prefetched for the next tile: by every tile the sums, by a full one also the rows. Any
/// address is valid.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) rows: Source,
    /// The next tile's sums, or where they go, and the bytes from a row of them to the next.
    pub(super) sums: *const u8,
    pub(super) sums_row: usize,
}

/// The next tile's rows from their first step on, if they lie along the depth; otherwise rows of
/// memory, one for every [`SOURCE_STEPS`].
#[derive(Clone, Copy)]
pub(super) struct Source {
    pub(super) first: *const u8,
    /// Bytes from a row to the next.
    pub(super) row: usize,
    /// Number of bytes from the memory that one tile prefetches to the memory that the next one
    /// prefetches.
    pub(super) tile: usize,
}

/// Tiles of one shape that are computed one after the other.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) tiles: usize,
    /// From a tile to the next one: bytes of the left operand, f32 of the right one, rows and
    /// columns of the sums.
    pub(super) a: usize,
    pub(super) b: usize,
    pub(super) rows: usize,
    pub(super) columns: usize,
}

impl Run {
    /// A single tile.
    pub(super) const ONE: Self = Run { tiles: 1, a: 0, b: 0, rows: 0, columns: 0 };

    /// Returns tiles of `rows` rows each, one below the other, `a` bytes of the left operand apart.
    pub(super) fn below(tiles: usize, rows: usize, a: usize) -> Self {
        Run { tiles, a, rows, ..Run::ONE }
    }

    /// Returns tiles of `columns` columns each, side by side, `b` f32 of the right operand apart.
    pub(super) fn beside(tiles: usize, columns: usize, b: usize) -> Self {
        Run { tiles, b, columns, ..Run::ONE }
    }
}

/// The operands of a run of tiles, without their lengths. Addresses and the target are the first
/// tile's.
#[derive(Clone, Copy)]
pub(super) struct RegisterTile<'a> {
    pub(super) run: Run,
    /// f32 from a tile's sums to the next one's.
    pub(super) sums_tile: usize,
    pub(super) sums: *mut f32,
    pub(super) stride: usize,
    pub(super) start: Start,
    pub(super) to: Target<'a>,
    pub(super) a: *const u8,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    pub(super) b: *const f32,
    pub(super) steps: usize,
    pub(super) ahead: Ahead,
}

/// Distances of rows from the first one, so that few registers address half a tile's rows, each
/// without an addition that has to wait for the previous one.
pub(super) struct Offsets {
    one: usize,
    three: usize,
    five: usize,
    seven: usize,
}

impl Offsets {
    /// Rows that are addressed from one pointer. A second one addresses the others.
    const ROWS: usize = 7;

    /// Returns the distances. The compiler must not see that one is a multiple of another, or it
    /// would add them after all.
    #[inline(always)]
    pub(super) fn new(row: usize) -> Self {
        let [one, three, five] = [row, 3 * row, 5 * row].map(black_box);
        Offsets { one, three, five, seven: 7 * row }
    }

    /// Returns the address of a row.
    #[inline(always)]
    fn row(&self, first: *const u8, row: usize) -> *const u8 {
        let base = if row < Offsets::ROWS { first } else { first.wrapping_add(self.seven) };
        base.wrapping_add(match row % Offsets::ROWS {
            3 => self.three,
            5 => self.five,
            6 => 2 * self.three,
            row => row * self.one,
        })
    }
}

impl RegisterTile<'_> {
    /// Computes all tiles.
    ///
    /// # Safety
    /// The processor has the instructions, and the operands hold all tiles, each of `R` rows of `C`
    /// vectors. `a_step` or `a_row` is [`UNIT`].
    #[inline(always)]
    pub(super) unsafe fn run<L: Lanes, const R: usize, const C: usize>(&self) {
        let (mut tile, offsets) = (*self, Offsets::new(self.a_row));
        // SAFETY: as this function's.
        unsafe {
            for _ in 0..self.run.tiles {
                for row in 0..R {
                    prefetch_near(tile.ahead.sums.wrapping_add(row * tile.ahead.sums_row));
                }
                tile.one::<L, R, C>(&offsets);
                tile = tile.next();
            }
        }
    }

    /// Computes the first tile.
    ///
    /// # Safety
    /// As [`RegisterTile::run`]'s.
    #[inline(always)]
    unsafe fn one<L: Lanes, const R: usize, const C: usize>(&self, offsets: &Offsets) {
        // SAFETY: as this function's.
        unsafe {
            self.to.prefetch_base::<L, R, C>(self.start == Start::Zero);
            let mut sums = self.start_sums::<L, R, C>();
            self.add::<L, R, C>(&mut sums, offsets);
            self.to.store::<L, R, C>(&sums);
        }
    }

    /// Returns the run as seen from its next tile; the number of tiles stays.
    #[inline(always)]
    pub(super) fn next(self) -> Self {
        let Run { a, b, rows, columns, .. } = self.run;
        let Ahead { rows: source, sums, sums_row } = self.ahead;
        let source = Source { first: source.first.wrapping_add(source.tile), ..source };
        RegisterTile {
            a: self.a.wrapping_add(a),
            b: self.b.wrapping_add(b),
            sums: self.sums.wrapping_add(self.sums_tile),
            to: self.to.starting_at(rows, columns),
            ahead: Ahead { rows: source, sums: sums.wrapping_add(rows * sums_row), sums_row },
            ..self
        }
    }

    /// Returns the first tile from `row` on.
    pub(super) fn starting_at(self, row: usize) -> Self {
        let (a, sums) = (self.a.wrapping_add(row * self.a_row), self.sums.wrapping_add(row * self.stride));
        RegisterTile { run: Run::ONE, a, sums, to: self.to.starting_at(row, 0), ..self }
    }

    /// Returns the sums that the tile starts from.
    ///
    /// # Safety
    /// As [`RegisterTile::run`]'s.
    #[inline(always)]
    // Iterators over the sums would keep them in memory instead of registers, here and below.
    #[allow(clippy::needless_range_loop)]
    pub(super) unsafe fn start_sums<L: Lanes, const R: usize, const C: usize>(&self) -> [[L::Vector; C]; R] {
        // SAFETY: the addresses are of vectors of the tile's.
        unsafe {
            let sum_at = |row: usize, vector: usize| self.sums.add(row * self.stride + vector * L::WIDTH);
            let mut sums = [[L::zero(); C]; R];
            if self.start == Start::Sums {
                for row in 0..R {
                    for vector in 0..C {
                        sums[row][vector] = L::load(sum_at(row, vector));
                    }
                }
            }
            sums
        }
    }

    /// Adds the products of all steps. A full tile's loop also prefetches [`Ahead::rows`].
    ///
    /// # Safety
    /// As [`RegisterTile::run`]'s.
    #[inline(always)]
    unsafe fn add<L: Lanes, const R: usize, const C: usize>(
        &self,
        sums: &mut [[L::Vector; C]; R],
        offsets: &Offsets,
    ) {
        // SAFETY: as this function's; `a_step` says how rows are stored.
        unsafe {
            if const { R < L::ROWS || C < VECTORS } {
                self.add_from::<L, R, C>(0, sums, offsets);
            } else if self.a_step == UNIT {
                self.add_full::<AlongDepth, L, R, C>(sums, offsets);
            } else {
                self.add_full::<AcrossDepth, L, R, C>(sums, offsets);
            }
        }
    }

    /// Adds the products of all steps of a full tile.
    ///
    /// # Safety
    /// As [`RegisterTile::run`]'s, and rows are stored as `Y` says.
    #[inline(always)]
    unsafe fn add_full<Y: RowLayout, L: Lanes, const R: usize, const C: usize>(
        &self,
        sums: &mut [[L::Vector; C]; R],
        offsets: &Offsets,
    ) {
        let Source { first: mut next, row: next_row, .. } = self.ahead.rows;
        let (mut a, mut b) = (self.a, self.b);
        let mut left = self.steps / UNROLLED;
        while left > 0 {
            let few = left.min(Y::PREFETCHES);
            left -= few;
            for _ in 0..few {
                next = Y::prefetch(next, next_row);
                for _ in 0..UNROLLED {
                    // SAFETY: the addresses are of elements of the tile's.
                    unsafe {
                        step::<L, R, C>(
                            sums,
                            #[inline(always)]
                            |row| Y::row(a, row, offsets),
                            b,
                        );
                    }
                    a = a.wrapping_add(Y::STEP.unwrap_or(self.a_step));
                    b = b.wrapping_add(VECTORS * L::WIDTH);
                }
            }
            next = Y::jump(next, next_row);
        }
        // SAFETY: as this function's.
        unsafe { self.add_from::<L, R, C>(self.steps / UNROLLED * UNROLLED, sums, offsets) }
    }

    /// Adds the products of steps `first..self.steps`. Prefetches nothing.
    ///
    /// # Safety
    /// As [`RegisterTile::run`]'s.
    #[inline(always)]
    pub(super) unsafe fn add_from<L: Lanes, const R: usize, const C: usize>(
        &self,
        first: usize,
        sums: &mut [[L::Vector; C]; R],
        offsets: &Offsets,
    ) {
        let mut a = self.a.wrapping_add(first * self.a_step);
        let mut b = self.b.wrapping_add(first * VECTORS * L::WIDTH);
        for _ in first..self.steps {
            // SAFETY: the addresses are of elements of the tile's.
            unsafe {
                step::<L, R, C>(
                    sums,
                    #[inline(always)]
                    |row| offsets.row(a, row),
                    b,
                );
            }
            a = a.wrapping_add(self.a_step);
            b = b.wrapping_add(VECTORS * L::WIDTH);
        }
    }
}

/// Adds the products of a step: `address` returns where a row's factor is, and `b` are the columns.
///
/// # Safety
/// The processor has the instructions, and the addresses are of the step's elements.
#[inline(always)]
// Iterators over the sums would keep them in memory instead of registers.
#[allow(clippy::needless_range_loop)]
unsafe fn step<L: Lanes, const R: usize, const C: usize>(
    sums: &mut [[L::Vector; C]; R],
    address: impl Fn(usize) -> *const u8,
    b: *const f32,
) {
    // SAFETY: as this function's.
    unsafe {
        let columns: [L::Vector; C] = std::array::from_fn(|vector| L::load(b.add(vector * L::WIDTH)));
        for row in 0..R {
            let factor = L::spread(address(row));
            for vector in 0..C {
                sums[row][vector] = L::add_product(sums[row][vector], factor, columns[vector]);
            }
        }
    }
}

/// Steps that the loop writes out, one after the other.
pub(super) const UNROLLED: usize = 4;

/// Bytes of what a row has for a step: an f32 or two bf16.
pub(super) const UNIT: usize = size_of::<u32>();

/// How a full tile's rows lie in memory. Distances that the compiler knows become constants in the
/// instructions that load; otherwise, to compute addresses takes a third of the loop's
/// instructions.
trait RowLayout {
    /// Bytes from a step to the next, if they are known.
    const STEP: Option<usize>;

    /// Calls of [`RowLayout::prefetch`], one every [`UNROLLED`] steps, between two calls of
    /// [`RowLayout::jump`].
    const PREFETCHES: usize;

    /// Returns the address of a row.
    fn row(first: *const u8, row: usize, offsets: &Offsets) -> *const u8;

    /// Prefetches at `next`, and returns the address for the next call. `row` is the number of
    /// bytes from a row to the next.
    fn prefetch(next: *const u8, row: usize) -> *const u8;

    /// Returns the address at which the next calls begin.
    fn jump(next: *const u8, row: usize) -> *const u8;
}

/// A row's steps are neighbours. While the loop reads a line of each of its rows, it prefetches a
/// line of eight of the next tile's rows.
struct AlongDepth;

impl RowLayout for AlongDepth {
    const STEP: Option<usize> = Some(UNIT);
    const PREFETCHES: usize = LINE / UNIT / UNROLLED;

    #[inline(always)]
    fn row(first: *const u8, row: usize, offsets: &Offsets) -> *const u8 {
        offsets.row(first, row)
    }

    #[inline(always)]
    fn prefetch(next: *const u8, row: usize) -> *const u8 {
        prefetch_near(next);
        prefetch_near(next.wrapping_add(row));
        next.wrapping_add(2 * row)
    }

    #[inline(always)]
    fn jump(next: *const u8, row: usize) -> *const u8 {
        next.wrapping_add(LINE).wrapping_sub(2 * Self::PREFETCHES * row)
    }
}

/// A step's rows are neighbours. The loop prefetches rows of memory line by line, one for every
/// [`SOURCE_STEPS`].
struct AcrossDepth;

impl RowLayout for AcrossDepth {
    const STEP: Option<usize> = None;
    const PREFETCHES: usize = SOURCE_STEPS / UNROLLED;

    #[inline(always)]
    fn row(first: *const u8, row: usize, _: &Offsets) -> *const u8 {
        first.wrapping_add(row * UNIT)
    }

    #[inline(always)]
    fn prefetch(next: *const u8, _: usize) -> *const u8 {
        prefetch_line(next);
        next.wrapping_add(LINE)
    }

    #[inline(always)]
    fn jump(next: *const u8, row: usize) -> *const u8 {
        next.wrapping_add(row).wrapping_sub(Self::PREFETCHES * LINE)
    }
}
