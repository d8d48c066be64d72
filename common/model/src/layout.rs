//! The model's tensors, grouped in layers. They have Hugging Face's names and `state_dict` order
//! (biases follow the weights of all of attention's projections).

use crate::config::{Family, ModelConfig};

/// Position of a tensor in [`Layout::tensors`].
pub type TensorId = usize;

/// One weight tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Hugging Face name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Shape, row-major: `[out, in]` for projections, `[vocabulary, width]` for embeddings,
    /// `[width]` for norms of the residual stream, `[head_dim]` for head norms, `[out]` for biases.
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

/// The kind of computation in a layer.
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
    /// The kind of computation.
    pub kind: LayerKind,
    /// The tensors that it needs. Embedding: table. Block: q, k, v, o, biases of q, k, v and norms
    /// of query and key heads if the family has them, gate, up, down, input norm, post-attention
    /// norm. Head: final norm, then the output matrix (the embedding's table if tied).
    pub tensors: Vec<TensorId>,
}

/// All tensors of a model and the layers that use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The tensors, in the module's order.
    pub tensors: Vec<TensorSpec>,
    /// The layers, in forward order.
    pub layers: Vec<Layer>,
}

/// Positions of a block's tensors in [`Layer::tensors`].
pub(crate) struct BlockTensors {
    /// Biases of queries, keys and values.
    pub(crate) biases: [usize; 3],
    /// Norms of query and of key heads.
    pub(crate) head_norms: [usize; 2],
    /// Gate projection, followed by the adjacent up projection.
    pub(crate) gate: usize,
    /// Down projection.
    pub(crate) down: usize,
    /// Norm before attention.
    pub(crate) input_norm: usize,
    /// Norm before the feed-forward layer.
    pub(crate) post_norm: usize,
}

impl BlockTensors {
    /// First of the adjacent query, key and value projections.
    pub(crate) const QKV: usize = 0;
    /// Output projection.
    pub(crate) const O: usize = 3;

    /// Returns the positions in a block of `family`. Positions of tensors that the family lacks are
    /// meaningless.
    pub(crate) const fn of(family: Family) -> Self {
        let gate = 4 + if family.has_biases() { 3 } else { 0 } + if family.norms_heads() { 2 } else { 0 };
        BlockTensors {
            biases: [4, 5, 6],
            head_norms: [gate - 2, gate - 1],
            gate,
            down: gate + 2,
            input_norm: gate + 3,
            post_norm: gate + 4,
        }
    }
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
            let attention: [(&str, &[usize]); 4] = [
                ("self_attn.q_proj.weight", &[query, d]),
                ("self_attn.k_proj.weight", &[key, d]),
                ("self_attn.v_proj.weight", &[key, d]),
                ("self_attn.o_proj.weight", &[d, query]),
            ];
            let biases: [(&str, &[usize]); 3] = [
                ("self_attn.q_proj.bias", &[query]),
                ("self_attn.k_proj.bias", &[key]),
                ("self_attn.v_proj.bias", &[key]),
            ];
            let norms: [(&str, &[usize]); 2] =
                [("self_attn.q_norm.weight", &[c.head_dim]), ("self_attn.k_norm.weight", &[c.head_dim])];
            let others: [(&str, &[usize]); 5] = [
                ("mlp.gate_proj.weight", &[f, d]),
                ("mlp.up_proj.weight", &[f, d]),
                ("mlp.down_proj.weight", &[d, f]),
                ("input_layernorm.weight", &[d]),
                ("post_attention_layernorm.weight", &[d]),
            ];
            let biases = biases.iter().filter(|_| c.family.has_biases());
            let norms = norms.iter().filter(|_| c.family.norms_heads());
            let all = attention.iter().chain(biases).chain(norms).chain(&others);
            let add =
                |(name, shape): &(&str, &[usize])| layout.add(&format!("model.layers.{i}.{name}"), shape);
            let tensors = all.map(add).collect();
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
