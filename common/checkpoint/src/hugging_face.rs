//! `config.json`, in the words of Transformers' Llama.

use model::ModelConfig;
use serde::Deserialize;
use serde_json::json;

/// `config`, for Transformers 4 (`rope_theta`) and 5 (`rope_parameters`) alike.
pub(crate) fn write(config: &ModelConfig) -> String {
    let json = json!({
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocabulary,
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.sequence_length,
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_theta,
        "rope_parameters": { "rope_type": "default", "rope_theta": config.rope_theta },
        "tie_word_embeddings": config.tied,
        "attention_bias": false,
        "mlp_bias": false,
        "bos_token_id": null,
        "eos_token_id": null,
        "torch_dtype": "float32",
        "dtype": "float32",
    });
    format!("{json:#}\n")
}

/// The parts of `config.json` that are read, with Transformers' defaults.
#[derive(Deserialize)]
struct Llama {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f32>,
    rope_theta: Option<f32>,
    rope_parameters: Option<Rope>,
    tie_word_embeddings: Option<bool>,
}

#[derive(Deserialize)]
struct Rope {
    rope_theta: Option<f32>,
}

/// The architecture in `text`, or what is wrong with it.
pub(crate) fn read(name: &str, text: &str) -> Result<ModelConfig, String> {
    let c: Llama = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let heads = c.num_attention_heads;
    let head_dim = c.head_dim.or(c.hidden_size.checked_div(heads)).ok_or("num_attention_heads is 0")?;
    let theta = c.rope_parameters.and_then(|rope| rope.rope_theta).or(c.rope_theta);
    Ok(ModelConfig {
        name: name.into(),
        vocabulary: c.vocab_size,
        width: c.hidden_size,
        layers: c.num_hidden_layers,
        heads,
        kv_heads: c.num_key_value_heads.unwrap_or(heads),
        head_dim,
        feed_forward: c.intermediate_size,
        sequence_length: c.max_position_embeddings.unwrap_or(2048),
        batch_size: 1,
        norm_eps: c.rms_norm_eps.unwrap_or(1e-6),
        rope_theta: theta.unwrap_or(10000.0),
        tied: c.tie_word_embeddings.unwrap_or(false),
    })
}
