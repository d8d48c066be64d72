//! A transformer block: attention, then a feed-forward layer. Each reads the norm of the residual
//! stream and is added to the stream.
//!
//! [`attention`] and [`feed_forward`] hold the two halves, with their tables of allocations. The
//! halves allocate every buffer of a block. The block's input x is freed after attention if nothing
//! is kept. x2, the output of the first half, is freed after the feed-forward layer unless [`Keep`]
//! keeps expensive buffers.
//!
//! # What to keep
//!
//! Backward recomputes the buffers that forward has not kept ([`Model::block_recompute`]) and then
//! continues as if all had been kept, so the result is the same to the bit. The table lists the
//! cost in operations per byte that need not be kept. T is the number of tokens per sequence, and
//! an element has 4 bytes:
//!
//! | buffer | bytes per token | operations to compute it again | operations per byte |
//! |---|---|---|---|
//! | n, twice | 4·d | norm: 4·d | 1 |
//! | h | 4·f | silu(gate) · up: 5·f | 1.25 |
//! | qkv | 4·(H+2K) | product: 2·d·(H+2K), and the rotation | d / 2 |
//! | attended, log_sum | 4·H + 4·heads | attention: 4·T·H | about T |
//! | x2 | 4·d | product: 2·H·d | H / 2 |
//! | gate_up | 8·f | product: 4·d·f | d / 2 |
//!
//! So [`Keep::Selective`] drops both norms and h, which are cheap to recompute, and keeps the rest.
//! In the preset `tiny` (d = H = K = 128, f = 384, T = 128), keeping everything takes 8,728 bytes
//! per token and block. Selective keeps 6,160 bytes, 29 % fewer, and recomputes 2,944 operations, a
//! fifth of a percent of a step's. [`Keep::Input`] keeps 512 bytes, 94 % fewer, and recomputes all
//! of forward except its last product.

pub mod attention;
pub mod feed_forward;
pub mod heads;

use crate::context::{Batch, Model};
use crate::{Gradients, Keep, Weights};
use attention::{KeptAttention, SavedAttention};
use device::{Buffer, Device, Result};
use feed_forward::{KeptFeedForward, SavedFeedForward};

/// The buffers that a block's forward keeps for its backward: its input, and as many more as
/// [`Keep`] says.
pub struct SavedBlock {
    x: Buffer,
    attention: KeptAttention,
    x2: Option<Buffer>,
    feed_forward: KeptFeedForward,
}

impl SavedBlock {
    /// Returns the buffers that [`Keep::Input`] keeps of a block with input `x`.
    pub fn of_input(x: Buffer) -> Self {
        SavedBlock {
            x,
            attention: KeptAttention::default(),
            x2: None,
            feed_forward: KeptFeedForward::default(),
        }
    }

    /// Returns the block's input; frees the other buffers.
    pub fn into_input(self) -> Buffer {
        self.x
    }
}

/// All buffers that a block's backward reads.
pub struct CompleteBlock {
    x: Buffer,
    attention: SavedAttention,
    x2: Buffer,
    feed_forward: SavedFeedForward,
}

impl Model {
    /// Computes a block's forward. Returns its output `[R, d]` for `x` `[R, d]`, and the kept
    /// buffers if a backward follows.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn block(
        &self,
        device: &Device,
        weights: &dyn Weights,
        x: Buffer,
        batch: Batch,
        keep: Keep,
    ) -> Result<(Buffer, Option<SavedBlock>)> {
        let cx = self.context(device, weights, batch);
        let (x2, attention) = attention::forward(&cx, &x, keep)?;
        let x = keep.input().then_some(x);
        let (out, feed_forward) = feed_forward::forward(&cx, &x2, keep)?;
        let x2 = keep.expensive().then_some(x2);
        Ok((out, x.map(|x| SavedBlock { x, attention, x2, feed_forward })))
    }

    /// Recomputes the buffers that a block's forward did not keep. Does nothing if all were kept.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn block_recompute(
        &self,
        device: &Device,
        weights: &dyn Weights,
        saved: SavedBlock,
        batch: Batch,
    ) -> Result<CompleteBlock> {
        let cx = self.context(device, weights, batch);
        let SavedBlock { x, attention, x2, feed_forward } = saved;
        let (attention, x2) = attention::recompute(&cx, &x, attention, x2)?;
        let feed_forward = feed_forward::recompute(&cx, &x2, feed_forward)?;
        Ok(CompleteBlock { x, attention, x2, feed_forward })
    }

    /// Computes the backward of [`Model::block`] from `dout` `[R, d]`: the gradients of the block's
    /// tensors, and the gradient of its input, which it returns in `dout`'s place.
    ///
    /// # Errors
    /// `OutOfMemory`, or a kernel's.
    pub fn block_backward(
        &self,
        device: &Device,
        weights: &dyn Weights,
        gradients: &mut dyn Gradients,
        saved: CompleteBlock,
        mut dout: Buffer,
        batch: Batch,
    ) -> Result<Buffer> {
        let cx = self.context(device, weights, batch);
        let CompleteBlock { x, attention, x2, feed_forward } = saved;
        feed_forward::backward(&cx, gradients, x2, feed_forward, &mut dout)?;
        attention::backward(&cx, gradients, x, attention, &mut dout)?;
        Ok(dout)
    }
}
