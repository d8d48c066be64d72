//! Upper bounds against which speeds are reported: the matrix-product library's own, and the
//! processor's.

use crate::{Class, DType, Device, Ledger, Matrix, Result, Write};
use events::Emitter;
use std::hint::black_box;
use std::time::Instant;

/// Side of the square matrices.
const SIDE: usize = 1536;

/// Products to choose the fastest of.
const ATTEMPTS: usize = 8;

/// GFLOP/s of this library's f32 matrix product on large squares with `threads` threads: the
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

/// Multiply-additions per chain and attempt.
const LENGTH: usize = 100_000;

/// GFLOP/s of f32 multiply-additions in registers with `threads` threads: the processor's peak,
/// without memory and other instructions. The fastest of many short attempts, in about a fifth of a
/// second.
pub fn multiply_add_peak(threads: usize) -> f64 {
    let fastest = || {
        let attempt = |_| {
            let start = Instant::now();
            let lanes = multiply_adds();
            2.0 * (lanes * CHAINS * LENGTH) as f64 / start.elapsed().as_secs_f64() / 1e9
        };
        (0..200).map(attempt).fold(0.0, f64::max)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(fastest)).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).sum()
    })
}

/// Runs [`LENGTH`] multiply-additions in each of [`CHAINS`] vectors; returns the lanes of a vector.
#[cfg(target_arch = "x86_64")]
fn multiply_adds() -> usize {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};

    #[target_feature(enable = "avx512f")]
    fn avx512() {
        let (factor, term) = (_mm512_set1_ps(FACTOR), _mm512_set1_ps(TERM));
        let mut chains = black_box([_mm512_set1_ps(1.0); CHAINS]);
        for _ in 0..LENGTH {
            for chain in &mut chains {
                *chain = _mm512_fmadd_ps(*chain, factor, term);
            }
        }
        black_box(chains);
    }

    #[target_feature(enable = "avx,fma")]
    fn avx2() {
        let (factor, term) = (_mm256_set1_ps(FACTOR), _mm256_set1_ps(TERM));
        let mut chains = black_box([_mm256_set1_ps(1.0); CHAINS]);
        for _ in 0..LENGTH {
            for chain in &mut chains {
                *chain = _mm256_fmadd_ps(*chain, factor, term);
            }
        }
        black_box(chains);
    }

    if std::arch::is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has just said that it has these instructions.
        unsafe { avx512() };
        return 16;
    }
    if std::arch::is_x86_feature_detected!("avx") && std::arch::is_x86_feature_detected!("fma") {
        // SAFETY: the CPU has just said that it has these instructions.
        unsafe { avx2() };
        return 8;
    }
    portable()
}

#[cfg(not(target_arch = "x86_64"))]
fn multiply_adds() -> usize {
    portable()
}

/// For CPUs without the instructions above: four lanes, which is one register of NEON.
fn portable() -> usize {
    let mut chains = black_box([[1.0_f32; 4]; CHAINS]);
    for _ in 0..LENGTH {
        for lane in chains.iter_mut().flatten() {
            *lane = lane.mul_add(FACTOR, TERM);
        }
    }
    black_box(chains);
    4
}
