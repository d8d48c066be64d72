//! The architecture's numbers.

mod hugging_face;
mod presets;

use crate::{Checkpointing, Layout, ModelError};

/// A Llama-style model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Preset or directory name.
    pub name: String,
    /// Vocabulary size (V).
    pub vocabulary: usize,
    /// Width of the residual stream (d).
    pub width: usize,
    /// Transformer blocks (L).
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head; even.
    pub head_dim: usize,
    /// Width of the feed-forward layer (f).
    pub feed_forward: usize,
    /// Sequence length that the model is trained with unless told otherwise (T).
    pub sequence_length: usize,
    /// Sequences per micro-batch and rank unless told otherwise.
    pub batch_size: usize,
    /// Longest sequence that the model is meant for. Nothing is sized by it.
    pub max_positions: usize,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Whether the head uses the embedding's weights.
    pub tied: bool,
}

/// Largest width, vocabulary, number of heads and the like: with these, no count of parameters leaves 64 bits.
const LARGEST: usize = 1 << 24;

/// Most blocks: so that every tensor can be a unit, and units be numbered with 16 bits.
const MOST_LAYERS: usize = 4096;

impl ModelConfig {
    /// Whether the numbers make a model.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] names the first numbers that do not fit together, and what would.
    pub fn validate(&self) -> Result<(), ModelError> {
        match self.counts().and_then(|()| self.heads_fit()).and_then(|()| self.floats()) {
            Ok(()) => Ok(()),
            Err(problem) => Err(ModelError::Invalid { name: self.name.clone(), problem }),
        }
    }

    fn counts(&self) -> Result<(), String> {
        let numbers = [
            ("vocabulary", self.vocabulary),
            ("width", self.width),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("feed_forward", self.feed_forward),
            ("sequence_length", self.sequence_length),
            ("batch_size", self.batch_size),
        ];
        for (name, number) in numbers {
            let most = match name {
                "layers" => MOST_LAYERS,
                // These are the run's affair.
                "sequence_length" | "batch_size" => usize::MAX,
                _ => LARGEST,
            };
            match number {
                0 => return Err(format!("`{name}` is 0; it must be at least 1")),
                number if number > most => {
                    return Err(format!("`{name}` is {number}; it must be at most {most}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn heads_fit(&self) -> Result<(), String> {
        let ModelConfig { width, heads, kv_heads, head_dim, .. } = self;
        if width % heads != 0 {
            return Err(format!(
                "{heads} heads do not divide a width of {width} evenly; `heads` must divide `width`"
            ));
        }
        if heads * head_dim > LARGEST {
            return Err(format!(
                "{heads} heads of {head_dim} elements are {} together; they must be at most {LARGEST}",
                heads * head_dim
            ));
        }
        if heads % kv_heads != 0 {
            return Err(format!(
                "{heads} query heads cannot share {kv_heads} key/value heads evenly; `kv_heads` must divide `heads`"
            ));
        }
        if head_dim % 2 != 0 {
            return Err(format!(
                "`head_dim` is {head_dim}; rotary embedding turns pairs of elements, so it must be even"
            ));
        }
        Ok(())
    }

    fn floats(&self) -> Result<(), String> {
        for (name, number) in [("norm_eps", self.norm_eps), ("rope_theta", self.rope_theta)] {
            if !(number.is_finite() && number > 0.0) {
                return Err(format!("`{name}` is {number}; it must be a positive number"));
            }
        }
        Ok(())
    }

    /// Floating-point operations of forward and backward per token, in sequences of `tokens` tokens:
    /// 6 · (parameters without the embedding's table) + 12 · layers · heads · head_dim · tokens.
    ///
    /// Each weight takes a multiplication and an addition in forward and twice that in backward (Kaplan et al., 2020);
    /// a table that is only looked up takes none, but a tied one is also the head's matrix and counts. Attention's two
    /// products are counted without halving for causality, as the field does. heads · head_dim is the width in most models.
    pub fn flops_per_token(&self, tokens: usize) -> u64 {
        let table = if self.tied { 0 } else { (self.vocabulary * self.width) as u64 };
        let attention = (self.layers * self.heads * self.head_dim * tokens) as u64;
        6 * (Layout::new(self).parameters() - table) + 12 * attention
    }

    /// Floating-point operations that `checkpointing` adds to [`ModelConfig::flops_per_token`], in all blocks together.
    ///
    /// Matrix products and attention count as they do there; a norm takes 4 operations per element (square, add, scale,
    /// weigh) and the gated product 5 (exponential, add, divide, two products). Rotation and softmax are left out.
    pub fn recomputed_flops_per_token(&self, tokens: usize, checkpointing: Checkpointing) -> u64 {
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        let cheap = 2 * 4 * self.width + 5 * self.feed_forward;
        let products = 2 * self.width * (2 * queries + 2 * keys + 2 * self.feed_forward);
        let block = match checkpointing {
            Checkpointing::None => 0,
            Checkpointing::Selective => cheap,
            Checkpointing::Block => cheap + products + 4 * queries * tokens,
        };
        (self.layers * block) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl Fn(&mut ModelConfig)) -> String {
        let mut config = ModelConfig::tiny();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_numbers() {
        insta::assert_snapshot!(problem(|c| c.layers = 0), @"model `tiny`: `layers` is 0; it must be at least 1");
        insta::assert_snapshot!(problem(|c| c.layers = 1 << 40), @"model `tiny`: `layers` is 1099511627776; it must be at most 4096");
        insta::assert_snapshot!(problem(|c| c.width = 1 << 60), @"model `tiny`: `width` is 1152921504606846976; it must be at most 16777216");
        insta::assert_snapshot!(problem(|c| c.head_dim = 1 << 23), @"model `tiny`: 4 heads of 8388608 elements are 33554432 together; they must be at most 16777216");
        insta::assert_snapshot!(problem(|c| c.heads = 3), @"model `tiny`: 3 heads do not divide a width of 128 evenly; `heads` must divide `width`");
        insta::assert_snapshot!(problem(|c| c.kv_heads = 3), @"model `tiny`: 4 query heads cannot share 3 key/value heads evenly; `kv_heads` must divide `heads`");
        insta::assert_snapshot!(problem(|c| c.head_dim = 5), @"model `tiny`: `head_dim` is 5; rotary embedding turns pairs of elements, so it must be even");
        insta::assert_snapshot!(problem(|c| c.norm_eps = f32::NAN), @"model `tiny`: `norm_eps` is NaN; it must be a positive number");
    }

    #[test]
    fn flops_of_tiny_by_hand() {
        // Per block: q, k, v, o 4 · 128², gate, up, down 3 · 128 · 384, two norms; final norm; head 256 · 128.
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
        // Per block: norms 2 · 4 · 128, gated product 5 · 384; q, k, v, o 4 · 128², gate and up 2 · 128 · 384; attention.
        let cheap = 1024 + 1920;
        let products = 2 * (4 * 128 * 128 + 2 * 128 * 384);
        assert_eq!(recomputed(Checkpointing::None), 0);
        assert_eq!(recomputed(Checkpointing::Selective), 4 * cheap);
        assert_eq!(recomputed(Checkpointing::Block), 4 * (cheap + products + 4 * 128 * 64));
    }

    #[test]
    fn a_checkpointed_block_costs_forward_without_its_last_product() {
        // A third of what flops_per_token counts for a block is forward; what remains is element by element work.
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
