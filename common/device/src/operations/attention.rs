//! Attention and what belongs to it.

use super::visit::{Operand, Visitor};
use crate::Result;
use crate::rotation::RopeScaling;
use crate::shapes::AttentionShape;

/// `out = softmax(q · kᵀ / √head_dim + causal mask) · v`. All operands but `log_sum` have one type
/// on a GPU.
#[derive(Clone, Copy, Debug)]
pub struct Attention<R, W> {
    /// Output `[batch · tokens, heads · head_dim]`.
    pub out: W,
    /// Output: the log of each softmax's denominator, f32 `[batch, heads, tokens]`.
    pub log_sum: W,
    /// Packed queries, keys and values `[batch · tokens, (heads + 2 · kv_heads) · head_dim]`.
    pub qkv: R,
    /// Sizes.
    pub shape: AttentionShape,
}

/// Backward of [`Attention`]: `dqkv = …`, recomputing the probabilities from `log_sum`.
#[derive(Clone, Copy, Debug)]
pub struct AttentionBackward<R, W> {
    /// Output: the gradient of `qkv`, of its shape.
    pub dqkv: W,
    /// The gradient of `out`, of its shape.
    pub dout: R,
    /// [`Attention::qkv`].
    pub qkv: R,
    /// [`Attention::out`].
    pub out: R,
    /// [`Attention::log_sum`].
    pub log_sum: R,
    /// Sizes.
    pub shape: AttentionShape,
}

/// Rotary position embedding (rotate-half, as in Llama): which heads of which rows, and the base θ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Shape of the packed projections; query and key heads are rotated, value heads are not.
    pub attention: AttentionShape,
    /// Base of the frequencies: pair i turns by `position · theta^(−2i / head_dim)`.
    pub theta: f32,
    /// What makes the frequencies lower.
    pub scaling: RopeScaling,
    /// Position of a sequence's first token.
    pub first_position: usize,
    /// Rotates backwards: the gradient of a rotation.
    pub inverse: bool,
}

impl<R, W> Attention<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<Attention<V::Read, V::Written>> {
        let Attention { out, log_sum, qkv, shape } = self;
        check_heads(v, shape)?;
        Ok(Attention {
            out: v.write(Operand::floats("out", shape.rows() * shape.width()), out)?,
            log_sum: v.write(Operand::f32("log_sum", shape.rows() * shape.heads), log_sum)?,
            qkv: v.read(Operand::floats("qkv", shape.rows() * shape.packed_width()), qkv)?,
            shape,
        })
    }
}

impl<R, W> AttentionBackward<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<AttentionBackward<V::Read, V::Written>> {
        let AttentionBackward { dqkv, dout, qkv, out, log_sum, shape } = self;
        check_heads(v, shape)?;
        let (packed, width) = (shape.rows() * shape.packed_width(), shape.rows() * shape.width());
        Ok(AttentionBackward {
            dqkv: v.write(Operand::floats("dqkv", packed), dqkv)?,
            dout: v.read(Operand::floats("dout", width), dout)?,
            qkv: v.read(Operand::floats("qkv", packed), qkv)?,
            out: v.read(Operand::floats("out", width), out)?,
            log_sum: v.read(Operand::f32("log_sum", shape.rows() * shape.heads), log_sum)?,
            shape,
        })
    }
}

impl Rope {
    pub(super) fn visit<R, W, V: Visitor<R, W>>(self, v: &mut V, qkv: W) -> Result<V::Written> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.attention;
        v.size("head_dim", head_dim, head_dim.next_multiple_of(2))?;
        let rows = self.attention.rows();
        let operand = Operand::floats("qkv", rows * self.attention.packed_width());
        v.write(operand.moving(2 * rows * (heads + kv_heads) * head_dim), qkv)
    }
}

/// Query heads share key/value heads evenly.
fn check_heads<R, W>(v: &mut impl Visitor<R, W>, shape: AttentionShape) -> Result<()> {
    let kv_heads = shape.kv_heads.max(1);
    v.size("kv_heads", shape.kv_heads, kv_heads)?;
    v.size("heads", shape.heads, shape.heads.next_multiple_of(kv_heads))
}

impl AttentionShape {
    /// Floating-point operations of `products` products of queries with keys, or of probabilities
    /// with values, under the causal mask.
    pub(super) fn flops(self, products: u64) -> u64 {
        let pairs = (self.tokens * (self.tokens + 1) / 2) as u64;
        products * 2 * pairs * (self.batch * self.width()) as u64
    }
}
