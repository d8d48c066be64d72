//! The loop over a full tile of 512-bit vectors, in assembly: a compiler that unrolls it runs out
//! of registers.
//!
//! While a tile is computed, the next one is prefetched: a line of its rows at every step, and a
//! row of its sums every four steps. If they were all prefetched at once, this tile's own operands
//! would wait behind them.

use super::lanes::{Avx512, Lanes};
use super::register_tile::{
    Ahead, Offsets, RegisterTile, SOURCE_STEPS, Source, Start, UNIT, UNROLLED, VECTORS,
};
use std::arch::asm;

/// Rows of a full tile.
const ROWS: usize = Avx512::<false>::ROWS;

/// Steps of a cache line of a row that lies along the depth.
const LINE: usize = 16;

/// A row's part of a step: `from` is where its factor is, `low` and `high` are its sums.
macro_rules! row {
    ($multiply:literal, $from:expr, $low:literal, $high:literal) => {
        concat!(
            "vbroadcastss zmm30, dword ptr [",
            $from,
            "]\n",
            $multiply,
            " zmm",
            $low,
            ", zmm30, zmm28\n",
            $multiply,
            " zmm",
            $high,
            ", zmm30, zmm29\n",
        )
    };
}

/// A step of all rows, the addresses of which are given.
macro_rules! step {
    ($multiply:literal, $step:literal, [$($from:expr, $low:literal, $high:literal;)*]) => {
        concat!(
            "vmovups zmm28, zmmword ptr [{b} + 128*", $step, "]\n",
            "vmovups zmm29, zmmword ptr [{b} + 128*", $step, " + 64]\n",
            $(row!($multiply, $from, $low, $high),)*
        )
    };
}

/// A step of rows that lie along the depth: three pointers and two distances address them.
/// Prefetches a line of one of the next tile's rows.
macro_rules! along {
    ($multiply:literal, $step:literal) => {
        concat!(
            step!($multiply, $step, [
                concat!("{upper} + 4*", $step), 0, 1;
                concat!("{upper} + {row} + 4*", $step), 2, 3;
                concat!("{upper} + 2*{row} + 4*", $step), 4, 5;
                concat!("{upper} + {three} + 4*", $step), 6, 7;
                concat!("{upper} + 4*{row} + 4*", $step), 8, 9;
                concat!("{middle} + 4*", $step), 10, 11;
                concat!("{middle} + {row} + 4*", $step), 12, 13;
                concat!("{middle} + 2*{row} + 4*", $step), 14, 15;
                concat!("{middle} + {three} + 4*", $step), 16, 17;
                concat!("{middle} + 4*{row} + 4*", $step), 18, 19;
                concat!("{lower} + 4*", $step), 20, 21;
                concat!("{lower} + {row} + 4*", $step), 22, 23;
                concat!("{lower} + 2*{row} + 4*", $step), 24, 25;
                concat!("{lower} + {three} + 4*", $step), 26, 27;
            ]),
            "prefetcht0 byte ptr [{next}]\n",
            "add {next}, {next_row}\n",
        )
    };
}

/// A step whose rows are neighbours.
macro_rules! across {
    ($multiply:literal, $step:literal) => {
        concat!(
            step!($multiply, $step, [
                "{a}", 0, 1; "{a} + 4", 2, 3; "{a} + 8", 4, 5; "{a} + 12", 6, 7; "{a} + 16", 8, 9;
                "{a} + 20", 10, 11; "{a} + 24", 12, 13; "{a} + 28", 14, 15; "{a} + 32", 16, 17;
                "{a} + 36", 18, 19; "{a} + 40", 20, 21; "{a} + 44", 22, 23; "{a} + 48", 24, 25;
                "{a} + 52", 26, 27;
            ]),
            "add {a}, {step}\n",
        )
    };
}

/// Prefetches a row of the next tile's sums.
macro_rules! next_sums {
    () => {
        "prefetcht0 byte ptr [{sums}]\nprefetcht0 byte ptr [{sums} + 64]\nadd {sums}, {stride}\n"
    };
}

/// Runs assembly with a tile's sums in registers 0 to 27.
macro_rules! with_sums {
    ($all:expr, $text:expr, $($operands:tt)*) => {{
        let [[s0, s1], [s2, s3], [s4, s5], [s6, s7], [s8, s9], [s10, s11], [s12, s13], [s14, s15], [s16, s17],
            [s18, s19], [s20, s21], [s22, s23], [s24, s25], [s26, s27]] = $all;
        asm!(
            $text,
            $($operands)*
            inout("zmm0") *s0, inout("zmm1") *s1, inout("zmm2") *s2, inout("zmm3") *s3,
            inout("zmm4") *s4, inout("zmm5") *s5, inout("zmm6") *s6, inout("zmm7") *s7,
            inout("zmm8") *s8, inout("zmm9") *s9, inout("zmm10") *s10, inout("zmm11") *s11,
            inout("zmm12") *s12, inout("zmm13") *s13, inout("zmm14") *s14, inout("zmm15") *s15,
            inout("zmm16") *s16, inout("zmm17") *s17, inout("zmm18") *s18, inout("zmm19") *s19,
            inout("zmm20") *s20, inout("zmm21") *s21, inout("zmm22") *s22, inout("zmm23") *s23,
            inout("zmm24") *s24, inout("zmm25") *s25, inout("zmm26") *s26, inout("zmm27") *s27,
            out("zmm28") _, out("zmm29") _, out("zmm30") _,
            options(nostack, readonly),
        );
    }};
}

