//! Launches of `embedding.cu`.

use super::elementwise::fill;
use super::table::{EMBEDDING, EMBEDDING_BACKWARD, of_type, of_types, same_type};
use super::{
    Argument, CHUNK, Launcher, Operand, THREADS, launch_blocks, launch_each, row_arguments, row_chunks,
};
use crate::Result;
use crate::operations::{Embedding, EmbeddingBackward};
use crate::shapes::Write;

/// See [`Embedding`]; `out` and `table` have one type. A row of NaN where an id is not below the
/// vocabulary. A thread copies 8 elements of a row. The CPU's bits.
///
/// # Errors
/// If types differ or are no floats; the launcher's.
pub fn embedding(l: &impl Launcher, arguments: Embedding<Operand, Operand>) -> Result<()> {
    let Embedding { out, table, ids, vocabulary, shape } = arguments;
    let kernel = of_type(&EMBEDDING, "table", table.dtype)?;
    same_type(kernel.name, table, [("out", out)])?;
    let pointers = [out, table, ids].map(Argument::from);
    let arguments =
        [pointers.as_slice(), &row_arguments(shape), &[Argument::U32(vocabulary as u32)]].concat();
    launch_each(l, kernel, row_chunks(shape), &arguments)
}

/// See [`EmbeddingBackward`]; each row of the table is rounded once. Skips ids that are not below
/// the vocabulary. A row of blocks per position: the first position of an id adds up the others.
/// The CPU's bits.
///
/// # Errors
/// If an operand holds no floats; the launcher's.
pub fn embedding_backward(l: &impl Launcher, arguments: EmbeddingBackward<Operand, Operand>) -> Result<()> {
    let EmbeddingBackward { dtable, write, dout, ids, vocabulary, shape } = arguments;
    let kernel = of_types(&EMBEDDING_BACKWARD, ("dtable", dtable.dtype), ("dout", dout.dtype))?;
    if write == Write::Replace {
        fill(l, dtable, 0.0, vocabulary * shape.width)?;
    }
    let pointers = [dtable, dout, ids].map(Argument::from);
    let arguments =
        [pointers.as_slice(), &row_arguments(shape), &[Argument::U32(vocabulary as u32)]].concat();
    let columns = shape.width.div_ceil(THREADS * CHUNK);
    launch_blocks(l, kernel, [shape.rows, columns], THREADS, &arguments)
}
