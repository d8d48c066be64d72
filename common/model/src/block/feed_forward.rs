//! The second half of a block: `out = x + (silu(gate) · up) · Wdownᵀ`, with `gate, up = norm(x) ·
//! Wgate_upᵀ` (SwiGLU; Shazeer, 2020).
//!
//! Forward, from x \[R·d·e, activations\]. The buffers in the last columns are freed after their
//! last use unless they are kept. Cheap ones are kept only if everything is kept, expensive ones
//! also if the choice is selective.
//!
//! | step | allocates (activations) | frees, if cheap | frees, if expensive |
//! |---|---|---|---|
//! | norm | inverse_rms \[R·4\], n \[R·d·e\] | | |
//! | gate_up = n · Wgate_upᵀ | gate_up \[R·2f·e\] | n, inverse_rms | |
//! | h = silu(gate) · up | h \[R·f·e\] | | gate_up |
//! | out = x + h · Wdownᵀ | out \[R·d·e\] | h | |
//!
//! Recomputation allocates the buffers that forward freed, in forward's order, and frees none. It
//! ends with h: backward does not read out.
//!
//! Backward, from dout \[R·d·e, workspace\], which becomes dx.
//!
//! | step | allocates (workspace) | frees |
//! |---|---|---|
//! | dh = dout · Wdown, dWdown = doutᵀ · h | dh \[R·f·e\] | h |
//! | SwiGLU backward | dgate_up \[R·2f·e\] | dh, gate_up |
//! | dn = dgate_up · Wgate_up, dWgate_up = dgate_upᵀ · n | dn \[R·d·e\] | dgate_up, n |
//! | dout += norm backward | | dn, x, inverse_rms |

use crate::context::Context;
use crate::linear::Projection;
use crate::norm::{self, Norm};
use crate::{Gradients, Keep};
use device::{Buffer, Result, Swiglu, SwigluBackward};

/// The buffers that forward keeps, without x: as many as [`Keep`] says.
#[derive(Default)]
pub(crate) struct KeptFeedForward {
    norm: Option<Norm>,
    gate_up: Option<Buffer>,
    h: Option<Buffer>,
}

/// The buffers that backward reads, without x.
pub(crate) struct SavedFeedForward {
    norm: Norm,
    gate_up: Buffer,
    h: Buffer,
}

/// Returns the projection from the residual stream to packed gates and ups.
fn project_in(cx: &Context<'_>) -> Projection<2> {
    Projection { first: cx.tensors().gate, inputs: cx.config.width, outputs: [cx.config.feed_forward; 2] }
}

/// Returns the projection from hidden values back to the residual stream.
fn project_out(cx: &Context<'_>) -> Projection<1> {
    Projection { first: cx.tensors().down, inputs: cx.config.feed_forward, outputs: [cx.config.width] }
}

pub(crate) fn forward(cx: &Context<'_>, x: &Buffer, keep: Keep) -> Result<(Buffer, KeptFeedForward)> {
    let norm = norm::forward(cx, cx.tensors().post_norm, x)?;
    let gate_up = gates_ups(cx, &norm.out)?;
    let norm = keep.cheap().then_some(norm);
    let h = gated(cx, &gate_up)?;
    let gate_up = keep.expensive().then_some(gate_up);
    let mut out = cx.activation(x.dtype(), cx.config.width)?;
    project_out(cx).forward_onto(cx, &mut out, x, &h)?;
    Ok((out, KeptFeedForward { norm, gate_up, h: keep.cheap().then_some(h) }))
}

/// Recomputes the buffers that forward did not keep.
pub(crate) fn recompute(cx: &Context<'_>, x: &Buffer, kept: KeptFeedForward) -> Result<SavedFeedForward> {
    let norm = kept.norm.map_or_else(|| norm::forward(cx, cx.tensors().post_norm, x), Ok)?;
    let gate_up = kept.gate_up.map_or_else(|| gates_ups(cx, &norm.out), Ok)?;
    let h = kept.h.map_or_else(|| gated(cx, &gate_up), Ok)?;
    Ok(SavedFeedForward { norm, gate_up, h })
}

/// Computes the gradients from `dout`, which becomes the gradient of `x`; frees `x` and `saved`.
pub(crate) fn backward(
    cx: &Context<'_>,
    gradients: &mut dyn Gradients,
    x: Buffer,
    saved: SavedFeedForward,
    dout: &mut Buffer,
) -> Result<()> {
    let SavedFeedForward { norm, gate_up, h } = saved;
    let mut dh = cx.workspace(dout.dtype(), cx.config.feed_forward)?;
    project_out(cx).backward_input(cx, &mut dh, dout)?;
    project_out(cx).backward_weights(cx, gradients, dout, &h)?;
    drop(h);
    let dgate_up = gated_backward(cx, dh, gate_up)?;
    let mut dn = cx.workspace(dout.dtype(), cx.config.width)?;
    project_in(cx).backward_input(cx, &mut dn, &dgate_up)?;
    project_in(cx).backward_weights(cx, gradients, &dgate_up, &norm.out)?;
    drop((dgate_up, norm.out));
    norm::backward(cx, gradients, cx.tensors().post_norm, dout, &dn, (&x, &norm.inverse_rms))
}

/// Returns the packed gates and ups of `n` `[R, d]`: `[R, 2f]`.
fn gates_ups(cx: &Context<'_>, n: &Buffer) -> Result<Buffer> {
    let mut gate_up = cx.activation(n.dtype(), 2 * cx.config.feed_forward)?;
    project_in(cx).forward(cx, &mut gate_up, n)?;
    Ok(gate_up)
}

/// Returns `h = silu(gate) · up`: `[R, f]`.
fn gated(cx: &Context<'_>, gate_up: &Buffer) -> Result<Buffer> {
    let shape = cx.row_shape(cx.config.feed_forward);
    let mut h = cx.activation(gate_up.dtype(), shape.width)?;
    cx.device.kernels().swiglu(Swiglu { out: h.view_mut(), gate_up: gate_up.view(), shape })?;
    Ok(h)
}

/// Returns dgate_up `[R, 2f]`; frees `dh` and `gate_up`.
fn gated_backward(cx: &Context<'_>, dh: Buffer, gate_up: Buffer) -> Result<Buffer> {
    let shape = cx.row_shape(cx.config.feed_forward);
    let mut dgate_up = cx.workspace(dh.dtype(), 2 * shape.width)?;
    cx.device.kernels().swiglu_backward(SwigluBackward {
        dgate_up: dgate_up.view_mut(),
        dout: dh.view(),
        gate_up: gate_up.view(),
        shape,
    })?;
    Ok(dgate_up)
}
