//! The innermost loop of every product: a tile of sums in registers, one step of the depth at a
//! time, with the widest instructions that the processor has.

use super::lanes::{Lanes, Portable};
use super::register_tile::{Ahead, RegisterTile, Run, Source, Start, UNIT, VECTORS};
use super::target::Target;
use crate::cpu::grid::Grid;

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
use std::arch::is_x86_feature_detected;

/// The instructions of the innermost loop, from the narrowest to the widest. They are returned by
/// functions that query the processor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Debug)]
pub(in crate::cpu) enum Instructions {
    /// Of any processor.
    Portable,
    /// 256 bits.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 512 bits.
    #[cfg(target_arch = "x86_64")]
    Avx512,
    /// 512 bits; pairs of bf16, which its dot product multiplies.
    #[cfg(target_arch = "x86_64")]
    Avx512Pairs,
}

impl Instructions {
    /// Returns the widest for f32 that this processor has.
    pub(in crate::cpu) fn widest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Instructions::Avx512;
            }
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                return Instructions::Avx2;
            }
        }
        Instructions::Portable
    }

    /// True if [`RegisterTile`] may round sums to bf16: not with 512 bits without their
    /// instruction.
    pub(super) fn round(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 | Instructions::Avx512Pairs => has_dot_products(),
            _ => true,
        }
    }

    /// Returns the instructions for pairs of bf16; `None` if this processor lacks them.
    #[cfg(test)]
    pub(super) fn pairs_if_any() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if has_dot_products() {
            return Some(Instructions::Avx512Pairs);
        }
        None
    }

    /// Returns all for f32 that this processor has.
    #[cfg(test)]
    pub(super) fn all() -> Vec<Self> {
        let all = [
            Instructions::Portable,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512,
        ];
        all.into_iter().filter(|one| *one <= Instructions::widest()).collect()
    }

    /// Returns the rows of a full tile.
    pub(in crate::cpu) const fn rows(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 | Instructions::Avx512Pairs => Avx512::<false>::ROWS,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => Avx2::ROWS,
            Instructions::Portable => Portable::ROWS,
        }
    }

    /// Returns the f32 of a vector.
    pub(in crate::cpu) const fn width(self) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 | Instructions::Avx512Pairs => Avx512::<false>::WIDTH,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => Avx2::WIDTH,
            Instructions::Portable => Portable::WIDTH,
        }
    }

    /// Returns the maximum number of columns of a tile.
    pub(in crate::cpu) const fn columns(self) -> usize {
        VECTORS * self.width()
    }
}

/// True if the processor has a dot product of bf16.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_dot_products() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
}

/// The operand whose rows are those of a tile. Distances are in bytes.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Rows<'a> {
    /// From the first row's first step.
    pub(in crate::cpu) bytes: &'a [u8],
    /// From a row to the next.
    pub(in crate::cpu) row: usize,
    /// From a step to the next.
    pub(in crate::cpu) step: usize,
}

/// The operand whose columns are those of a tile. Distances are in f32.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Columns<'a> {
    /// From the first step's first column.
    pub(in crate::cpu) data: &'a [f32],
    /// From a step to the next.
    pub(in crate::cpu) step: usize,
}

impl<'a> Rows<'a> {
    /// Returns the rows from `row` on. Rows of no steps may have no bytes.
    pub(in crate::cpu) fn starting_at(self, row: usize) -> Self {
        Rows { bytes: self.bytes.get(row * self.row..).unwrap_or_default(), ..self }
    }

    /// Returns the first `steps` of a row of f32, which lies along the depth.
    ///
    /// # Panics
    /// If they are not all there.
    #[inline(always)]
    pub(in crate::cpu) fn row(&self, row: usize, steps: usize) -> &'a [f32] {
        bytemuck::cast_slice(&self.bytes[row * self.row..][..steps * UNIT])
    }
}

/// The products of `steps` of the depth, for tiles of sums.
#[derive(Clone, Copy)]
pub(in crate::cpu) struct Products<'a> {
    pub(in crate::cpu) start: Start,
    pub(super) run: Run,
    pub(in crate::cpu) a: Rows<'a>,
    pub(in crate::cpu) b: Columns<'a>,
    pub(in crate::cpu) steps: usize,
    /// `None` if the next tile is near.
    pub(super) ahead: Option<Ahead>,
}

