//! The rate of multiply-additions in registers, which no product can exceed.

use super::lanes::{Lanes, Portable};
use super::registers::Instructions;
use std::hint::black_box;
use std::time::Instant;

#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2, Avx512};
#[cfg(target_arch = "x86_64")]
use super::registers::has_dot_products;
#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// Vectors whose multiply-additions do not wait for each other: enough to fill two pipes of latency
/// 4, and few enough to stay in registers.
const CHAINS: usize = 14;

impl Instructions {
    /// Returns the instructions for pairs of bf16 if this processor has them and they are faster
    /// than multiply-additions of f32 (on some processors they reach half that rate); else `None`.
    /// The first call takes about a millisecond.
    pub(super) fn pairs() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if has_dot_products() {
            static PAY: OnceLock<bool> = OnceLock::new();
            let rate = |instructions| fastest(instructions, 10, 2_000);
            let pay = || rate(Instructions::Avx512Pairs) > rate(Instructions::Avx512);
            return PAY.get_or_init(pay).then_some(Instructions::Avx512Pairs);
        }
        None
    }
}

/// Returns the GFLOP/s of multiply-additions on this thread, with the instructions that products of
/// two operands of bf16, or of other types, use: the maximum of `attempts` attempts of about a
/// millisecond.
pub(crate) fn multiply_add_rate(bf16: bool, attempts: usize) -> f64 {
    let pairs = if bf16 { Instructions::pairs() } else { None };
    fastest(pairs.unwrap_or_else(Instructions::widest), attempts, 100_000)
}

/// Returns the GFLOP/s of the fastest of `attempts` attempts of `length` steps.
fn fastest(instructions: Instructions, attempts: usize, length: usize) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        let step = multiply_adds(instructions, length);
        2.0 * (step * length) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..attempts).map(rate).fold(0.0, f64::max)
}

/// Makes `length` steps of a multiply-addition in each of [`CHAINS`] vectors; returns the
/// multiply-additions of a step.
fn multiply_adds(instructions: Instructions, length: usize) -> usize {
    // SAFETY: `instructions` are made by functions that ask the processor.
    unsafe {
        match instructions {
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512Pairs => 2 * avx512_pairs(length),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx512 => avx512(length),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => avx2(length),
            Instructions::Portable => chains::<Portable>(length),
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
