//! A tile of sums in registers, for vectors of any width.
//!
//! A sum is one chain of multiply-additions in ascending order, so its bits do not depend on the
//! tile that it is in, nor on the processor.

use super::lanes::Lanes;
use super::target::Target;
use crate::cpu::prefetch::prefetch_near;
use std::hint::black_box;

/// Steps of a tile for which its loop asks for a row of memory.
pub(super) const SOURCE_STEPS: usize = 64;

/// Vectors of columns of a tile, at most.
pub(super) const VECTORS: usize = 2;

/// Where a tile's sums begin.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cpu) enum Start {
    /// At 0.
    Zero,
    /// Where an earlier part of the depth has left them.
    Sums,
}

/// Where the next tile begins, for a full tile's loop to ask for. Addresses may be any.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// Its rows' first step, `row` bytes apart, if they lie along the depth; otherwise rows of
    /// memory, `row` bytes apart, one for every [`SOURCE_STEPS`].
    pub(super) a: *const u8,
    pub(super) row: usize,
    /// Its sums, or where they go, and the bytes from a row of them to the next.
    pub(super) sums: *const u8,
    pub(super) sums_row: usize,
}

/// A tile's operands, without their lengths.
pub(super) struct RegisterTile<'a> {
    pub(super) sums: *mut f32,
    pub(super) stride: usize,
    pub(super) start: Start,
    pub(super) to: Target<'a>,
    pub(super) a: *const u8,
    pub(super) a_row: usize,
    pub(super) a_step: usize,
    pub(super) b: *const f32,
    pub(super) steps: usize,
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(super) ahead: Ahead,
}

/// Distances of rows from the first one, so that few registers address half a tile's rows, each
/// without an addition that has to wait for the one before.
struct Offsets {
    one: usize,
    three: usize,
    five: usize,
}

impl Offsets {
    /// Rows that they reach.
    const ROWS: usize = 7;

    /// The compiler must not see that one is a multiple of another, or it would add after all.
    #[inline(always)]
    fn new(row: usize) -> Self {
        Offsets { one: black_box(row), three: black_box(3 * row), five: black_box(5 * row) }
    }

    #[inline(always)]
    fn of(&self, row: usize) -> usize {
        match row {
            3 => self.three,
            5 => self.five,
            6 => 2 * self.three,
            row => row * self.one,
        }
    }
}

impl RegisterTile<'_> {
    /// # Safety
    /// The processor has the instructions, and the operands hold `R` rows of `C` vectors.
    #[inline(always)]
    pub(super) unsafe fn run<L: Lanes, const R: usize, const C: usize>(&self) {
        // SAFETY: as this function's.
        unsafe {
            let mut sums = self.start_sums::<L, R, C>();
            if self.start == Start::Zero {
                self.prefetch_sums::<L, R, C>();
            }
            self.add::<L, R, C>(&mut sums);
            self.to.store::<L, R, C>(&sums);
        }
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

    /// Asks for the place of the sums.
    #[inline(always)]
    fn prefetch_sums<L: Lanes, const R: usize, const C: usize>(&self) {
        for row in 0..R {
            for vector in 0..C {
                prefetch_near(self.sums.wrapping_add(row * self.stride + vector * L::WIDTH).cast());
            }
        }
    }

    /// Adds the products of all steps.
    ///
    /// # Safety
    /// As [`RegisterTile::run`]'s.
    #[inline(always)]
    #[allow(clippy::needless_range_loop)]
    pub(super) unsafe fn add<L: Lanes, const R: usize, const C: usize>(
        &self,
        sums: &mut [[L::Vector; C]; R],
    ) {
        let offsets = Offsets::new(self.a_row);
        let (mut upper, mut b) = (self.a, self.b);
        let mut lower = upper.wrapping_add(Offsets::ROWS * self.a_row);
        for _ in 0..self.steps {
            // SAFETY: the addresses are of elements of the tile's.
            unsafe {
                let columns: [L::Vector; C] = std::array::from_fn(|vector| L::load(b.add(vector * L::WIDTH)));
                for row in 0..R {
                    let half = if row < Offsets::ROWS { upper } else { lower };
                    let factor = L::spread(half.add(offsets.of(row % Offsets::ROWS)));
                    for vector in 0..C {
                        sums[row][vector] = L::add_product(sums[row][vector], factor, columns[vector]);
                    }
                }
            }
            upper = upper.wrapping_add(self.a_step);
            lower = lower.wrapping_add(self.a_step);
            b = b.wrapping_add(VECTORS * L::WIDTH);
        }
    }
}