/// Defines the computation of full tiles with an instruction that multiplies and adds.
macro_rules! full_tiles {
    ($name:ident, $one:ident, $features:literal, $pairs:literal, $multiply:literal) => {
        impl RegisterTile<'_> {
            /// Computes full tiles.
            ///
            /// # Safety
            /// The processor has AVX-512 and the instruction, and the operands hold the tiles.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(&self) {
                let (mut tile, offsets) = (*self, Offsets::new(self.a_row));
                for _ in 0..self.run.tiles {
                    // SAFETY: as this function's.
                    unsafe { tile.$one(&offsets) };
                    tile = tile.next();
                }
            }

            /// Computes the first one.
            ///
            /// # Safety
            /// As of all.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn $one(&self, offsets: &Offsets) {
                let (mut a, mut b) = (self.a, self.b);
                let Ahead { rows, sums: mut next_sums, sums_row } = self.ahead;
                let Source { first: mut next, row: next_row, .. } = rows;
                // SAFETY: as this function's; lines are no more than all steps, and a prefetch
                // reads nothing.
                unsafe {
                    self.to.prefetch_base::<Avx512<$pairs>, ROWS, VECTORS>(self.start == Start::Zero);
                    let mut sums = self.start_sums::<Avx512<$pairs>, ROWS, VECTORS>();
                    let (mut rest, mut stride) = (self.steps / LINE, sums_row);
                    while rest > 0 {
                        let lines = rest.min(SOURCE_STEPS / LINE);
                        rest -= lines;
                        if self.a_step == UNIT {
                            with_sums!(
                                &mut sums,
                                concat!(
                                    "2:\n",
                                    "mov {runs:e}, 4\n",
                                    "3:\n",
                                    along!($multiply, 0),
                                    along!($multiply, 1),
                                    next_sums!(),
                                    along!($multiply, 2),
                                    along!($multiply, 3),
                                    "add {upper}, 16\nadd {middle}, 16\nadd {lower}, 16\nadd {b}, 512\n",
                                    "dec {runs:e}\njnz 3b\n",
                                    "add {next}, {jump}\n",
                                    "dec {lines}\njnz 2b\n",
                                ),
                                upper = inout(reg) a,
                                middle = inout(reg) a.wrapping_add(5 * self.a_row) => _,
                                lower = inout(reg) a.wrapping_add(10 * self.a_row) => _,
                                row = in(reg) self.a_row,
                                three = in(reg) 3 * self.a_row,
                                b = inout(reg) b,
                                next = inout(reg) next,
                                next_row = in(reg) next_row,
                                jump = in(reg) (LINE * UNIT).wrapping_sub(LINE * next_row),
                                sums = inout(reg) next_sums,
                                stride = in(reg) stride,
                                lines = inout(reg) lines => _,
                                runs = out(reg) _,
                            );
                        } else {
                            with_sums!(
                                &mut sums,
                                concat!(
                                    "2:\n",
                                    across!($multiply, 0),
                                    across!($multiply, 1),
                                    next_sums!(),
                                    across!($multiply, 2),
                                    across!($multiply, 3),
                                    "prefetcht1 byte ptr [{next}]\nadd {next}, 64\nadd {b}, 512\n",
                                    "dec {runs}\njnz 2b\n",
                                ),
                                a = inout(reg) a,
                                step = in(reg) self.a_step,
                                b = inout(reg) b,
                                sums = inout(reg) next_sums,
                                stride = in(reg) stride,
                                next = inout(reg) next => _,
                                runs = inout(reg) lines * (LINE / UNROLLED) => _,
                            );
                            next = next.wrapping_add(next_row);
                        }
                        // More than a tile's rows of sums are prefetched by now.
                        stride = 0;
                    }
                    let whole = self.steps / LINE * LINE;
                    self.add_from::<Avx512<$pairs>, ROWS, VECTORS>(whole, &mut sums, offsets);
                    self.to.store::<Avx512<$pairs>, ROWS, VECTORS>(&sums);
                }
            }
        }
    };
}

full_tiles!(run_full, run_one, "avx512f", false, "vfmadd231ps");
full_tiles!(run_full_pairs, run_one_pairs, "avx512f,avx512bf16", true, "vdpbf16ps");
