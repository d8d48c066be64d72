//! A transformer block: attention, then a feed-forward layer, each on the norm of the residual stream and added to it.
//!
//! [`attention`] and [`feed_forward`] hold the two halves, with their tables of allocations. A block allocates and frees
//! nothing beside what its halves do.

pub mod attention;
pub mod feed_forward;

use crate::context::{Batch, Model};
use crate::{Gradients, Weights};
use attention::SavedAttention;
use device::{Buffer, Class, Device, Result};
use feed_forward::SavedFeedForward;

/// What a block's forward keeps for its backward.
pub struct SavedBlock {
    attention: SavedAttention,
    feed_forward: SavedFeedForward,
}

impl Model {
    /// A block's forward: `x` `[R, d]` to its output `[R, d]`, and what backward needs if it is to be kept.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn block(
        &self,
        device: &Device,
        weights: &dyn Weights,
        x: Buffer,
        batch: Batch,
        keep: bool,
    ) -> Result<(Buffer, Option<SavedBlock>)> {
        let cx = self.context(device, weights, batch);
        let (x, attention) = attention::forward(&cx, x, keep)?;
        let (x, feed_forward) = feed_forward::forward(&cx, x, keep)?;
        let saved = attention
            .zip(feed_forward)
            .map(|(attention, feed_forward)| SavedBlock { attention, feed_forward });
        Ok((x, saved))
    }

    /// Backward of [`Model::block`]: from `dout` `[R, d]`, the gradients of the block's tensors and of its input, which is
    /// returned in `dout`'s place.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn block_backward(
        &self,
        device: &Device,
        weights: &dyn Weights,
        gradients: &mut dyn Gradients,
        saved: SavedBlock,
        mut dout: Buffer,
        batch: Batch,
    ) -> Result<Buffer> {
        let cx = self.context(device, weights, batch);
        feed_forward::backward(&cx, gradients, saved.feed_forward, &mut dout)?;
        attention::backward(&cx, gradients, saved.attention, &mut dout)?;
        Ok(dout)
    }
}

/// A copy of `x`: where a half adds its result to the residual stream.
fn residual(device: &Device, x: &Buffer) -> Result<Buffer> {
    let mut out = device.allocate(Class::Activations, x.dtype(), x.len())?;
    device.kernels().copy(out.view_mut(), x.view())?;
    Ok(out)
}
