//! The model's tensors, in Hugging Face's names and `state_dict` order, grouped in layers.

use crate::config::ModelConfig;

/// Position of a tensor in [`Layout::tensors`].
pub type TensorId = usize;

/// One weight tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Hugging Face name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Shape, row-major: `[out, in]` for projections, `[vocabulary, width]` for embeddings,
    /// `[width]` for norms.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if weight decay applies: only to tensors of two or more dimensions.
    pub fn decays(&self) -> bool {
        self.shape.len() >= 2
    }
}

/// What a layer computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayerKind {
    /// Token ids to vectors.
    Embedding,
    /// Transformer block i: attention and feed-forward, each with its norm and residual.
    Block(usize),
    /// Final norm, logits and loss.
    Head,
}

/// One layer: a step of forward and of backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// What it computes.
    pub kind: LayerKind,
    /// The tensors it needs. Embedding: table. Block: q, k, v, o, gate, up, down, input norm,
    /// post-attention norm. Head: final norm, then the output matrix (the embedding's table if
    /// tied).
    pub tensors: Vec<TensorId>,
}

/// All tensors of a model and the layers that use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tensors, in `state_dict` order.
    pub tensors: Vec<TensorSpec>,
    /// The layers, in forward order.
    pub layers: Vec<Layer>,
}

/// Positions of a block's tensors in [`Layer::tensors`].
pub mod block {
    /// Query, key and value projections, adjacent.
    pub const QKV: std::ops::Range<usize> = 0..3;
    /// Output projection.
    pub const O: usize = 3;
    /// Gate and up projections, adjacent.
    pub const GATE_UP: std::ops::Range<usize> = 4..6;
    /// Down projection.
    pub const DOWN: usize = 6;
    /// Norm before attention.
    pub const INPUT_NORM: usize = 7;
    /// Norm before the feed-forward layer.
    pub const POST_NORM: usize = 8;
}

impl Layout {
    /// Returns the layout of `config`'s model.
    pub fn new(config: &ModelConfig) -> Self {
        let c = config;
        let (d, f) = (c.width, c.feed_forward);
        let (query, key) = (c.heads * c.head_dim, c.kv_heads * c.head_dim);
        let mut layout = Layout { tensors: Vec::new(), layers: Vec::new() };
        let embedding = layout.add("model.embed_tokens.weight", &[c.vocabulary, d]);
        layout.layers.push(Layer { kind: LayerKind::Embedding, tensors: vec![embedding] });
        for i in 0..c.layers {
            let shapes: [(&str, &[usize]); 9] = [
                ("self_attn.q_proj", &[query, d]),
                ("self_attn.k_proj", &[key, d]),
                ("self_attn.v_proj", &[key, d]),
                ("self_attn.o_proj", &[d, query]),
                ("mlp.gate_proj", &[f, d]),
                ("mlp.up_proj", &[f, d]),
                ("mlp.down_proj", &[d, f]),
                ("input_layernorm", &[d]),
                ("post_attention_layernorm", &[d]),
            ];
            let tensors = shapes
                .map(|(name, shape)| layout.add(&format!("model.layers.{i}.{name}.weight"), shape))
                .to_vec();
            layout.layers.push(Layer { kind: LayerKind::Block(i), tensors });
        }
        let norm = layout.add("model.norm.weight", &[d]);
        let output = if c.tied { embedding } else { layout.add("lm_head.weight", &[c.vocabulary, d]) };
        layout.layers.push(Layer { kind: LayerKind::Head, tensors: vec![norm, output] });
        layout
    }

    fn add(&mut self, name: &str, shape: &[usize]) -> TensorId {
        self.tensors.push(TensorSpec { name: name.into(), shape: shape.into() });
        self.tensors.len() - 1
    }

    /// Returns the number of parameters (Ψ); a tied tensor counts once.
    pub fn parameters(&self) -> u64 {
        self.tensors.iter().map(|t| t.elements() as u64).sum()
    }
}
