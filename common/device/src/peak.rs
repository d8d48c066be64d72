//! Upper bounds against which speeds are reported: a large matrix product's, and the processor's.

use crate::{Class, DType, Device, Ledger, Matrix, Result, Write};
use events::Emitter;
use std::hint::black_box;
use std::time::Instant;

/// Side of the square matrices.
const SIDE: usize = 1536;

/// Products to choose the fastest of.
const ATTEMPTS: usize = 8;

/// GFLOP/s of this crate's f32 matrix product on large squares with `threads` threads: the
/// fastest of a few, in about a third of a second.
///
/// # Errors
/// Those of the kernel, of which there are none on the CPU.
pub fn matmul_peak(threads: usize) -> Result<f64> {
    let device = Device::cpu(Ledger::new(Emitter::silent(0), None), threads);
    let operand = |value| -> Result<_> {
        let mut buffer = device.allocate(Class::Workspace, DType::F32, SIDE * SIDE)?;
        device.kernels().fill(buffer.view_mut(), value)?;
        Ok(buffer)
    };
    let (a, b, mut out) = (operand(1.0)?, operand(1.0)?, operand(0.0)?);
    let mut fastest = f64::INFINITY;
    for _ in 0..ATTEMPTS {
        let out = Matrix::new(out.view_mut(), SIDE, SIDE);
        let (a, b) = (Matrix::new(a.view(), SIDE, SIDE), Matrix::new(b.view(), SIDE, SIDE));
        let start = Instant::now();
        device.kernels().matmul(out, a, b, Write::Replace)?;
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    Ok(2.0 * (SIDE as f64).powi(3) / fastest / 1e9)
}

/// Vectors whose multiply-additions do not wait for each other: enough to fill two pipes of latency
/// 4, and few enough to stay in registers.
const CHAINS: usize = 14;

/// `x · FACTOR + TERM` stays near 1.
const FACTOR: f32 = 0.999;
const TERM: f32 = 0.001;

/// Steps of an attempt.
const LENGTH: usize = 100_000;

/// GFLOP/s of multiply-additions in registers with `threads` threads: the processor's peak for
/// products of `dtype`, without memory and other instructions. The fastest of many short attempts,
/// in about a fifth of a second.
///
/// Products of bf16 use the faster of the dot product of bf16, if there is one, and
/// multiply-additions of f32; all others use the latter.
pub fn multiply_add_peak(threads: usize, dtype: DType) -> f64 {
    fastest_of(200, threads, dtype)
}

/// Returns [`multiply_add_peak`] of few attempts: in about ten milliseconds, and a few percent low
/// at worst.
pub fn multiply_add_estimate(threads: usize, dtype: DType) -> f64 {
    fastest_of(10, threads, dtype)
}

fn fastest_of(attempts: usize, threads: usize, dtype: DType) -> f64 {
    let thread = || match dtype {
        DType::Bf16 if pairs_pay() => fastest(dot_products, attempts, LENGTH),
        _ => fastest(multiply_adds, attempts, LENGTH),
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    })
}

/// True if the processor has a dot product of bf16 with which more can be multiplied than with
/// multiply-additions of f32. Takes about a millisecond.
pub(crate) fn pairs_pay() -> bool {
    const SHORT: usize = LENGTH / 50;
    has_dot_products() && fastest(dot_products, 10, SHORT) > fastest(multiply_adds, 10, SHORT)
}

/// GFLOP/s of the fastest of `attempts` of `work`, which makes `length` steps and returns the
/// multiply-additions of a step.
fn fastest(work: fn(usize) -> usize, attempts: usize, length: usize) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        let step = work(length);
        2.0 * (step * length) as f64 / start.elapsed().as_secs_f64() / 1e9
    };
    (0..attempts).map(rate).fold(0.0, f64::max)
}

/// True if the processor has a dot product of bf16.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_dot_products() -> bool {
    std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512bf16")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_dot_products() -> bool {
    false
}

/// Makes `length` steps of a dot product of pairs of bf16 in each of [`CHAINS`] vectors, if there
/// is one; returns the multiply-additions of a step.
#[cfg(target_arch = "x86_64")]
fn dot_products(length: usize) -> usize {
    use std::arch::x86_64::{__m512bh, _mm512_dpbf16_ps, _mm512_set1_ps};

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn avx512(length: usize) {
        // SAFETY: every 512 bits are a vector of bf16.
        let one = unsafe { std::mem::transmute::<[u16; 32], __m512bh>([0x3f80; 32]) };
        let mut chains = black_box([_mm512_set1_ps(1.0); CHAINS]);
        for _ in 0..length {
            for chain in &mut chains {
                *chain = _mm512_dpbf16_ps(*chain, one, one);
            }
        }
        black_box(chains);
    }

    if !has_dot_products() {
        return 0;
    }
    // SAFETY: the CPU has just said that it has these instructions.
    unsafe { avx512(length) };
    32 * CHAINS
}

#[cfg(not(target_arch = "x86_64"))]
fn dot_products(_: usize) -> usize {
    0
}

/// Makes `length` steps of a multiply-addition in each of [`CHAINS`] vectors; returns the
/// multiply-additions of a step.
#[cfg(target_arch = "x86_64")]
fn multiply_adds(length: usize) -> usize {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};

    #[target_feature(enable = "avx512f")]
    fn avx512(length: usize) {
        let (factor, term) = (_mm512_set1_ps(FACTOR), _mm512_set1_ps(TERM));
        let mut chains = black_box([_mm512_set1_ps(1.0); CHAINS]);
        for _ in 0..length {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, term);
            }
        }
        black_box(chains);
    }

    #[target_feature(enable = "avx,fma")]
    fn avx2(length: usize) {
        let (factor, term) = (_mm256_set1_ps(FACTOR), _mm256_set1_ps(TERM));
        let mut chains = black_box([_mm256_set1_ps(1.0); CHAINS]);
        for _ in 0..length {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, term);
            }
        }
        black_box(chains);
    }

    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has just said that it has these instructions.
        unsafe { avx512(length) };
        return 16 * CHAINS;
    }
    if std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has just said that it has these instructions.
        unsafe { avx2(length) };
        return 8 * CHAINS;
    }
    portable(length)
}

#[cfg(not(target_arch = "x86_64"))]
fn multiply_adds(length: usize) -> usize {
    portable(length)
}

/// For CPUs without the instructions above: four lanes, which is one register of NEON.
fn portable(length: usize) -> usize {
    let mut chains = black_box([[1.0_f32; 4]; CHAINS]);
    for _ in 0..length {
        for lane in chains.iter_mut().flatten() {
            *lane = lane.mul_add(FACTOR, TERM);
        }
    }
    black_box(chains);
    4 * CHAINS
}
