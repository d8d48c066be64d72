//! Launches of `rope.cu`: a thread handles up to 8 pairs of one head.

use super::table::{ROPE, of_type};
use super::{Argument, CHUNK, Launcher, Operand, launch_each};
use crate::Result;
use crate::operations::Rope;
pub use crate::rotation::turns as rope_table;

/// Rotates the query and key heads of `qkv` in place. `table` is the address of
/// [`rope_table`]`(theta, scaling, head_dim / 2, n)` for some n of at least `first_position + tokens`. The
/// CPU's bits.
///
/// # Errors
/// If `qkv` holds no floats; the launcher's.
pub fn rope(l: &impl Launcher, qkv: Operand, table: u64, rope: Rope) -> Result<()> {
    let kernel = of_type(&ROPE, "qkv", qkv.dtype)?;
    let shape = rope.attention;
    let (half, heads) = (shape.head_dim / 2, shape.heads + shape.kv_heads);
    let sizes = [shape.rows(), shape.tokens, rope.first_position, half, heads, shape.packed_width()];
    let pointers = [Argument::Pointer(qkv.pointer), Argument::Pointer(table)];
    let sizes = sizes.map(|size| Argument::U32(size as u32));
    let inverse = [Argument::U32(u32::from(rope.inverse))];
    let arguments = [pointers.as_slice(), &sizes, &inverse].concat();
    launch_each(l, kernel, shape.rows() * heads * half.div_ceil(CHUNK), &arguments)
}
