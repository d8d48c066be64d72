//! Multiply-additions in registers alone: what no product can exceed.

use super::lanes::{Lanes, Portable};
use super::registers::Instructions;
use crate::peak::has_dot_products;
use std::hint::black_box;

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};

/// Vectors whose multiply-additions do not wait for each other: enough to fill two pipes of latency
/// 4, and few enough to stay in registers.
const CHAINS: usize = 14;

/// Makes `length` steps of a multiply-addition in each of [`CHAINS`] vectors: of pairs of bf16, if
/// they are asked for and the processor has a dot product of them, or of f32. Returns the
/// multiply-additions of a step.
pub(crate) fn multiply_adds(of_pairs: bool, length: usize) -> usize {
    // SAFETY: the processor has just said that it has these instructions.
    unsafe {
        match (Instructions::widest(), of_pairs && has_dot_products()) {
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx512, true) => 2 * avx512_pairs(length),
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx512, false) => avx512(length),
            #[cfg(target_arch = "x86_64")]
            (Instructions::Avx2, _) => avx2(length),
            _ => chains::<Portable>(length),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bf16")]
fn avx512_pairs(length: usize) -> usize {
    // SAFETY: the processor has the instructions, by the contract of this function.
    unsafe { chains::<Avx512<true>>(length) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn avx512(length: usize) -> usize {
    // SAFETY: as above.
    unsafe { chains::<Avx512<false>>(length) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2(length: usize) -> usize {
    // SAFETY: as above.
    unsafe { chains::<Avx2>(length) }
}

/// Makes the steps; returns the f32 of all vectors.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn chains<L: Lanes>(length: usize) -> usize {
    let one = 1.0_f32.to_ne_bytes();
    // SAFETY: the processor has the instructions, and four bytes are there to read.
    unsafe {
        let one = black_box(L::spread(one.as_ptr()));
        let mut chains = black_box([L::zero(); CHAINS]);
        for _ in 0..length {
            for chain in &mut chains {
                *chain = L::add_product(*chain, one, one);
            }
        }
        black_box(chains);
    }
    L::WIDTH * CHAINS
}
