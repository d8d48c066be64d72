//! Steps that some families apply to packed queries, keys and values before the rotation: biases
//! (Qwen2), and norms of query and key heads (Qwen3).
//!
//! Forward, from the packed projections, raw \[R·(H+2K)·e, activations\]. Families without these
//! steps allocate nothing here: raw is qkv.
//!
//! | step | allocates | frees |
//! |---|---|---|
//! | raw += 1 · biasᵀ | ones \[R·e, workspace\] | ones |
//! | qkv = norm(raw) | qkv \[R·(H+2K)·e, activations\], inverse_rms \[R·(heads + kv_heads)·4, activations\] | |
//!
//! Backward, from dqkv, which becomes draw.
//!
//! | step | allocates (workspace) | frees |
//! |---|---|---|
//! | norm backward | | raw, inverse_rms |
//! | dbias = drawᵀ · 1 | ones \[R·e\] | ones |

use crate::Gradients;
use crate::context::Context;
use crate::linear::{columns, columns_mut, span};
use crate::tensors::{gradient, weight};
use device::{Buffer, DType, GroupedRows, Matrix, Result, RmsNorm, RmsNormBackward, Write};
use std::ops::Range;

/// The buffers that head norms keep for backward.
pub(crate) struct HeadNorms {
    /// Packed projections before the norms: `[R, H + 2K]`.
    raw: Buffer,
    /// `1 / rms` of each query head, then of each key head: f32 `[R · (heads + kv_heads)]`.
    inverse_rms: Buffer,
}

/// Returns the columns of queries, keys and values in a row of packed projections.
fn packed_columns(cx: &Context<'_>) -> [Range<usize>; 3] {
    let shape = cx.attention();
    let (query, key) = (shape.width(), shape.kv_heads * shape.head_dim);
    [0..query, query..query + key, query + key..query + 2 * key]
}

/// Returns `[R]` ones. A product with them adds a bias to all rows, or sums a gradient over the
/// rows.
fn ones(cx: &Context<'_>, dtype: DType) -> Result<Buffer> {
    let mut ones = cx.workspace(dtype, 1)?;
    cx.device.kernels().fill(ones.view_mut(), 1.0)?;
    Ok(ones)
}

/// Computes `raw += bias` in each row, if the family has biases.
pub(crate) fn add_biases(cx: &Context<'_>, raw: &mut Buffer) -> Result<()> {
    if !cx.config.family.has_biases() {
        return Ok(());
    }
    let (rows, stride) = (cx.batch.rows(), cx.attention().packed_width());
    let ones = ones(cx, raw.dtype())?;
    for (tensor, part) in cx.tensors().biases.into_iter().zip(packed_columns(cx)) {
        let bias = Matrix::new(weight(cx.weights, tensor), 1, part.len()).with_grain(cx.config.grain());
        let out = columns_mut(raw, rows, stride, part);
        cx.device.kernels().matmul(out, Matrix::new(ones.view(), rows, 1), bias, Write::Accumulate)?;
    }
    Ok(())
}

/// Computes the gradients of the biases, if the family has any: the sums of draw's rows.
pub(crate) fn biases_backward(cx: &Context<'_>, gradients: &mut dyn Gradients, draw: &Buffer) -> Result<()> {
    if !cx.config.family.has_biases() {
        return Ok(());
    }
    let (rows, stride) = (cx.batch.rows(), cx.attention().packed_width());
    let ones = ones(cx, draw.dtype())?;
    for (tensor, part) in cx.tensors().biases.into_iter().zip(packed_columns(cx)) {
        let (dbias, write) = gradient(gradients, tensor);
        let dbias = Matrix::new(dbias, part.len(), 1).with_grain(cx.config.grain());
        let draw = columns(draw, rows, stride, part);
        cx.device.kernels().matmul(dbias, draw.t(), Matrix::new(ones.view(), rows, 1), write)?;
    }
    Ok(())
}

/// The query or the key heads of packed projections.
struct Heads {
    /// Position of their norm's weights in the block's tensors.
    tensor: usize,
    /// Their elements in a buffer of packed projections.
    elements: Range<usize>,
    /// Their elements in a buffer with one element per query and key head.
    statistics: Range<usize>,
    shape: GroupedRows,
}

/// Returns the query heads, then the key heads.
fn normed(cx: &Context<'_>) -> [Heads; 2] {
    let (rows, attention, [queries, keys, _]) = (cx.batch.rows(), cx.attention(), packed_columns(cx));
    let stride = attention.packed_width();
    let [query_norm, key_norm] = cx.tensors().head_norms;
    let heads = |tensor, columns: Range<usize>, group: usize, first: usize| Heads {
        tensor,
        elements: span(rows, stride, &columns),
        statistics: first..first + rows * group,
        shape: GroupedRows { rows: rows * group, width: attention.head_dim, group, stride },
    };
    let (query_heads, key_heads) = (attention.heads, attention.kv_heads);
    [heads(query_norm, queries, query_heads, 0), heads(key_norm, keys, key_heads, rows * query_heads)]
}

/// Normalises each query and key head, if the family does. Returns the buffers that this keeps, and
/// the result; otherwise returns `raw` unchanged.
pub(crate) fn norms(cx: &Context<'_>, raw: Buffer) -> Result<(Option<HeadNorms>, Buffer)> {
    if !cx.config.family.norms_heads() {
        return Ok((None, raw));
    }
    let mut qkv = cx.activation(raw.dtype(), cx.attention().packed_width())?;
    let mut inverse_rms = cx.activation(DType::F32, cx.config.heads + cx.config.kv_heads)?;
    cx.device.kernels().copy(qkv.view_mut(), raw.view())?;
    for Heads { tensor, elements, statistics, shape } in normed(cx) {
        cx.device.kernels().rms_norm(RmsNorm {
            out: qkv.slice_mut(elements.clone()),
            inverse_rms: inverse_rms.slice_mut(statistics),
            x: raw.slice(elements),
            weight: weight(cx.weights, tensor),
            shape,
            eps: cx.config.norm_eps,
        })?;
    }
    Ok((Some(HeadNorms { raw, inverse_rms }), qkv))
}

/// Computes the gradients of the norms' weights, and turns `dqkv` into the gradient of
/// [`HeadNorms::raw`]; frees `kept`.
pub(crate) fn norms_backward(
    cx: &Context<'_>,
    gradients: &mut dyn Gradients,
    dqkv: &mut Buffer,
    kept: Option<HeadNorms>,
) -> Result<()> {
    let Some(HeadNorms { raw, inverse_rms }) = kept else { return Ok(()) };
    for Heads { tensor, elements, statistics, shape } in normed(cx) {
        let (dweight, write) = gradient(gradients, tensor);
        cx.device.kernels().rms_norm_backward(RmsNormBackward {
            dx: dqkv.slice_mut(elements.clone()),
            dweight,
            write,
            dout: None,
            x: raw.slice(elements),
            weight: weight(cx.weights, tensor),
            inverse_rms: inverse_rms.slice(statistics),
            shape,
        })?;
    }
    Ok(())
}
