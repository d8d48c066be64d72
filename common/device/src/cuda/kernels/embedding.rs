//! Launches of `embedding.cu`.

use super::elementwise::fill;
use super::table::{EMBEDDING, EMBEDDING_BACKWARD, of_type, of_types, same_type};
use super::{
    Argument, CHUNK, Launcher, Operand, THREADS, launch_blocks, launch_each, row_arguments, row_chunks,
};
use crate::Result;
use crate::kernels::{RowShape, Write};

/// `out[i] = table[ids[i]]`, in one type; a row of NaN where an id is not below `vocabulary`. A thread copies 8 elements of
/// a row. The CPU's bits.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn embedding(
    l: &impl Launcher,
    out: Operand,
    table: Operand,
    ids: u64,
    vocabulary: usize,
    shape: RowShape,
) -> Result<()> {
    let kernel = of_type(&EMBEDDING, "table", table.dtype)?;
    same_type(kernel.name, table, [("out", out)])?;
    let pointers = [out.pointer, table.pointer, ids].map(Argument::Pointer);
    let arguments =
        [pointers.as_slice(), &row_arguments(shape), &[Argument::U32(vocabulary as u32)]].concat();
    launch_each(l, kernel, row_chunks(shape), &arguments)
}

/// `dtable[ids[i]] += dout[i]`, in the order of i, each row of the table rounded once; the table is zeroed first if `write`
/// says so. Ids that are not below `vocabulary` are passed over. A row of blocks per position: the first position of an id
/// adds up the others. The CPU's bits.
///
/// # Errors
/// If an operand holds no floats; the launcher's.
pub fn embedding_backward(
    l: &impl Launcher,
    dtable: Operand,
    write: Write,
    dout: Operand,
    ids: u64,
    vocabulary: usize,
    shape: RowShape,
) -> Result<()> {
    let kernel = of_types(&EMBEDDING_BACKWARD, ("dtable", dtable.dtype), ("dout", dout.dtype))?;
    if write == Write::Replace {
        fill(l, dtable, 0.0, vocabulary * shape.width)?;
    }
    let pointers = [dtable.pointer, dout.pointer, ids].map(Argument::Pointer);
    let arguments =
        [pointers.as_slice(), &row_arguments(shape), &[Argument::U32(vocabulary as u32)]].concat();
    let columns = shape.width.div_ceil(THREADS * CHUNK);
    launch_blocks(l, kernel, [shape.rows, columns], THREADS, &arguments)
}