impl Products<'_> {
    /// Adds them to every sum. `sums` are whole vectors of columns.
    ///
    /// # Panics
    /// If an operand is too short, or `instructions` have no such tile.
    #[inline(always)]
    pub(in crate::cpu) fn add_to(self, instructions: Instructions, mut sums: Grid<'_, f32>) {
        let (rows, stored) = (sums.shape().0, sums.stored());
        self.compute(instructions, (rows, stored), Target::overwrite(sums));
    }

    /// Adds them to every sum; `to` becomes the sums, or these are added to it. `sums` have its
    /// shape; or, where they start at 0, the first tile's. Their contents are unspecified
    /// afterwards.
    ///
    /// # Panics
    /// As [`Products::add_to`].
    #[inline(always)]
    pub(super) fn finish(self, instructions: Instructions, mut sums: Grid<'_, f32>, to: Target<'_>) {
        let (rows, columns) = sums.shape();
        assert!(columns == to.shape().1, "sums have the output's columns");
        self.compute(instructions, (rows, sums.stored()), to);
    }

    #[inline(always)]
    fn compute(
        self,
        instructions: Instructions,
        (sum_rows, (first, stride)): (usize, (*mut f32, usize)),
        to: Target<'_>,
    ) {
        let Products { start, run, a, b, steps, ahead } = self;
        let (all, after) = (to.shape(), run.tiles - 1);
        let (rows, columns) = (all.0 - after * run.rows, all.1 - after * run.columns);
        let (full, width) = (instructions.rows(), instructions.width());
        let vectors = columns / width;
        let follow = (run.rows, run.columns) == (rows, 0) || (run.rows, run.columns) == (0, columns);
        let fits = (after == 0 || follow)
            && (1..=full).contains(&rows)
            && (sum_rows == all.0 || sum_rows == rows && start == Start::Zero)
            && (1..=VECTORS).contains(&vectors)
            && columns == vectors * width;
        let last = steps.saturating_sub(1);
        let reads = steps == 0
            || after * run.a + (rows - 1) * a.row + last * a.step + size_of::<f32>() <= a.bytes.len()
                && after * run.b + last * b.step + columns <= b.data.len();
        let packed = b.step == VECTORS * instructions.width();
        let stored = a.step == UNIT || a.row == UNIT;
        assert!(
            fits && reads && packed && stored,
            "{} tiles of {rows} rows, {columns} columns and {steps} steps",
            run.tiles
        );
        let near = Source { first: a.bytes.as_ptr(), row: 0, tile: 0 };
        let near = Ahead { rows: near, sums: first.cast(), sums_row: 0 };
        let tile = RegisterTile {
            run,
            sums_tile: if sum_rows == all.0 { run.rows * stride + run.columns } else { 0 },
            sums: first,
            stride,
            start,
            to,
            a: a.bytes.as_ptr(),
            a_row: a.row,
            a_step: a.step,
            b: b.data.as_ptr(),
            steps,
            ahead: ahead.unwrap_or(near),
        };
        // SAFETY: the processor has the instructions, and the operands and the sums hold all tiles,
        // as just checked.
        unsafe { tile.compute(instructions, (rows, vectors)) }
    }
}

/// Calls the loop for numbers of vectors and of rows that are known to the compiler.
macro_rules! run {
    ($tile:expr, $lanes:ty, $size:expr, [$($n:literal)*]) => {
        match $size {
            $(($n, 1) => $tile.run::<$lanes, $n, 1>(),)*
            $(($n, VECTORS) => $tile.run::<$lanes, $n, VECTORS>(),)*
            _ => unreachable!("the loop is compiled for these rows and vectors"),
        }
    };
}

impl RegisterTile<'_> {
    /// Computes all tiles of `(rows, vectors)`. The loops are compiled for one row and for even
    /// numbers of rows: an odd last row is a tile of its own.
    ///
    /// # Safety
    /// The processor has the instructions, and the operands hold the tiles.
    unsafe fn compute(&self, instructions: Instructions, (rows, vectors): (usize, usize)) {
        if rows == 1 || rows.is_multiple_of(2) {
            // SAFETY: as this function's.
            return unsafe { self.dispatch(instructions, (rows, vectors)) };
        }
        let (mut tile, last) = (*self, rows - 1);
        for _ in 0..self.run.tiles {
            let upper = tile.starting_at(0);
            // SAFETY: as this function's; both are parts of the tile.
            unsafe {
                upper.dispatch(instructions, (last, vectors));
                upper.starting_at(last).dispatch(instructions, (1, vectors));
            }
            tile = tile.next();
        }
    }

    /// # Safety
    /// As [`RegisterTile::compute`]'s; loops are compiled for as many rows.
    unsafe fn dispatch(&self, instructions: Instructions, size: (usize, usize)) {
        // SAFETY: as this function's.
        unsafe {
            match instructions {
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx512Pairs => self.avx512_pairs(size),
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx512 => self.avx512(size),
                #[cfg(target_arch = "x86_64")]
                Instructions::Avx2 => self.avx2(size),
                Instructions::Portable => run!(self, Portable, size, [1 2 4 6 8]),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bf16")]
    unsafe fn avx512_pairs(&self, size: (usize, usize)) {
        // SAFETY: as the caller's.
        unsafe {
            match size {
                (Avx512::<true>::ROWS, VECTORS) => self.run_full_pairs(),
                (Avx512::<true>::ROWS, 1) => self.run::<Avx512<true>, { Avx512::<true>::ROWS }, 1>(),
                _ => run!(self, Avx512<true>, size, [1 2 4 6 8 10 12]),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f")]
    unsafe fn avx512(&self, size: (usize, usize)) {
        // SAFETY: as the caller's.
        unsafe {
            match size {
                (Avx512::<false>::ROWS, VECTORS) => self.run_full(),
                (Avx512::<false>::ROWS, 1) => self.run::<Avx512<false>, { Avx512::<false>::ROWS }, 1>(),
                _ => run!(self, Avx512<false>, size, [1 2 4 6 8 10 12]),
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,fma")]
    unsafe fn avx2(&self, size: (usize, usize)) {
        // SAFETY: as the caller's.
        unsafe { run!(self, Avx2, size, [1 2 4 6]) }
    }
}
