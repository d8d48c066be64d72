//! The memory to which a tile's sums are stored from registers.

use super::lanes::Lanes;
use crate::cpu::grid::Grid;
use crate::cpu::operand::Floats;
use crate::cpu::prefetch::{LINE, prefetch_near};
use crate::cpu::tile::{Tile, TileMut};
use crate::operations::Addend;
use half::bf16;
use std::marker::PhantomData;
use std::ops::Range;

/// Elements to write, and those to which sums are added. Copies stand for the same elements, and
/// one of them is written at a time.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    rounds: bool,
    shape: (usize, usize),
    first: *mut u8,
    /// Bytes from a row to the next.
    row: usize,
    base: Option<(*const u8, usize)>,
    elements: PhantomData<&'a mut [u8]>,
}

impl<'a> Target<'a> {
    /// Returns `out`, to which sums are added as to `addend`, which has its shape; or `out` again,
    /// if they are not both f32 or, if sums may be rounded, both bf16.
    pub(super) fn of(out: TileMut<'a>, addend: Addend<Tile<'a>>, rounds: bool) -> Result<Self, TileMut<'a>> {
        use Addend::{Base, Out, Zero};
        let addend = addend.map(|base| base.stored());
        match (out, addend) {
            (TileMut::F32(out), Zero | Out | Base((Floats::F32(_), _))) => Ok(Target::new(out, addend)),
            (TileMut::Bf16(out), Zero | Out | Base((Floats::Bf16(_), _))) if rounds => {
                Ok(Target { rounds, ..Target::new(out, addend) })
            }
            (out, _) => Err(out),
        }
    }

    /// Returns `sums`, which are overwritten.
    #[inline(always)]
    pub(super) fn overwrite(sums: Grid<'a, f32>) -> Self {
        Target::new(sums, Addend::Zero)
    }

    #[inline(always)]
    fn new<T>(mut out: Grid<'a, T>, addend: Addend<(Floats<'a>, usize)>) -> Self {
        let ((rows, columns), (first, stride)) = (out.shape(), out.stored());
        let (first, row) = (first.cast::<u8>(), stride * size_of::<T>());
        let base = match addend {
            Addend::Zero => None,
            Addend::Out => Some((first.cast_const(), row)),
            Addend::Base((base, stride)) => {
                let (bytes, row) = (base.bytes(), stride * size_of::<T>());
                assert!((rows - 1) * row + columns * size_of::<T>() <= bytes.len(), "what sums are added to");
                Some((bytes.as_ptr(), row))
            }
        };
        Target { rounds: false, shape: (rows, columns), first, row, base, elements: PhantomData }
    }

    pub(super) fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// Returns some rows.
    ///
    /// # Panics
    /// If they are not all there.
    #[inline(always)]
    pub(super) fn rows(&mut self, rows: Range<usize>) -> Target<'_> {
        assert!(rows.start <= rows.end && rows.end <= self.shape.0, "{rows:?} of {} rows", self.shape.0);
        Target { shape: (rows.len(), self.shape.1), ..self.starting_at(rows.start, 0) }
    }

    /// Returns the part from `row` and `column` on.
    #[inline(always)]
    pub(super) fn starting_at(self, row: usize, column: usize) -> Self {
        let columns = column * if self.rounds { size_of::<bf16>() } else { size_of::<f32>() };
        let at = |stride: usize| row * stride + columns;
        Target {
            first: self.first.wrapping_add(at(self.row)),
            base: self.base.map(|(first, stride)| (first.wrapping_add(at(stride)), stride)),
            ..self
        }
    }

    /// Returns the address of `row` and the bytes from a row to the next, for prefetching.
    #[inline(always)]
    pub(super) fn place_of(&self, row: usize) -> (*const u8, usize) {
        (self.first.wrapping_add(row * self.row), self.row)
    }

    /// Prefetches what a tile's sums are added to at its end, unless that is the output and the
    /// tile before has `prefetched` it.
    #[inline(always)]
    pub(super) fn prefetch_base<L: Lanes, const R: usize, const C: usize>(&self, prefetched: bool) {
        let Some((first, stride)) = self.base else { return };
        if prefetched && first == self.first.cast_const() {
            return;
        }
        for row in 0..R {
            for at in (0..C * size_of::<L::Vector>()).step_by(LINE) {
                prefetch_near(first.wrapping_add(row * stride + at));
            }
        }
    }

    /// Stores `sums`, or adds them to the target's elements.
    ///
    /// # Safety
    /// The processor has the instructions, and the target is a tile of these sums.
    #[inline(always)]
    pub(super) unsafe fn store<L: Lanes, const R: usize, const C: usize>(&self, sums: &[[L::Vector; C]; R]) {
        // SAFETY: as this function's.
        unsafe {
            match self.rounds {
                false => self.store_as::<L, false, R, C>(sums),
                true => self.store_as::<L, true, R, C>(sums),
            }
        }
    }

    #[inline(always)]
    // Iterators over the sums would keep them in memory instead of registers.
    #[allow(clippy::needless_range_loop)]
    unsafe fn store_as<L: Lanes, const BF16: bool, const R: usize, const C: usize>(
        &self,
        sums: &[[L::Vector; C]; R],
    ) {
        let size = if BF16 { size_of::<bf16>() } else { size_of::<f32>() };
        let at = |row: usize, vector: usize| row + vector * L::WIDTH * size;
        let to = |row: usize, vector: usize| self.first.wrapping_add(at(row * self.row, vector));
        // SAFETY: the addresses are of vectors of the target's, and of the addend's.
        unsafe {
            if let Some((base, base_row)) = self.base {
                for row in 0..R {
                    for vector in 0..C {
                        let base = load::<L, BF16>(base.wrapping_add(at(row * base_row, vector)));
                        store::<L, BF16>(to(row, vector), L::add(base, sums[row][vector]));
                    }
                }
            } else {
                for row in 0..R {
                    for vector in 0..C {
                        store::<L, BF16>(to(row, vector), sums[row][vector]);
                    }
                }
            }
        }
    }
}

/// Loads bf16 or f32.
///
/// # Safety
/// As of [`Lanes`].
#[inline(always)]
unsafe fn load<L: Lanes, const BF16: bool>(from: *const u8) -> L::Vector {
    // SAFETY: as this function's.
    unsafe { if BF16 { L::load_bf16(from.cast()) } else { L::load(from.cast()) } }
}

/// Stores bf16 or f32.
///
/// # Safety
/// As of [`Lanes`].
#[inline(always)]
unsafe fn store<L: Lanes, const BF16: bool>(to: *mut u8, vector: L::Vector) {
    // SAFETY: as this function's.
    unsafe { if BF16 { L::store_bf16(to.cast(), vector) } else { L::store(to.cast(), vector) } }
}
