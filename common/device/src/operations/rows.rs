//! Operations on rows: normalisation, the gated activation, look-up, cross-entropy.

use super::visit::Visitor;
use crate::Result;
use crate::shapes::{GroupedRows, RowShape, Write};

operation! {
    /// `out = x / rms(x) · weight` per row and `inverse_rms = 1 / rms(x)`, with
    /// `rms² = mean(x²) + eps`.
    pub struct RmsNorm {
        /// Output `[rows, width]`.
        out: W = rows(shape),
        /// Output, f32 `[rows]`.
        inverse_rms: W = f32(shape.rows),
        /// `[rows, width]`.
        x: R = rows(shape),
        /// `[width]`.
        weight: R = floats(shape.width),
    } with {
        /// Sizes, and the places of the rows of `out` and `x`.
        shape: GroupedRows,
        /// Added to the mean square.
        eps: f32,
    }
    checked by check_groups(shape)
}

operation! {
    /// Backward of [`RmsNorm`]: `dx += …`, and `dweight` as `write` says.
    pub struct RmsNormBackward {
        /// Added to `[rows, width]`, or the gradient of `out` before and that of `x` after.
        dx: W = rows(shape).updated(),
        /// Output `[width]`.
        dweight: W = floats(shape.width).written(write),
        /// The gradient of `out`, `[rows, width]`; `None` if `dx` holds it.
        dout: Option<R> = rows(shape),
        /// [`RmsNorm::x`].
        x: R = rows(shape),
        /// [`RmsNorm::weight`].
        weight: R = floats(shape.width),
        /// [`RmsNorm::inverse_rms`].
        inverse_rms: R = f32(shape.rows),
    } with {
        /// For `dweight`.
        write: Write,
        /// Sizes, and the places of the rows of `dx`, `dout` and `x`.
        shape: GroupedRows,
    }
    checked by check_groups(shape)
}

operation! {
    /// `out = silu(gate) · up`.
    pub struct Swiglu {
        /// Output `[rows, width]`.
        out: W = floats(shape.elements()),
        /// `[rows, 2 · width]`: a row holds `width` gates, then `width` ups.
        gate_up: R = floats(2 * shape.elements()),
    } with {
        /// Sizes.
        shape: RowShape,
    }
}

operation! {
    /// Backward of [`Swiglu`]: `dgate_up = …`.
    pub struct SwigluBackward {
        /// Output `[rows, 2 · width]`.
        dgate_up: W = floats(2 * shape.elements()),
        /// The gradient of `out`, `[rows, width]`.
        dout: R = floats(shape.elements()),
        /// [`Swiglu::gate_up`].
        gate_up: R = floats(2 * shape.elements()),
    } with {
        /// Sizes.
        shape: RowShape,
    }
}

operation! {
    /// `out[i] = table[ids[i]]`.
    pub struct Embedding {
        /// Output `[rows, width]`.
        out: W = floats(shape.elements()),
        /// `[vocabulary, width]`.
        table: R = floats(vocabulary * shape.width).moving(shape.elements()),
        /// u32 `[rows]`, each below `vocabulary`.
        ids: R = indices(shape.rows, vocabulary),
    } with {
        /// Rows of the table.
        vocabulary: usize,
        /// Sizes.
        shape: RowShape,
    }
}

operation! {
    /// Backward of [`Embedding`]: `dtable[ids[i]] += dout[i]`, in the order of i.
    pub struct EmbeddingBackward {
        /// Added to `[vocabulary, width]`.
        dtable: W = floats(vocabulary * shape.width).moving(moved_of_table(write, vocabulary, shape)),
        /// The gradient of `out`, `[rows, width]`.
        dout: R = floats(shape.elements()),
        /// [`Embedding::ids`].
        ids: R = indices(shape.rows, vocabulary),
    } with {
        /// With [`Write::Replace`] `dtable` is zeroed first.
        write: Write,
        /// Rows of the table.
        vocabulary: usize,
        /// Sizes.
        shape: RowShape,
    }
}

operation! {
    /// Cross-entropy and its gradient in one pass: `losses = −log softmax(logits)[target]` per row,
    /// and `logits = (softmax(logits) − onehot(target)) · gradient_scale`. A row without a target
    /// has loss 0 and gradient 0.
    pub struct CrossEntropy {
        /// Output, f32 `[rows]`.
        losses: W = f32(shape.rows),
        /// `[rows, width]`: logits before, their gradients after. `width` is the vocabulary.
        logits: W = floats(shape.elements()).updated(),
        /// u32 `[rows]`, each below `width`; `width` where a row has none.
        targets: R = indices(shape.rows, shape.width + 1),
    } with {
        /// Factor of the gradients.
        gradient_scale: f32,
        /// Sizes.
        shape: RowShape,
    }
}

/// Checks that rows are whole groups, which do not overlap.
fn check_groups<R, W>(v: &mut impl Visitor<R, W>, shape: GroupedRows) -> Result<()> {
    let group = shape.group.max(1);
    v.size("group", shape.group, group)?;
    v.size("rows", shape.rows, shape.rows.next_multiple_of(group))?;
    v.size("stride", shape.stride, shape.stride.max(group * shape.width))
}

/// Returns the elements of a table that its gradient moves.
fn moved_of_table(write: Write, vocabulary: usize, shape: RowShape) -> usize {
    let zeroed = if write == Write::Replace { vocabulary * shape.width } else { 0 };
    zeroed + 2 * shape.elements()
}
