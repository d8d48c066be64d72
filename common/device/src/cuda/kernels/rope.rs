//! Launches of `rope.cu`: a thread handles up to 8 pairs of one head.

use super::table::{ROPE, of_type};
use super::{Argument, CHUNK, Launcher, Operand, counts, launch_each};
use crate::Result;
use crate::operations::Rope;
pub use crate::rotation::turns as rope_table;

/// Rotates the query and key heads of `qkv` in place. `table` is the address of
/// [`rope_table`]`(theta, scaling, head_dim / 2, n)` for some n of at least
/// `first_position + tokens`. The CPU's bits.
///
/// # Errors
/// If `qkv` holds no floats; the launcher's.
pub fn rope(l: &impl Launcher, qkv: Operand, table: u64, rope: Rope) -> Result<()> {
    let kernel = of_type(&ROPE, "qkv", qkv.dtype)?;
    let shape = rope.attention;
    let (half, heads) = (shape.head_dim / 2, shape.heads + shape.kv_heads);
    let pointers = [qkv.pointer, table].map(Argument::Pointer);
    let (width, inverse) = (shape.packed_width(), usize::from(rope.inverse));
    let sizes = counts([shape.rows(), shape.tokens, rope.first_position, half, heads, width, inverse]);
    let arguments = [pointers.as_slice(), &sizes].concat();
    launch_each(l, kernel, shape.rows() * heads * half.div_ceil(CHUNK), &arguments)
}
