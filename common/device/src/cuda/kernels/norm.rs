//! Launches of `norm.cu`: a block per row, or per run of rows.

use super::table::{COLUMN_SUMS, RMS_NORM, RMS_NORM_BACKWARD, of_type, same_type};
use super::{
    Argument, CHUNK, Launch, Launcher, Operand, STATIC_SHARED, counts, launch_blocks, most_shared,
    row_threads,
};
use crate::operations::{RmsNorm, RmsNormBackward};
use crate::shapes::{GroupedRows, Write};
use crate::{DeviceError, Result};

/// Maximum number of threads for a row.
const ROW_THREADS: usize = 512;

/// Minimum number of rows that share one partial sum of the weight's gradient.
const ROWS_PER_PART: usize = 16;

/// Maximum number of partial sums of the weight's gradient: enough blocks to fill any GPU.
const PARTS: usize = 512;

/// Returns the places of the rows as kernel parameters.
fn places(shape: GroupedRows) -> [Argument<'static>; 3] {
    counts([shape.width, shape.group, shape.stride])
}

/// See [`RmsNorm`]; `out`, `x` and `weight` have one type.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn rms_norm(l: &impl Launcher, arguments: RmsNorm<Operand, Operand>) -> Result<()> {
    let RmsNorm { out, inverse_rms, x, weight, shape, eps } = arguments;
    let kernel = of_type(&RMS_NORM, "x", x.dtype)?;
    same_type(kernel.name, x, [("out", out), ("weight", weight)])?;
    let pointers = [out, inverse_rms, x, weight].map(Argument::from);
    let arguments = [pointers.as_slice(), &places(shape), &[Argument::F32(eps)]].concat();
    launch_blocks(l, kernel, [shape.rows, 1], row_threads(shape.width, ROW_THREADS), &arguments)
}

/// See [`RmsNormBackward`]; operands but `dweight` and `inverse_rms` have one type. Each block adds
/// up the weight's gradient over a run of rows; a second kernel adds the runs in order. Scratch: a
/// row of f32 per run.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn rms_norm_backward(l: &impl Launcher, arguments: RmsNormBackward<Operand, Operand>) -> Result<()> {
    let RmsNormBackward { dx, dweight, write, dout, x, weight, inverse_rms, shape } = arguments;
    let kernel = of_type(&RMS_NORM_BACKWARD, "x", x.dtype)?;
    let dout = dout.unwrap_or(dx);
    same_type(kernel.name, x, [("dx", dx), ("dout", dout), ("weight", weight)])?;
    let sums = of_type(&COLUMN_SUMS, "dweight", dweight.dtype)?;
    let rows_per_part = shape.rows.div_ceil(PARTS).max(ROWS_PER_PART);
    let parts = shape.rows.div_ceil(rows_per_part);
    let shared_bytes = shape.width.next_multiple_of(CHUNK) * 4;
    check_shared_memory(l.architecture(), shape.width, shared_bytes)?;
    let partial = l.scratch((parts * shape.width * 4).max(1))?;
    let pointers = [dx.pointer, partial, dout.pointer, x.pointer, weight.pointer, inverse_rms.pointer];
    let [rows, rows_per_part] = counts([shape.rows, rows_per_part]);
    let arguments =
        [&pointers.map(Argument::Pointer), [rows].as_slice(), &places(shape), &[rows_per_part]].concat();
    if parts * shape.width > 0 {
        l.launch(Launch {
            kernel,
            grid: [parts as u32, 1, 1],
            block: [row_threads(shape.width, ROW_THREADS) as u32, 1, 1],
            shared_bytes: shared_bytes as u32,
            arguments: &arguments,
        })?;
    }
    let pointers = [dweight.pointer, partial].map(Argument::Pointer);
    let sizes = counts([parts, shape.width, usize::from(write == Write::Accumulate)]);
    let arguments = [pointers.as_slice(), &sizes].concat();
    launch_blocks(l, sums, [shape.width.div_ceil(32), 1], 512, &arguments)
}

/// Refuses rows whose sums do not fit into a block's shared memory in addition to the kernel's own
/// arrays.
fn check_shared_memory(architecture: u32, width: usize, bytes: usize) -> Result<()> {
    let most = most_shared(architecture) - STATIC_SHARED as usize;
    if bytes <= most {
        return Ok(());
    }
    let (most, major, minor) = (most / 4, architecture / 10, architecture % 10);
    Err(DeviceError::Cuda {
        call: "rms_norm_backward",
        reason: format!(
            "rows of {width} elements are too wide for a GPU of compute capability {major}.{minor}: at most {most} fit"
        ),
    })
}
