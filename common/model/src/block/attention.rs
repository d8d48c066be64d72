//! The first half of a block: `out = x + attention(rope(norm(x) · Wqkvᵀ)) · Woᵀ`.
//!
//! Forward, from x \[R·d·e, activations\]. The buffers in the last columns are freed after their
//! last use unless they are kept. Cheap ones are kept only if everything is kept, expensive ones
//! also if the choice is selective.
//!
//! | step | allocates (activations) | frees, if cheap | frees, if expensive |
//! |---|---|---|---|
//! | norm | inverse_rms \[R·4\], n \[R·d·e\] | | |
//! | qkv = rope(n · Wqkvᵀ) | qkv \[R·(H+2K)·e\] | n, inverse_rms | |
//! | attention | attended \[R·H·e\], log_sum \[R·heads·4\] | | qkv, log_sum |
//! | out = x + attended · Woᵀ | out \[R·d·e\] | | attended |
//!
//! Biases and head norms allocate more in the third row, see [`super::heads`]. The buffers that the
//! norms keep are expensive.
//!
//! Recomputation allocates the buffers that forward freed, in forward's order, and frees none.
//!
//! Backward, from dout \[R·d·e, workspace\], which becomes dx.
//!
//! | step | allocates (workspace) | frees |
//! |---|---|---|
//! | dattended = dout · Wo, dWo = doutᵀ · attended | dattended \[R·H·e\] | |
//! | attention backward | dqkv \[R·(H+2K)·e\] | dattended, attended, log_sum, qkv |
//! | rope inverse on dqkv, dn = dqkv · Wqkv, dWqkv = dqkvᵀ · n | dn \[R·d·e\] | dqkv, n |
//! | dout += norm backward | | dn, x, inverse_rms |

use super::heads::{self, HeadNorms};
use crate::context::Context;
use crate::layout::BlockTensors;
use crate::linear::Projection;
use crate::norm::{self, Norm};
use crate::{Gradients, Keep};
use device::{Attention, AttentionBackward, Buffer, DType, Result, Rope};

/// The buffers that are expensive to recompute.
pub(crate) struct Attended {
    heads: Option<HeadNorms>,
    qkv: Buffer,
    attended: Buffer,
    log_sum: Buffer,
}

/// The buffers that forward keeps, without x and its output: as many as [`Keep`] says.
#[derive(Default)]
pub(crate) struct KeptAttention {
    norm: Option<Norm>,
    attended: Option<Attended>,
}

/// The buffers that backward reads, without x.
pub(crate) struct SavedAttention {
    norm: Norm,
    attended: Attended,
}

/// Returns the projection from tokens to packed queries, keys and values.
fn project_in(cx: &Context<'_>) -> Projection<3> {
    let c = cx.config;
    let (query, key) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
    Projection { first: BlockTensors::QKV, inputs: c.width, outputs: [query, key, key] }
}

/// Returns the projection from attended values back to the residual stream.
fn project_out(cx: &Context<'_>) -> Projection<1> {
    Projection { first: BlockTensors::O, inputs: cx.attention().width(), outputs: [cx.config.width] }
}

pub(crate) fn forward(cx: &Context<'_>, x: &Buffer, keep: Keep) -> Result<(Buffer, KeptAttention)> {
    let norm = norm::forward(cx, cx.tensors().input_norm, x)?;
    let (heads, qkv) = queries_keys_values(cx, &norm.out)?;
    let norm = keep.cheap().then_some(norm);
    let (attended, log_sum) = attend(cx, &qkv)?;
    let inner = keep.expensive().then_some((heads, qkv, log_sum));
    let out = add_to(cx, x, &attended)?;
    let attended = inner.map(|(heads, qkv, log_sum)| Attended { heads, qkv, attended, log_sum });
    Ok((out, KeptAttention { norm, attended }))
}

/// Recomputes the buffers that forward did not keep. `out` is forward's output, if it was kept.
pub(crate) fn recompute(
    cx: &Context<'_>,
    x: &Buffer,
    kept: KeptAttention,
    out: Option<Buffer>,
) -> Result<(SavedAttention, Buffer)> {
    let norm = kept.norm.map_or_else(|| norm::forward(cx, cx.tensors().input_norm, x), Ok)?;
    let attended = kept.attended.map_or_else(|| attended(cx, &norm.out), Ok)?;
    let out = out.map_or_else(|| add_to(cx, x, &attended.attended), Ok)?;
    Ok((SavedAttention { norm, attended }, out))
}

