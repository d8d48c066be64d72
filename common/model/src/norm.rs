//! RMSNorm (Zhang & Sennrich, 2019) of the residual stream.

use crate::Gradients;
use crate::context::Context;
use crate::tensors::{gradient, weight};
use device::{Buffer, DType, Result, RmsNorm, RmsNormBackward};

/// The result of a norm's forward.
pub(crate) struct Norm {
    /// `1 / rms(x)` per row: f32 `[R]`.
    pub(crate) inverse_rms: Buffer,
    /// The normalised rows: `[R, d]`.
    pub(crate) out: Buffer,
}

/// Computes `x / rms(x) · weight` per row of `x` `[R, d]`, with the weights of tensor `tensor`.
pub(crate) fn forward(cx: &Context<'_>, tensor: usize, x: &Buffer) -> Result<Norm> {
    let width = cx.config.width;
    let mut inverse_rms = cx.activation(DType::F32, 1)?;
    let mut out = cx.activation(x.dtype(), width)?;
    cx.device.kernels().rms_norm(RmsNorm {
        out: out.view_mut(),
        inverse_rms: inverse_rms.view_mut(),
        x: x.view(),
        weight: weight(cx.weights, tensor),
        shape: cx.row_shape(width).into(),
        eps: cx.config.norm_eps,
    })?;
    Ok(Norm { inverse_rms, out })
}

/// Adds to `dx` and computes the gradient of tensor `tensor`, given `dout`, the gradient of
/// [`Norm::out`].
pub(crate) fn backward(
    cx: &Context<'_>,
    gradients: &mut dyn Gradients,
    tensor: usize,
    dx: &mut Buffer,
    dout: &Buffer,
    (x, inverse_rms): (&Buffer, &Buffer),
) -> Result<()> {
    let (dweight, write) = gradient(gradients, tensor);
    cx.device.kernels().rms_norm_backward(RmsNormBackward {
        dx: dx.view_mut(),
        dweight,
        write,
        dout: Some(dout.view()),
        x: x.view(),
        weight: weight(cx.weights, tensor),
        inverse_rms: inverse_rms.view(),
        shape: cx.row_shape(cx.config.width).into(),
    })
}
