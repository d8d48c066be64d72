//! Attention and what belongs to it.

use super::visit::{Requirement, Visitor};
use crate::Result;
use crate::rotation::RopeScaling;
use crate::shapes::AttentionShape;

operation! {
    /// `out = softmax(q · kᵀ / √head_dim + causal mask) · v`. All operands but `log_sum` have one
    /// type on a GPU.
    pub struct Attention {
        /// Output `[batch · tokens, heads · head_dim]`.
        out: W = floats(shape.rows() * shape.width()),
        /// Output: the log of each softmax's denominator, f32 `[batch, heads, tokens]`.
        log_sum: W = f32(shape.rows() * shape.heads),
        /// Packed queries, keys and values `[batch · tokens, (heads + 2 · kv_heads) · head_dim]`.
        qkv: R = floats(shape.rows() * shape.packed_width()),
    } with {
        /// Sizes.
        shape: AttentionShape,
    }
    checked by check_heads(shape)
}

operation! {
    /// Backward of [`Attention`]: `dqkv = …`, recomputing the probabilities from `log_sum`.
    pub struct AttentionBackward {
        /// Output: the gradient of `qkv`, of its shape.
        dqkv: W = floats(shape.rows() * shape.packed_width()),
        /// The gradient of `out`, of its shape.
        dout: R = floats(shape.rows() * shape.width()),
        /// [`Attention::qkv`].
        qkv: R = floats(shape.rows() * shape.packed_width()),
        /// [`Attention::out`].
        out: R = floats(shape.rows() * shape.width()),
        /// [`Attention::log_sum`].
        log_sum: R = f32(shape.rows() * shape.heads),
    } with {
        /// Sizes.
        shape: AttentionShape,
    }
    checked by check_heads(shape)
}

/// Rotary position embedding (rotate-half, as in Llama): which heads of which rows, and the base θ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rope {
    /// Shape of the packed projections; query and key heads are rotated, value heads are not.
    pub attention: AttentionShape,
    /// Base of the frequencies: pair i turns by `position · theta^(−2i / head_dim)`.
    pub theta: f32,
    /// The scaling that lowers the frequencies.
    pub scaling: RopeScaling,
    /// Position of a sequence's first token.
    pub first_position: usize,
    /// Rotates backwards: the gradient of a rotation.
    pub inverse: bool,
}

impl Rope {
    pub(super) fn visit<R, W, V: Visitor<R, W>>(self, v: &mut V, qkv: W) -> Result<V::Written> {
        let AttentionShape { heads, kv_heads, head_dim, .. } = self.attention;
        v.size("head_dim", head_dim, head_dim.next_multiple_of(2))?;
        let rows = self.attention.rows();
        let operand = Requirement::floats("qkv", rows * self.attention.packed_width());
        v.write(operand.moving(2 * rows * (heads + kv_heads) * head_dim), qkv)
    }
}

/// Checks that query heads share key/value heads evenly.
fn check_heads<R, W>(v: &mut impl Visitor<R, W>, shape: AttentionShape) -> Result<()> {
    let kv_heads = shape.kv_heads.max(1);
    v.size("kv_heads", shape.kv_heads, kv_heads)?;
    v.size("heads", shape.heads, shape.heads.next_multiple_of(kv_heads))
}

impl AttentionShape {
    /// Returns the floating-point operations of `products` products of queries with keys, or of
    /// probabilities with values, under the causal mask.
    pub(super) fn flops(self, products: u64) -> u64 {
        let pairs = (self.tokens * (self.tokens + 1) / 2) as u64;
        products * 2 * pairs * (self.batch * self.width()) as u64
    }
}
