//! Launches of `elementwise.cu`: a thread handles 8 elements.

use super::table::{ADD, ByTypes, CONVERT, FILL, of_type, of_types};
use super::{Argument, CHUNK, Launcher, Operand, launch_each};
use crate::Result;

/// `out = value`, `len` elements.
///
/// # Errors
/// If `out` holds no floats; the launcher's.
pub fn fill(l: &impl Launcher, out: Operand, value: f32, len: usize) -> Result<()> {
    let kernel = of_type(&FILL, "out", out.dtype)?;
    let arguments = [out.into(), Argument::F32(value), Argument::U64(len as u64)];
    launch_each(l, kernel, len.div_ceil(CHUNK), &arguments)
}

/// `out += x`, `len` elements of any float types. The CPU's bits.
///
/// # Errors
/// If an operand holds no floats; the launcher's.
pub fn add(l: &impl Launcher, out: Operand, x: Operand, len: usize) -> Result<()> {
    launch_pairs(l, &ADD, out, x, len)
}

/// `out = x`, `len` elements, converted between any float types. The CPU's bits.
///
/// # Errors
/// If an operand holds no floats; the launcher's.
pub fn convert(l: &impl Launcher, out: Operand, x: Operand, len: usize) -> Result<()> {
    launch_pairs(l, &CONVERT, out, x, len)
}

/// Launches the kernel of `family` for the types of `out` and `x`, which have `len` elements.
fn launch_pairs(l: &impl Launcher, family: &ByTypes, out: Operand, x: Operand, len: usize) -> Result<()> {
    let kernel = of_types(family, ("out", out.dtype), ("x", x.dtype))?;
    let arguments = [out.into(), x.into(), Argument::U64(len as u64)];
    launch_each(l, kernel, len.div_ceil(CHUNK), &arguments)
}
