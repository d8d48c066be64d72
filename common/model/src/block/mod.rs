//! A transformer block: attention, then a feed-forward layer, each on the norm of the residual
//! stream and added to it.
//!
//! [`attention`] and [`feed_forward`] hold the two halves, with their tables of allocations. The
//! halves allocate every buffer of a block. Its input x is freed after attention if nothing is
//! kept. x2, the output of the first half, is freed after the feed-forward layer unless [`Keep`]
//! keeps expensive buffers.
//!
//! # What to keep
//!
//! Backward computes again what forward has not kept ([`Model::block_recompute`]) and then
//! continues as if everything had been kept, so its bits are the same. The table has the cost, in
//! operations per byte that need not be kept; T is the number of tokens per sequence, and an
//! element has 4 bytes:
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
//! So [`Keep::Selective`] drops both norms and h, which cost little to compute again, and keeps the
//! rest. In the preset `tiny` (d = H = K = 128, f = 384, T = 128), everything is 8,728 bytes per
//! token and block; selective keeps 6,160 of them, 29 % fewer, for 2,944 operations, a fifth of a
//! percent of a step's; [`Keep::Input`] keeps 512, 94 % fewer, for the cost of forward without its
//! last product.

pub mod attention;
pub mod feed_forward;
pub mod heads;

use crate::context::{Batch, Model};
use crate::{Gradients, Keep, Weights};
use attention::{KeptAttention, SavedAttention};
use device::{Buffer, Device, Result};
use feed_forward::{KeptFeedForward, SavedFeedForward};

/// What a block's forward keeps for its backward: its input, and as much more as [`Keep`] says.
pub struct SavedBlock {
    x: Buffer,
    attention: KeptAttention,
    x2: Option<Buffer>,
    feed_forward: KeptFeedForward,
}

impl SavedBlock {
    /// What [`Keep::Input`] keeps of a block with input `x`.
    pub fn of_input(x: Buffer) -> Self {
        SavedBlock {
            x,
            attention: KeptAttention::default(),
            x2: None,
            feed_forward: KeptFeedForward::default(),
        }
    }

    /// The block's input; frees whatever else is kept.
    pub fn into_input(self) -> Buffer {
        self.x
    }
}

/// Everything that a block's backward reads.
pub struct CompleteBlock {
    x: Buffer,
    attention: SavedAttention,
    x2: Buffer,
    feed_forward: SavedFeedForward,
}

impl Model {
    /// Computes a block's forward: returns its output `[R, d]` for `x` `[R, d]`, and what it keeps
    /// if a backward follows.
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

    /// Computes again what a block's forward did not keep. If everything was kept, it does nothing.
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

    /// Computes the backward of [`Model::block`]: from `dout` `[R, d]`, the gradients of the
    /// block's tensors, and that of its input, which it returns in `dout`'s place.
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
