//! The architecture's numbers.

/// A Llama-style model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Preset or directory name.
    pub name: String,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of the residual stream (d).
    pub width: usize,
    /// Transformer blocks (L).
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head.
    pub head_dim: usize,
    /// Width of the feed-forward layer.
    pub feed_forward: usize,
    /// Sequence length that the model is trained with unless told otherwise (T).
    pub sequence_length: usize,
    /// Sequences per micro-batch and rank unless told otherwise.
    pub batch_size: usize,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Whether the head uses the embedding's weights.
    pub tied: bool,
}

impl ModelConfig {
    /// The default model: byte-level, 0.9 million parameters, made for laptops.
    pub fn tiny() -> Self {
        ModelConfig {
            name: "tiny".into(),
            vocabulary: 256,
            width: 128,
            layers: 4,
            heads: 4,
            kv_heads: 4,
            head_dim: 32,
            feed_forward: 384,
            sequence_length: 128,
            batch_size: 8,
            norm_eps: 1e-5,
            rope_theta: 10000.0,
            tied: false,
        }
    }
}
