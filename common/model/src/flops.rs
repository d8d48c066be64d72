//! Floating-point operations per token, in a step and in the recomputation of activation
//! checkpointing.

use crate::{Checkpointing, Layout, ModelConfig};

impl ModelConfig {
    /// Returns the floating-point operations of forward and backward per token, in sequences of
    /// `tokens` tokens: 6 · (parameters without the embedding's table) + 12 · layers · heads ·
    /// head_dim · tokens.
    ///
    /// Each weight takes a multiplication and an addition in forward and twice that in backward
    /// (Kaplan et al., 2020). A table that is only looked up takes none, but a tied table is also
    /// the head's matrix and counts. Attention's two products are not halved for causality,
    /// following common practice. heads · head_dim is the width in most models.
    pub fn flops_per_token(&self, tokens: usize) -> u64 {
        let table = if self.tied { 0 } else { (self.vocabulary * self.width) as u64 };
        let attention = (self.layers * self.heads * self.head_dim * tokens) as u64;
        6 * (Layout::new(self).parameters() - table) + 12 * attention
    }

    /// Returns the floating-point operations that `checkpointing` adds to
    /// [`ModelConfig::flops_per_token`], in all blocks.
    ///
    /// Matrix products and attention count in the same way. A norm takes 4 operations per element
    /// (square, add, scale, weight) and the gated product 5 (exponential, add, divide, two
    /// products). Rotation and softmax are omitted.
    pub fn recomputed_flops_per_token(&self, tokens: usize, checkpointing: Checkpointing) -> u64 {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let cheap = 2 * 4 * self.width + 5 * self.feed_forward;
        let products = 2 * self.width * (2 * queries + 2 * keys + 2 * self.feed_forward);
        let norms = if self.family.norms_heads() { 4 * (queries + keys) } else { 0 };
        let block = match checkpointing {
            Checkpointing::None => 0,
            Checkpointing::Selective => cheap,
            Checkpointing::Block => cheap + norms + products + 4 * queries * tokens,
        };
        (self.layers * block) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flops_of_tiny_by_hand() {
        // Per block: q, k, v, o 4 · 128², gate, up, down 3 · 128 · 384, two norms; final norm; head
        // 256 · 128.
        let weights = 4 * (4 * 128 * 128 + 3 * 128 * 384 + 2 * 128) + 128 + 256 * 128;
        let attention = 12 * 4 * 128 * 64;
        let mut config = ModelConfig::tiny();
        assert_eq!(config.flops_per_token(64), 6 * weights + attention);
        config.tied = true;
        assert_eq!(config.flops_per_token(64), 6 * weights + attention);
    }

    #[test]
    fn recomputed_flops_of_tiny_by_hand() {
        let config = ModelConfig::tiny();
        let recomputed = |checkpointing| config.recomputed_flops_per_token(64, checkpointing);
        // Per block: norms 2 · 4 · 128, gated product 5 · 384; q, k, v, o 4 · 128², gate and up 2 ·
        // 128 · 384; attention.
        let cheap = 1024 + 1920;
        let products = 2 * (4 * 128 * 128 + 2 * 128 * 384);
        assert_eq!(recomputed(Checkpointing::None), 0);
        assert_eq!(recomputed(Checkpointing::Selective), 4 * cheap);
        assert_eq!(recomputed(Checkpointing::Block), 4 * (cheap + products + 4 * 128 * 64));
    }

    #[test]
    fn a_checkpointed_block_costs_forward_without_its_last_product() {
        // Forward is a third of what flops_per_token counts for a block. The remainder is
        // element-wise work.
        let config = ModelConfig { kv_heads: 2, ..ModelConfig::tiny() };
        let without = ModelConfig { layers: config.layers - 1, ..config.clone() };
        let forward = (config.flops_per_token(64) - without.flops_per_token(64)) / 3;
        let last_product = 2 * (config.width * config.feed_forward) as u64;
        let block = config.recomputed_flops_per_token(64, Checkpointing::Block) / config.layers as u64;
        let elements = (8 * config.width + 5 * config.feed_forward) as u64;
        let weights_of_norms = 2 * 2 * config.width as u64;
        assert_eq!(block - elements, forward - last_product - weights_of_norms);
    }
}
