//! The families of models, by their names in Transformers.

/// An architecture: Llama's, or one with small differences from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Llama (Touvron et al., 2023).
    #[default]
    Llama,
    /// Mistral (Jiang et al., 2023): tokens may attend only to a window.
    Mistral,
    /// Qwen2: biases on queries, keys and values.
    Qwen2,
    /// Qwen3: a norm on each query and key head.
    Qwen3,
}

impl Family {
    /// All families.
    pub const ALL: [Family; 4] = [Family::Llama, Family::Mistral, Family::Qwen2, Family::Qwen3];

    /// Returns the value of `model_type` in a `config.json`.
    pub const fn model_type(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Mistral => "mistral",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
        }
    }

    /// Returns the class with which Transformers loads a model.
    pub const fn class(self) -> &'static str {
        match self {
            Family::Llama => "LlamaForCausalLM",
            Family::Mistral => "MistralForCausalLM",
            Family::Qwen2 => "Qwen2ForCausalLM",
            Family::Qwen3 => "Qwen3ForCausalLM",
        }
    }

    /// True if queries, keys and values have biases.
    pub const fn has_biases(self) -> bool {
        matches!(self, Family::Qwen2)
    }

    /// True if query and key heads are normalised before their rotation.
    pub const fn norms_heads(self) -> bool {
        matches!(self, Family::Qwen3)
    }
}
