//! The head: final norm, logits, and cross-entropy, the mean negative log-likelihood of the next
//! token.
//!
//! Forward, from x \[R·d·e, activations\].
//!
//! | step | allocates | frees | frees unless kept |
//! |---|---|---|---|
//! | norm | inverse_rms \[R·4, activations\], n \[R·d·e, activations\] | | |
//! | logits = n · Wᵀ | logits \[R·V·e, activations\] | | n, inverse_rms |
//! | losses; logits become their gradients | losses \[R·4, workspace\] | losses | logits, x |
//!
//! A head that keeps anything keeps everything: its backward follows immediately, so recomputation
//! would save no memory.
//!
//! Backward.
//!
//! | step | allocates (workspace) | frees |
//! |---|---|---|
//! | dn = dlogits · W, dW = dlogitsᵀ · n | dn \[R·d·e\] | logits, n |
//! | dx = norm backward | dx \[R·d·e\] | dn, x, inverse_rms |

use crate::context::{Batch, Context, Model};
use crate::linear::Projection;
use crate::norm::{self, Norm};
use crate::{Gradients, Keep, Weights};
use device::{Buffer, Class, CrossEntropy, DType, Device, Fetched, Result};

/// Positions of the head's tensors in [`crate::Layer::tensors`].
const NORM: usize = 0;
const OUTPUT: usize = 1;

/// The sum of a pass's losses, in nats, which a GPU may still be computing.
pub type Losses = Fetched<f32, f64>;

/// The buffers that the head's forward keeps for its backward.
pub struct SavedHead {
    x: Buffer,
    norm: Norm,
    dlogits: Buffer,
}

/// Returns the projection from the residual stream to logits.
fn project(cx: &Context<'_>) -> Projection<1> {
    Projection { first: OUTPUT, inputs: cx.config.width, outputs: [cx.config.vocabulary] }
}

impl Model {
    /// Returns the sum of the losses of all R tokens, in nats, and the buffers that backward needs
    /// if `keep` asks for them. `x`: `[R, d]`; `targets`: u32 `[R]`. Gradients are those of the sum
    /// times `gradient_scale`; one over the number of tokens in the step gives the gradients of the
    /// mean.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    #[allow(clippy::too_many_arguments)]
    pub fn head(
        &self,
        device: &Device,
        weights: &dyn Weights,
        x: Buffer,
        targets: &Buffer,
        gradient_scale: f32,
        batch: Batch,
        keep: Keep,
    ) -> Result<(Losses, Option<SavedHead>)> {
        let cx = self.context(device, weights, batch);
        let norm = norm::forward(&cx, NORM, &x)?;
        let mut logits = logits(&cx, &norm.out)?;
        let norm = keep.input().then_some(norm);
        let losses = cross_entropy(&cx, &mut logits, targets, gradient_scale)?;
        Ok((losses, norm.map(|norm| SavedHead { x, norm, dlogits: logits })))
    }

    /// Computes the backward of [`Model::head`]: the gradients of its tensors. Returns the gradient
    /// of `x`: `[R, d]`.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn head_backward(
        &self,
        device: &Device,
        weights: &dyn Weights,
        gradients: &mut dyn Gradients,
        saved: SavedHead,
        batch: Batch,
    ) -> Result<Buffer> {
        let cx = self.context(device, weights, batch);
        let SavedHead { x, norm, dlogits } = saved;
        let mut dn = cx.workspace(x.dtype(), self.config.width)?;
        project(&cx).backward_input(&cx, &mut dn, &dlogits)?;
        project(&cx).backward_weights(&cx, gradients, &dlogits, &norm.out)?;
        drop((dlogits, norm.out));
        let mut dx = device.zeros(Class::Workspace, x.dtype(), x.len())?;
        norm::backward(&cx, gradients, NORM, &mut dx, &dn, (&x, &norm.inverse_rms))?;
        Ok(dx)
    }

    /// Returns the logits of the last token of each sequence, for generation: f32 `[batch, V]`,
    /// workspace. Frees `x` `[R, d]`.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn logits(&self, device: &Device, weights: &dyn Weights, x: Buffer, batch: Batch) -> Result<Buffer> {
        let last = last_rows(device, x, batch, self.config.width)?;
        let cx = self.context(device, weights, Batch { tokens: 1, ..batch });
        let logits = logits(&cx, &norm::forward(&cx, NORM, &last)?.out)?;
        let mut out = cx.workspace(DType::F32, self.config.vocabulary)?;
        device.kernels().copy(out.view_mut(), logits.view())?;
        Ok(out)
    }
}

/// Returns `n · Wᵀ`: `[R, V]`.
fn logits(cx: &Context<'_>, n: &Buffer) -> Result<Buffer> {
    let mut logits = cx.activation(n.dtype(), cx.config.vocabulary)?;
    project(cx).forward(cx, &mut logits, n)?;
    Ok(logits)
}

/// Returns the sum of the losses. `logits` become their gradients, times `gradient_scale`.
fn cross_entropy(
    cx: &Context<'_>,
    logits: &mut Buffer,
    targets: &Buffer,
    gradient_scale: f32,
) -> Result<Losses> {
    let mut losses = cx.workspace(DType::F32, 1)?;
    let shape = cx.row_shape(cx.config.vocabulary);
    cx.device.kernels().cross_entropy(CrossEntropy {
        losses: losses.view_mut(),
        logits: logits.view_mut(),
        targets: targets.view(),
        gradient_scale,
        shape,
    })?;
    cx.device.fetch(losses.view(), |losses| losses.iter().map(|&loss| f64::from(loss)).sum())
}

/// Returns the last row of each sequence of `x`: `[batch, width]`.
fn last_rows(device: &Device, x: Buffer, batch: Batch, width: usize) -> Result<Buffer> {
    let mut last = device.allocate(Class::Activations, x.dtype(), batch.batch * width)?;
    for sequence in 0..batch.batch {
        let row = (sequence + 1) * batch.tokens - 1;
        let out = last.slice_mut(sequence * width..(sequence + 1) * width);
        device.kernels().copy(out, x.slice(row * width..(row + 1) * width))?;
    }
    Ok(last)
}
