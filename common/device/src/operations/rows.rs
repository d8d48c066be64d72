//! Operations on rows: normalisation, the gated activation, look-up, cross-entropy.

use super::visit::{Operand, Visitor};
use crate::Result;
use crate::shapes::{GroupedRows, RowShape, Write};

/// `out = x / rms(x) · weight` per row and `inverse_rms = 1 / rms(x)`, with
/// `rms² = mean(x²) + eps`.
#[derive(Clone, Copy, Debug)]
pub struct RmsNorm<R, W> {
    /// Output `[rows, width]`.
    pub out: W,
    /// Output, f32 `[rows]`.
    pub inverse_rms: W,
    /// `[rows, width]`.
    pub x: R,
    /// `[width]`.
    pub weight: R,
    /// Sizes, and the places of the rows of `out` and `x`.
    pub shape: GroupedRows,
    /// Added to the mean square.
    pub eps: f32,
}

/// Backward of [`RmsNorm`]: `dx += …`, and `dweight` as `write` says.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormBackward<R, W> {
    /// Added to `[rows, width]`, or the gradient of `out` before and that of `x` after.
    pub dx: W,
    /// Output `[width]`.
    pub dweight: W,
    /// For `dweight`.
    pub write: Write,
    /// The gradient of `out`, `[rows, width]`; none if `dx` holds it.
    pub dout: Option<R>,
    /// [`RmsNorm::x`].
    pub x: R,
    /// [`RmsNorm::weight`].
    pub weight: R,
    /// [`RmsNorm::inverse_rms`].
    pub inverse_rms: R,
    /// Sizes, and the places of the rows of `dx`, `dout` and `x`.
    pub shape: GroupedRows,
}

/// `out = silu(gate) · up`.
#[derive(Clone, Copy, Debug)]
pub struct Swiglu<R, W> {
    /// Output `[rows, width]`.
    pub out: W,
    /// `[rows, 2 · width]`: a row holds `width` gates, then `width` ups.
    pub gate_up: R,
    /// Sizes.
    pub shape: RowShape,
}

/// Backward of [`Swiglu`]: `dgate_up = …`.
#[derive(Clone, Copy, Debug)]
pub struct SwigluBackward<R, W> {
    /// Output `[rows, 2 · width]`.
    pub dgate_up: W,
    /// The gradient of `out`, `[rows, width]`.
    pub dout: R,
    /// [`Swiglu::gate_up`].
    pub gate_up: R,
    /// Sizes.
    pub shape: RowShape,
}

/// `out[i] = table[ids[i]]`.
#[derive(Clone, Copy, Debug)]
pub struct Embedding<R, W> {
    /// Output `[rows, width]`.
    pub out: W,
    /// `[vocabulary, width]`.
    pub table: R,
    /// u32 `[rows]`, each below `vocabulary`.
    pub ids: R,
    /// Rows of the table.
    pub vocabulary: usize,
    /// Sizes.
    pub shape: RowShape,
}

/// Backward of [`Embedding`]: `dtable[ids[i]] += dout[i]`, in the order of i.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingBackward<R, W> {
    /// Added to `[vocabulary, width]`.
    pub dtable: W,
    /// With [`Write::Replace`] `dtable` is zeroed first.
    pub write: Write,
    /// The gradient of `out`, `[rows, width]`.
    pub dout: R,
    /// [`Embedding::ids`].
    pub ids: R,
    /// Rows of the table.
    pub vocabulary: usize,
    /// Sizes.
    pub shape: RowShape,
}

/// Cross-entropy and its gradient in one pass: `losses = −log softmax(logits)[target]` per row, and
/// `logits = (softmax(logits) − onehot(target)) · gradient_scale`. A row without a target has the
/// loss 0, and so is its gradient.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy<R, W> {
    /// Output, f32 `[rows]`.
    pub losses: W,
    /// `[rows, width]`: logits before, their gradients after. `width` is the vocabulary.
    pub logits: W,
    /// u32 `[rows]`, each below `width`; `width` where a row has none.
    pub targets: R,
    /// Factor of the gradients.
    pub gradient_scale: f32,
    /// Sizes.
    pub shape: RowShape,
}

/// An operand of floats with the rows of `shape`.
fn grouped(name: &'static str, shape: GroupedRows) -> Operand {
    Operand::floats(name, shape.extent()).moving(shape.elements())
}

