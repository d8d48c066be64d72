//! A model's buffers as its memory contract names them, and closed forms of their peaks.

use super::F32;
use model::Checkpointing;
use prediction::Job;

/// Bytes of a micro-batch's buffers, per row and in the letters of the model's contract.
pub(super) struct Letters {
    rows: u64,
    /// width, heads·head_dim, (heads + 2·kv_heads)·head_dim, heads, feed_forward, vocabulary
    d: u64,
    h: u64,
    qkv: u64,
    log_sum: u64,
    f: u64,
    v: u64,
    layers: u64,
    checkpointing: Checkpointing,
}

impl Letters {
    pub(super) fn of(job: &Job) -> Self {
        let c = &job.config;
        let of = |width: usize| width as u64 * F32;
        Letters {
            rows: (job.batch_size * job.tokens) as u64,
            d: of(c.width),
            h: of(c.heads * c.head_dim),
            qkv: of((c.heads + 2 * c.kv_heads) * c.head_dim),
            log_sum: of(c.heads),
            f: of(c.feed_forward),
            v: of(c.vocabulary),
            layers: c.layers as u64,
            checkpointing: job.checkpointing,
        }
    }

    /// Returns the bytes that one block's backward reads, its input included.
    fn block(&self) -> u64 {
        4 * self.d + 2 * F32 + self.qkv + self.h + self.log_sum + 3 * self.f
    }

    /// Returns the bytes that one block keeps between forward and backward, its input included.
    fn kept(&self) -> u64 {
        match self.checkpointing {
            Checkpointing::None => self.block(),
            Checkpointing::Selective => self.block() - 2 * (self.d + F32) - self.f,
            Checkpointing::Block => self.d,
        }
    }

    /// Returns the maximum number of bytes in one block's forward, input and output included: just
    /// before the first buffer is freed.
    fn block_forward(&self) -> u64 {
        let Letters { d, h, qkv, log_sum, f, .. } = *self;
        let norm = d + F32;
        let attended = d + qkv + h + log_sum;
        let moments = match self.checkpointing {
            Checkpointing::None => vec![self.block() + d],
            Checkpointing::Selective => {
                vec![d + norm + qkv, attended + d + norm + 2 * f, attended + d + 3 * f + d]
            }
            Checkpointing::Block => {
                vec![d + norm + qkv, attended, 2 * d + h, 2 * d + norm + 2 * f, 2 * d + 3 * f, 3 * d + f]
            }
        };
        moments.into_iter().max().unwrap()
    }

    /// Returns the maximum number of bytes kept at once: after forward (the batch, all blocks, and
    /// the head), or in the last block, during its forward or after its recomputation.
    pub(super) fn activations(&self) -> u64 {
        let head = self.kept() + 2 * self.d + F32 + self.v;
        let most = head.max(self.block_forward()).max(self.block());
        self.rows * (2 * F32 + (self.layers - 1) * self.kept() + most)
    }

    /// Returns the bytes of backward's own buffers: in the head, in either half of a block.
    pub(super) fn workspace(&self) -> u64 {
        let Letters { d, h, qkv, f, .. } = *self;
        let block = [3 * f, 2 * f + d, h + qkv, qkv + d].into_iter().max().unwrap();
        self.rows * [F32, 2 * d, d + block].into_iter().max().unwrap()
    }

    /// Returns the maximum number of bytes at once in a block's backward, without the buffers of
    /// earlier blocks: the block's remaining buffers, and workspace.
    fn block_backward(&self) -> u64 {
        let [d, h, qkv, log_sum, f, row] =
            [self.d, self.h, self.qkv, self.log_sum, self.f, F32].map(|bytes| bytes as i64);
        let feed_forward = [d + f, d + 2 * f, 2 * d - f];
        let freed = 3 * f + 2 * d + row;
        let attention = [d + h, d + h + qkv, 2 * d - h - log_sum].map(|bytes| bytes - freed);
        let most = feed_forward.into_iter().chain(attention).max().unwrap();
        self.block() + most as u64
    }

    /// Returns the maximum number of bytes at once in the head, forward or backward.
    fn head(&self) -> u64 {
        let Letters { d, v, .. } = *self;
        (2 * d + F32 + v + d.max(F32)).max(3 * d + F32)
    }

    /// Returns the maximum number of bytes of activations and workspace at once. All blocks are
    /// live until the last one's backward, so it is the peak of the head or of the last block.
    pub(super) fn together(&self) -> u64 {
        let most = (self.kept() + self.head()).max(self.block_forward()).max(self.block_backward());
        self.rows * (2 * F32 + (self.layers - 1) * self.kept() + most)
    }

    /// Returns the maximum number of bytes at once in one step of ZeRO-3 with a bucket per unit,
    /// one unit gathered ahead and untied weights, without model states: the largest of all layers'
    /// forward and backward.
    pub(super) fn zero3(&self, padded: &[u64]) -> u64 {
        let last = padded.len() - 1;
        let unit = |layer: usize| padded.get(layer).copied().unwrap_or(0) * F32;
        let before = |layer: usize| 2 * F32 + (layer as u64 - 1) * self.kept();
        let mut most = self.rows * (2 * F32 + self.d) + 2 * unit(0) + unit(1);
        for layer in 1..last {
            let forward = self.rows * (before(layer) + self.block_forward()) + unit(layer) + unit(layer + 1);
            let gathered = unit(layer) + unit(layer - 1);
            let buckets = unit(layer) + unit(layer + 1);
            let backward = self.rows * (before(layer) + self.block_backward()) + gathered + buckets;
            most = most.max(forward).max(backward);
        }
        let d = self.d;
        let head_forward = self.rows * (before(last) + 2 * d + F32 + self.v + F32) + unit(last);
        let head_backward = (2 * d + F32 + self.v + d).max(3 * d + F32);
        let gathered = unit(last) + unit(last - 1);
        most.max(head_forward).max(self.rows * (before(last) + head_backward) + gathered + unit(last))
    }
}
