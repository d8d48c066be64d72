//! Launches of `cross_entropy.cu`: a block per row.

use super::table::{CROSS_ENTROPY, of_type};
use super::{Argument, Launcher, Operand, launch_blocks, row_arguments, row_threads};
use crate::Result;
use crate::operations::CrossEntropy;

/// Maximum number of threads for a row of logits.
const ROW_THREADS: usize = 1024;

/// See [`CrossEntropy`]. The loss is NaN where a target is not below the width.
///
/// # Errors
/// If `logits` holds no floats; the launcher's.
pub fn cross_entropy(l: &impl Launcher, arguments: CrossEntropy<Operand, Operand>) -> Result<()> {
    let CrossEntropy { losses, logits, targets, gradient_scale, shape } = arguments;
    let kernel = of_type(&CROSS_ENTROPY, "logits", logits.dtype)?;
    let [_, width] = row_arguments(shape);
    let pointers = [losses, logits, targets].map(Argument::from);
    let arguments = [pointers.as_slice(), &[width, Argument::F32(gradient_scale)]].concat();
    launch_blocks(l, kernel, [shape.rows, 1], row_threads(shape.width, ROW_THREADS), &arguments)
}
