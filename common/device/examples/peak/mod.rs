//! The speed of a large matrix product, with which benchmarks compare others.

use device::{Class, DType, Device, DeviceError, Ledger, Matrix, Write};
use events::Emitter;
use std::time::Instant;

/// Side of the square matrices.
const SIDE: usize = 1536;

/// Products to choose the fastest of.
const ATTEMPTS: usize = 8;

/// GFLOP/s of the f32 matrix product on large squares with `threads` threads: the fastest of a few, in
/// about a third of a second.
///
/// # Errors
/// Those of the kernel, of which there are none on the CPU.
pub(crate) fn matmul_peak(threads: usize) -> Result<f64, DeviceError> {
    let device = Device::cpu(Ledger::new(Emitter::silent(0), None), threads);
    let operand = |value| -> Result<_, DeviceError> {
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