/// Rows are whole groups, which do not overlap.
fn check_groups<R, W>(v: &mut impl Visitor<R, W>, shape: GroupedRows) -> Result<()> {
    let group = shape.group.max(1);
    v.size("group", shape.group, group)?;
    v.size("rows", shape.rows, shape.rows.next_multiple_of(group))?;
    v.size("stride", shape.stride, shape.stride.max(group * shape.width))
}

impl<R, W> RmsNorm<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<RmsNorm<V::Read, V::Written>> {
        let RmsNorm { out, inverse_rms, x, weight, shape, eps } = self;
        check_groups(v, shape)?;
        Ok(RmsNorm {
            out: v.write(grouped("out", shape), out)?,
            inverse_rms: v.write(Operand::f32("inverse_rms", shape.rows), inverse_rms)?,
            x: v.read(grouped("x", shape), x)?,
            weight: v.read(Operand::floats("weight", shape.width), weight)?,
            shape,
            eps,
        })
    }
}

impl<R, W> RmsNormBackward<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<RmsNormBackward<V::Read, V::Written>> {
        let RmsNormBackward { dx, dweight, write, dout, x, weight, inverse_rms, shape } = self;
        check_groups(v, shape)?;
        Ok(RmsNormBackward {
            dx: v.write(grouped("dx", shape).updated(), dx)?,
            dweight: v.write(Operand::floats("dweight", shape.width).written(write), dweight)?,
            write,
            dout: dout.map(|dout| v.read(grouped("dout", shape), dout)).transpose()?,
            x: v.read(grouped("x", shape), x)?,
            weight: v.read(Operand::floats("weight", shape.width), weight)?,
            inverse_rms: v.read(Operand::f32("inverse_rms", shape.rows), inverse_rms)?,
            shape,
        })
    }
}

impl<R, W> Swiglu<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<Swiglu<V::Read, V::Written>> {
        let Swiglu { out, gate_up, shape } = self;
        Ok(Swiglu {
            out: v.write(Operand::floats("out", shape.elements()), out)?,
            gate_up: v.read(Operand::floats("gate_up", 2 * shape.elements()), gate_up)?,
            shape,
        })
    }
}

impl<R, W> SwigluBackward<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<SwigluBackward<V::Read, V::Written>> {
        let SwigluBackward { dgate_up, dout, gate_up, shape } = self;
        Ok(SwigluBackward {
            dgate_up: v.write(Operand::floats("dgate_up", 2 * shape.elements()), dgate_up)?,
            dout: v.read(Operand::floats("dout", shape.elements()), dout)?,
            gate_up: v.read(Operand::floats("gate_up", 2 * shape.elements()), gate_up)?,
            shape,
        })
    }
}

impl<R, W> Embedding<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<Embedding<V::Read, V::Written>> {
        let Embedding { out, table, ids, vocabulary, shape } = self;
        let table_operand = Operand::floats("table", vocabulary * shape.width).moving(shape.elements());
        Ok(Embedding {
            out: v.write(Operand::floats("out", shape.elements()), out)?,
            table: v.read(table_operand, table)?,
            ids: v.read(Operand::indices("ids", shape.rows, vocabulary), ids)?,
            vocabulary,
            shape,
        })
    }
}

impl<R, W> EmbeddingBackward<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<EmbeddingBackward<V::Read, V::Written>> {
        let EmbeddingBackward { dtable, write, dout, ids, vocabulary, shape } = self;
        let table = vocabulary * shape.width;
        let zeroed = if write == Write::Replace { table } else { 0 };
        let table_operand = Operand::floats("dtable", table).moving(zeroed + 2 * shape.elements());
        Ok(EmbeddingBackward {
            dtable: v.write(table_operand, dtable)?,
            write,
            dout: v.read(Operand::floats("dout", shape.elements()), dout)?,
            ids: v.read(Operand::indices("ids", shape.rows, vocabulary), ids)?,
            vocabulary,
            shape,
        })
    }
}

impl<R, W> CrossEntropy<R, W> {
    pub(super) fn visit<V: Visitor<R, W>>(self, v: &mut V) -> Result<CrossEntropy<V::Read, V::Written>> {
        let CrossEntropy { losses, logits, targets, gradient_scale, shape } = self;
        Ok(CrossEntropy {
            losses: v.write(Operand::f32("losses", shape.rows), losses)?,
            logits: v.write(Operand::floats("logits", shape.elements()).updated(), logits)?,
            targets: v.read(Operand::indices("targets", shape.rows, shape.width + 1), targets)?,
            gradient_scale,
            shape,
        })
    }
}
