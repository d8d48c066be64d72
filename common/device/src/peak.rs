//! Upper bounds against which speeds are reported: a large matrix product's, and the processor's.

use crate::cpu::multiply_add_rate;
use crate::{Class, DType, Device, Ledger, Matrix, Result, Write};
use events::Emitter;
use std::time::Instant;

/// Side of the square matrices.
const SIDE: usize = 1536;

/// Number of products, of which the fastest counts.
const ATTEMPTS: usize = 8;

/// Returns the GFLOP/s of this crate's f32 matrix product on large squares with `threads` threads:
/// the fastest of a few, in about a third of a second.
///
/// # Errors
/// The kernel's errors. On the CPU there are none.
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

/// Returns the GFLOP/s of multiply-additions in registers with `threads` threads: the processor's
/// peak for products of `dtype`, without memory and other instructions. It is the fastest of many
/// short attempts, in about a fifth of a second. If the system starts fewer threads, the result
/// is their peak. Kernels then have no more threads either.
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
    let thread = || multiply_add_rate(dtype == DType::Bf16, attempts);
    std::thread::scope(|scope| {
        let start = |_| std::thread::Builder::new().spawn_scoped(scope, thread).ok();
        let workers: Vec<_> = (1..threads).filter_map(start).collect();
        let own = thread();
        own + workers.into_iter().filter_map(|worker| worker.join().ok()).sum::<f64>()
    })
}
