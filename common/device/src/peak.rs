//! Upper bounds against which speeds are reported: a large matrix product's, and the processor's.

use crate::cpu::multiply_adds;
use crate::{Class, DType, Device, Ledger, Matrix, Result, Write};
use events::Emitter;
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
    let of_pairs = dtype == DType::Bf16 && pairs_pay();
    let thread = || fastest(of_pairs, attempts, LENGTH);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(thread)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    })
}

/// True if the processor has a dot product of bf16 with which more can be multiplied than with
/// multiply-additions of f32. Takes about a millisecond.
pub(crate) fn pairs_pay() -> bool {
    const SHORT: usize = LENGTH / 50;
    has_dot_products() && fastest(true, 10, SHORT) > fastest(false, 10, SHORT)
}

/// GFLOP/s of the fastest of `attempts` of `length` steps; see [`multiply_adds`].
fn fastest(of_pairs: bool, attempts: usize, length: usize) -> f64 {
    let rate = |_| {
        let start = Instant::now();
        let step = multiply_adds(of_pairs, length);
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
pub(crate) fn has_dot_products() -> bool {
    false
}
