//! The processor's vectors, as the innermost loop of a product uses them.

use crate::convert::{narrow_bf16, widen_bf16};
use half::bf16;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Maximum number of f32 of a vector.
const WIDEST: usize = 16;

/// Vectors of f32 lanes whose step multiplies and adds without rounding in between.
///
/// # Safety
/// The processor has the instructions, and a pointer's elements are there to read or to write.
pub(super) trait Lanes {
    /// A vector that consists only of f32.
    type Vector: Copy;

    /// Rows of a full tile: with them the sums and the operands of a step fill the registers.
    const ROWS: usize;

    /// f32 of a vector.
    const WIDTH: usize = size_of::<Self::Vector>() / size_of::<f32>();

    #[inline(always)]
    unsafe fn zero() -> Self::Vector {
        // SAFETY: a vector is floats alone.
        unsafe { std::mem::zeroed() }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::Vector {
        // SAFETY: as the trait's.
        unsafe { from.cast::<Self::Vector>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(to: *mut f32, vector: Self::Vector) {
        // SAFETY: as the trait's.
        unsafe { to.cast::<Self::Vector>().write_unaligned(vector) }
    }
    /// Returns the elements of bf16, widened.
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> Self::Vector {
        let mut wide = [0.0; WIDEST];
        // SAFETY: as the trait's.
        unsafe {
            widen_bf16(&mut wide, from_raw_parts(from, Self::WIDTH));
            Self::load(wide.as_ptr())
        }
    }
    /// Stores elements that are no denormal numbers, rounded to bf16.
    #[inline(always)]
    unsafe fn store_bf16(to: *mut bf16, vector: Self::Vector) {
        let mut wide = [0.0; WIDEST];
        // SAFETY: as the trait's.
        unsafe {
            Self::store(wide.as_mut_ptr(), vector);
            narrow_bf16(from_raw_parts_mut(to, Self::WIDTH), &wide);
        }
    }
    /// Returns the 32 bits at `from`, of any alignment, in every lane.
    unsafe fn spread(from: *const u8) -> Self::Vector;
    /// `a + b`.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// `sum + a · b`.
    unsafe fn add_product(sum: Self::Vector, a: Self::Vector, b: Self::Vector) -> Self::Vector;
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Lanes;
    use half::bf16;
    use std::arch::asm;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// Eight lanes.
    pub(in super::super) struct Avx2;

    impl Lanes for Avx2 {
        type Vector = __m256;
        const ROWS: usize = 6;

        #[inline(always)]
        unsafe fn spread(from: *const u8) -> __m256 {
            // SAFETY: as the trait's.
            unsafe { _mm256_set1_ps(from.cast::<f32>().read_unaligned()) }
        }

        #[inline(always)]
        unsafe fn add(a: __m256, b: __m256) -> __m256 {
            // SAFETY: as the trait's.
            unsafe { _mm256_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn add_product(sum: __m256, a: __m256, b: __m256) -> __m256 {
            // SAFETY: as the trait's.
            unsafe { _mm256_fmadd_ps(a, b, sum) }
        }
    }

    /// Rounds to bf16. In assembly, since its callers are compiled for processors without the
    /// instruction, too.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn rounded_to_bf16(vector: __m512) -> __m256i {
        let rounded;
        // SAFETY: the processor has the instruction, by the contract of the function.
        unsafe {
            asm!(
                "vcvtneps2bf16 {rounded}, {vector}",
                vector = in(zmm_reg) vector,
                rounded = lateout(ymm_reg) rounded,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        rounded
    }

    /// Sixteen lanes, whose operands are f32, or pairs of bf16.
    pub(in super::super) struct Avx512<const PAIRS: bool>;

    impl<const PAIRS: bool> Lanes for Avx512<PAIRS> {
        type Vector = __m512;
        const ROWS: usize = 14;

        #[inline(always)]
        unsafe fn load_bf16(from: *const bf16) -> __m512 {
            // SAFETY: as the trait's.
            unsafe {
                let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
            }
        }

        /// Stores bf16. The processor has the instruction that rounds to bf16.
        #[inline(always)]
        unsafe fn store_bf16(to: *mut bf16, vector: __m512) {
            // SAFETY: as the trait's.
            unsafe { _mm256_storeu_si256(to.cast(), rounded_to_bf16(vector)) };
        }

        #[inline(always)]
        unsafe fn spread(from: *const u8) -> __m512 {
            // SAFETY: as the trait's.
            unsafe { _mm512_set1_ps(from.cast::<f32>().read_unaligned()) }
        }

        #[inline(always)]
        unsafe fn add(a: __m512, b: __m512) -> __m512 {
            // SAFETY: as the trait's.
            unsafe { _mm512_add_ps(a, b) }
        }

        #[inline(always)]
        unsafe fn add_product(sum: __m512, a: __m512, b: __m512) -> __m512 {
            // SAFETY: as the trait's; every 512 bits are a vector of pairs.
            unsafe {
                if PAIRS {
                    let [a, b] = [a, b].map(|x| transmute::<__m512, __m512bh>(x));
                    _mm512_dpbf16_ps(sum, a, b)
                } else {
                    _mm512_fmadd_ps(a, b, sum)
                }
            }
        }
    }
}

/// Four lanes of any processor: on aarch64 a vector of NEON, whose multiply-additions the compiler
/// finds by itself.
pub(super) struct Portable;

impl Lanes for Portable {
    type Vector = [f32; 4];
    const ROWS: usize = 8;

    #[inline(always)]
    unsafe fn spread(from: *const u8) -> [f32; 4] {
        // SAFETY: as the trait's.
        [unsafe { from.cast::<f32>().read_unaligned() }; 4]
    }

    #[inline(always)]
    unsafe fn add(a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane] + b[lane])
    }

    // Without wider vectors, x86-64 calls a function for every lane: once, not in the loop of every
    // size of tile.
    #[cfg_attr(target_arch = "x86_64", inline(never))]
    #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
    unsafe fn add_product(sum: [f32; 4], a: [f32; 4], b: [f32; 4]) -> [f32; 4] {
        std::array::from_fn(|lane| a[lane].mul_add(b[lane], sum[lane]))
    }
}
