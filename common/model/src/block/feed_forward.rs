//! The second half of a block: `out = x + (silu(gate) · up) · Wdownᵀ`, with `gate, up = norm(x) · Wgate_upᵀ`
//! (SwiGLU; Shazeer, 2020).
//!
//! Forward, from x \[R·d·e, activations\]. The last column is freed only if nothing is kept; what is kept otherwise is
//! everything but the output, x included.
//!
//! | step | allocates (activations) | frees unless kept |
//! |---|---|---|
//! | norm | inverse_rms \[R·4\], n \[R·d·e\] | |
//! | gate_up = n · Wgate_upᵀ | gate_up \[R·2f·e\] | n, inverse_rms |
//! | h = silu(gate) · up | h \[R·f·e\] | gate_up |
//! | out = x + h · Wdownᵀ | out \[R·d·e\] | h, x |
//!
//! Backward, from dout \[R·d·e, workspace\], which becomes dx.
//!
//! | step | allocates (workspace) | frees |
//! |---|---|---|
//! | dh = dout · Wdown, dWdown = doutᵀ · h | dh \[R·f·e\] | h |
//! | SwiGLU backward | dgate_up \[R·2f·e\] | dh, gate_up |
//! | dn = dgate_up · Wgate_up, dWgate_up = dgate_upᵀ · n | dn \[R·d·e\] | dgate_up, n |
//! | dout += norm backward | | dn, x, inverse_rms |

use super::residual;
use crate::Gradients;
use crate::context::Context;
use crate::layout::block::{DOWN, GATE_UP, POST_NORM};
use crate::linear::Projection;
use crate::norm::{self, Norm};
use device::{Buffer, Result, Write};

/// What forward keeps for backward.
pub(crate) struct SavedFeedForward {
    x: Buffer,
    norm: Norm,
    gate_up: Buffer,
    h: Buffer,
}

/// The residual stream to packed gates and ups.
fn project_in(cx: &Context<'_>) -> Projection<2> {
    Projection { first: GATE_UP.start, inputs: cx.config.width, outputs: [cx.config.feed_forward; 2] }
}

/// Hidden values back to the residual stream.
fn project_out(cx: &Context<'_>) -> Projection<1> {
    Projection { first: DOWN, inputs: cx.config.feed_forward, outputs: [cx.config.width] }
}

pub(crate) fn forward(cx: &Context<'_>, x: Buffer, keep: bool) -> Result<(Buffer, Option<SavedFeedForward>)> {
    let norm = norm::forward(cx, POST_NORM, &x)?;
    let mut gate_up = cx.activation(x.dtype(), 2 * cx.config.feed_forward)?;
    project_in(cx).forward(cx, &mut gate_up, &norm.out, Write::Replace)?;
    let norm = keep.then_some(norm);
    let h = gated(cx, &gate_up)?;
    let gate_up = keep.then_some(gate_up);
    let mut out = residual(cx.device, &x)?;
    project_out(cx).forward(cx, &mut out, &h, Write::Accumulate)?;
    let saved = norm.zip(gate_up).map(|(norm, gate_up)| SavedFeedForward { x, norm, gate_up, h });
    Ok((out, saved))
}

pub(crate) fn backward(
    cx: &Context<'_>,
    gradients: &mut dyn Gradients,
    saved: SavedFeedForward,
    dout: &mut Buffer,
) -> Result<()> {
    let SavedFeedForward { x, norm, gate_up, h } = saved;
    let mut dh = cx.workspace(dout.dtype(), cx.config.feed_forward)?;
    project_out(cx).backward_input(cx, &mut dh, dout)?;
    project_out(cx).backward_weights(cx, gradients, dout, &h)?;
    drop(h);
    let dgate_up = gated_backward(cx, dh, gate_up)?;
    let mut dn = cx.workspace(dout.dtype(), cx.config.width)?;
    project_in(cx).backward_input(cx, &mut dn, &dgate_up)?;
    project_in(cx).backward_weights(cx, gradients, &dgate_up, &norm.out)?;
    drop((dgate_up, norm.out));
    norm::backward(cx, gradients, POST_NORM, dout, &dn, (&x, &norm.inverse_rms))
}

/// `h = silu(gate) · up`: `[R, f]`.
fn gated(cx: &Context<'_>, gate_up: &Buffer) -> Result<Buffer> {
    let shape = cx.row_shape(cx.config.feed_forward);
    let mut h = cx.activation(gate_up.dtype(), shape.width)?;
    cx.device.kernels().swiglu(h.view_mut(), gate_up.view(), shape)?;
    Ok(h)
}

/// Returns dgate_up `[R, 2f]`; frees `dh` and `gate_up`.
fn gated_backward(cx: &Context<'_>, dh: Buffer, gate_up: Buffer) -> Result<Buffer> {
    let shape = cx.row_shape(cx.config.feed_forward);
    let mut dgate_up = cx.workspace(dh.dtype(), 2 * shape.width)?;
    cx.device.kernels().swiglu_backward(dgate_up.view_mut(), dh.view(), gate_up.view(), shape)?;
    Ok(dgate_up)
}
