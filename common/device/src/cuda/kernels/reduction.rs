//! Launches of `reduction.cu`: parts by many blocks, then one block for the result. Exact, so that
//! neither cuts nor order matter: the CPU's bits.

use super::table::{MAX_MAGNITUDE, MAX_OF_PARTS, SUM_OF_PARTS, SUM_OF_SQUARES, of_type};
use super::{Argument, CHUNK, Kernel, Launcher, Operand, THREADS, launch_blocks};
use crate::Result;

/// Maximum number of parts of a reduction.
const PARTS: usize = 1024;

/// `result` (u32) = the bits of the largest magnitude in `x`; NaN is above all, and 0 stands for no
/// elements.
///
/// # Errors
/// If `x` holds no floats; the launcher's.
pub fn max_magnitude(l: &impl Launcher, result: u64, x: Operand, len: usize) -> Result<()> {
    let kernel = of_type(&MAX_MAGNITUDE, "x", x.dtype)?;
    reduce(l, [kernel, MAX_OF_PARTS], (result, 4), x.pointer, len, &[])
}

/// `result` (u128, low half first) = `Σ round((x · 2^−exponent)² · 2^48)`; see
/// [`crate::Kernels::sum_of_squares`].
///
/// # Errors
/// If `x` holds no floats; the launcher's.
pub fn sum_of_squares(l: &impl Launcher, result: u64, x: Operand, exponent: i32, len: usize) -> Result<()> {
    let kernel = of_type(&SUM_OF_SQUARES, "x", x.dtype)?;
    let scale = Argument::F64(2f64.powi(-exponent));
    reduce(l, [kernel, SUM_OF_PARTS], (result, 16), x.pointer, len, &[scale])
}

/// `parts` reduces `x` to one value of `size` bytes per block, `total` those to `result`.
fn reduce(
    l: &impl Launcher,
    [parts, total]: [Kernel; 2],
    (result, size): (u64, usize),
    x: u64,
    len: usize,
    more: &[Argument<'_>],
) -> Result<()> {
    let blocks = len.div_ceil(4 * CHUNK * THREADS).clamp(1, PARTS);
    let scratch = l.scratch(blocks * size)?;
    let arguments =
        [&[scratch, x].map(Argument::Pointer), [Argument::U64(len as u64)].as_slice(), more].concat();
    launch_blocks(l, parts, [blocks, 1], THREADS, &arguments)?;
    let arguments = [Argument::Pointer(result), Argument::Pointer(scratch), Argument::U32(blocks as u32)];
    launch_blocks(l, total, [1, 1], THREADS, &arguments)
}