/// Computes the gradients from `dout`, which becomes the gradient of `x`; frees `x` and `saved`.
pub(crate) fn backward(
    cx: &Context<'_>,
    gradients: &mut dyn Gradients,
    x: Buffer,
    saved: SavedAttention,
    dout: &mut Buffer,
) -> Result<()> {
    let SavedAttention { norm, attended } = saved;
    let mut dattended = cx.workspace(dout.dtype(), cx.attention().width())?;
    project_out(cx).backward_input(cx, &mut dattended, dout)?;
    project_out(cx).backward_weights(cx, gradients, dout, &attended.attended)?;
    let (heads, dqkv) = attend_backward(cx, dattended, attended)?;
    let dn = queries_keys_values_backward(cx, gradients, dqkv, heads, norm.out)?;
    norm::backward(cx, gradients, cx.tensors().input_norm, dout, &dn, (&x, &norm.inverse_rms))
}

/// Computes attention from the norm's output: all buffers that the output projection's backward
/// reads.
fn attended(cx: &Context<'_>, n: &Buffer) -> Result<Attended> {
    let (heads, qkv) = queries_keys_values(cx, n)?;
    let (attended, log_sum) = attend(cx, &qkv)?;
    Ok(Attended { heads, qkv, attended, log_sum })
}

/// Returns `x + attended · Woᵀ`: `[R, d]`.
fn add_to(cx: &Context<'_>, x: &Buffer, attended: &Buffer) -> Result<Buffer> {
    let mut out = cx.activation(x.dtype(), cx.config.width)?;
    project_out(cx).forward_onto(cx, &mut out, x, attended)?;
    Ok(out)
}

/// Returns the packed queries, keys and values of `n` `[R, d]`, the first two rotated:
/// `[R, H + 2K]`. Also returns the buffers that their norms keep, if they have norms.
fn queries_keys_values(cx: &Context<'_>, n: &Buffer) -> Result<(Option<HeadNorms>, Buffer)> {
    let mut qkv = cx.activation(n.dtype(), cx.attention().packed_width())?;
    project_in(cx).forward(cx, &mut qkv, n)?;
    heads::add_biases(cx, &mut qkv)?;
    let (heads, mut qkv) = heads::norms(cx, qkv)?;
    cx.device.kernels().rope(qkv.view_mut(), cx.rope())?;
    Ok((heads, qkv))
}

/// Returns dn `[R, d]`; frees `dqkv`, `heads` and `n`.
fn queries_keys_values_backward(
    cx: &Context<'_>,
    gradients: &mut dyn Gradients,
    mut dqkv: Buffer,
    heads: Option<HeadNorms>,
    n: Buffer,
) -> Result<Buffer> {
    cx.device.kernels().rope(dqkv.view_mut(), Rope { inverse: true, ..cx.rope() })?;
    heads::norms_backward(cx, gradients, &mut dqkv, heads)?;
    heads::biases_backward(cx, gradients, &dqkv)?;
    let mut dn = cx.workspace(n.dtype(), cx.config.width)?;
    project_in(cx).backward_input(cx, &mut dn, &dqkv)?;
    project_in(cx).backward_weights(cx, gradients, &dqkv, &n)?;
    Ok(dn)
}

/// Returns the attended values `[R, H]` and the logarithms of the softmaxes' denominators, f32
/// `[batch, heads, T]`.
fn attend(cx: &Context<'_>, qkv: &Buffer) -> Result<(Buffer, Buffer)> {
    let shape = cx.attention();
    let mut attended = cx.activation(qkv.dtype(), shape.width())?;
    let mut log_sum = cx.activation(DType::F32, shape.heads)?;
    cx.device.kernels().attention(Attention {
        out: attended.view_mut(),
        log_sum: log_sum.view_mut(),
        qkv: qkv.view(),
        shape,
    })?;
    Ok((attended, log_sum))
}

/// Returns dqkv `[R, H + 2K]` and the buffers that the head norms kept; frees all other arguments.
fn attend_backward(
    cx: &Context<'_>,
    dattended: Buffer,
    saved: Attended,
) -> Result<(Option<HeadNorms>, Buffer)> {
    let shape = cx.attention();
    let Attended { heads, qkv, attended, log_sum } = saved;
    let mut dqkv = cx.workspace(qkv.dtype(), shape.packed_width())?;
    cx.device.kernels().attention_backward(AttentionBackward {
        dqkv: dqkv.view_mut(),
        dout: dattended.view(),
        qkv: qkv.view(),
        out: attended.view(),
        log_sum: log_sum.view(),
        shape,
    })?;
    Ok((heads, dqkv))
}
