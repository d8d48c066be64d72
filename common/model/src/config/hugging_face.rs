//! Hugging Face's `config.json`, as Transformers 4 and 5 write it for the families of models.

mod keys;

use super::{Family, INITIALIZER_RANGE, ModelConfig, RopeScaling};
use crate::ModelError;
use events::say::shortened;
use keys::Keys;
use serde_json::{Map, Value, json};

/// Keys that determine which tensors exist, each with the only values that the model supports. A
/// config may also hold null there, or omit the key.
const TENSORS: [(&str, &[&str]); 4] = [
    ("attention_bias", &["false"]),
    ("mlp_bias", &["false"]),
    ("quantization_config", &["null"]),
    ("is_encoder_decoder", &["false"]),
];

/// Keys that only determine the computation, in the same format.
const ARITHMETIC: [(&str, &[&str]); 5] = [
    ("hidden_act", &[r#""silu""#, r#""swish""#]),
    ("is_causal", &["true"]),
    ("attention_dropout", &["0.0", "0"]),
    ("partial_rotary_factor", &["1.0", "1"]),
    ("rope_interleaved", &["false"]),
];

/// The number of key/value heads.
const KV_HEADS: &str = "num_key_value_heads";

/// The model's maximum sequence length, and whether its head is the embedding.
const POSITIONS: &str = "max_position_embeddings";
const TIED: &str = "tie_word_embeddings";

/// The name of unwindowed attention in `layer_types`.
const FULL: &str = "full_attention";
const WINDOWED: &str = "sliding_attention";

/// The first windowed layer of a Qwen whose config omits it.
const FIRST_WINDOWED: u64 = 28;

/// The window of a Mistral or a Qwen whose config omits it.
const DEFAULT_WINDOW: usize = 4096;

impl ModelConfig {
    /// Returns the model that the text of a `config.json` describes, with the name `name`.
    ///
    /// A `config.json` has no training settings, so these get defaults: sequences of at most 512
    /// tokens, one per micro-batch.
    ///
    /// # Errors
    /// Names the key and the value if the config asks for anything that this model does not
    /// support; [`ModelError::Invalid`] if its numbers do not fit together.
    pub fn from_hugging_face(text: &str, name: &str) -> Result<Self, ModelError> {
        let object = object(text, name)?;
        let keys = Keys { name, prefix: "", object: &object };
        ARITHMETIC.iter().try_for_each(|(key, allowed)| keys.one_of(key, allowed))?;
        let (rope_theta, rope_scaling) = keys.rope()?;
        let config = ModelConfig { rope_theta, rope_scaling, ..keys.model(keys.window()?)? };
        config.validate()?;
        Ok(config)
    }

    /// Returns the sizes of the model that the text of a `config.json` describes. The config may
    /// ask for arithmetic that this model does not support, as long as the tensors are the same.
    ///
    /// # Errors
    /// As [`ModelConfig::from_hugging_face`], for the keys that determine sizes.
    pub fn sizes_from_hugging_face(text: &str, name: &str) -> Result<Self, ModelError> {
        let object = object(text, name)?;
        let config = Keys { name, prefix: "", object: &object }.model(None)?;
        config.validate()?;
        Ok(config)
    }

    /// Returns the `config.json` from which Transformers loads this model's weights, as the class
    /// of its family.
    ///
    /// It has `rope_theta` twice: where Transformers 4 reads it, and where Transformers 5 does. The
    /// same holds for the frequency scaling, if any.
    pub fn to_hugging_face(&self) -> Value {
        let theta = decimal(self.rope_theta);
        let (mut rope, scaled) = (self.rope_keys(), self.rope_scaling != RopeScaling::None);
        let scaling = if scaled { rope.clone() } else { Value::Null };
        rope["rope_theta"] = theta.into();
        let mut object = json!({
            "architectures": [self.family.class()],
            "model_type": self.family.model_type(),
            "vocab_size": self.vocabulary,
            "hidden_size": self.width,
            "intermediate_size": self.feed_forward,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            KV_HEADS: self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            POSITIONS: self.max_positions.max(self.sequence_length),
            "rms_norm_eps": decimal(self.norm_eps),
            "rope_theta": theta,
            "rope_parameters": rope,
            "rope_scaling": scaling,
            "attention_bias": false,
            "attention_dropout": 0.0,
            "mlp_bias": false,
            TIED: self.tied,
            "initializer_range": self.initializer_range,
            "torch_dtype": "float32",
            "bos_token_id": null,
            "eos_token_id": null,
        });
        // Llama's config has no window, and only Qwen's has a switch for it.
        if self.family != Family::Llama {
            object["sliding_window"] = self.window.into();
        }
        if matches!(self.family, Family::Qwen2 | Family::Qwen3) {
            object["use_sliding_window"] = self.window.is_some().into();
            object["max_window_layers"] = if self.window.is_some() { 0 } else { self.layers }.into();
        }
        object
    }

    /// Replaces the values that training has determined in `original`, the `config.json` from which
    /// this model was read: the maximum sequence length, if training has seen longer ones, and
    /// whether the head is tied. All other values stay the same.
    pub fn update_hugging_face(&self, original: &mut Map<String, Value>) {
        let longest = self.max_positions.max(self.sequence_length);
        let known = original.get(POSITIONS).and_then(Value::as_u64);
        if longest as u64 > known.unwrap_or(default_positions(self.family) as u64) {
            original.insert(POSITIONS.into(), longest.into());
        }
        if (original.get(TIED) == Some(&Value::Bool(true))) != self.tied {
            original.insert(TIED.into(), self.tied.into());
        }
    }

    /// Returns the `config.json` entries for the scaling of rotary frequencies.
    fn rope_keys(&self) -> Value {
        match self.rope_scaling {
            RopeScaling::None => json!({ "rope_type": "default" }),
            RopeScaling::Linear(factor) => json!({ "rope_type": "linear", "factor": decimal(factor) }),
            RopeScaling::Llama3 { factor, low, high, positions } => json!({
                "rope_type": "llama3",
                "factor": decimal(factor),
                "low_freq_factor": decimal(low),
                "high_freq_factor": decimal(high),
                "original_max_position_embeddings": positions,
            }),
        }
    }
}

/// Parses the text of a `config.json` as an object.
fn object(text: &str, name: &str) -> Result<Map<String, Value>, ModelError> {
    // The parser's message repeats a text in place of an object.
    let refused = |error: serde_json::Error| ModelError::NotJson {
        name: name.into(),
        reason: if error.is_data() { shortened(&error.to_string()) } else { error.to_string() },
    };
    serde_json::from_str(text).map_err(refused)
}

/// Returns the maximum sequence length that Transformers assumes if a config omits it.
const fn default_positions(family: Family) -> usize {
    match family {
        Family::Llama => 2048,
        Family::Mistral => 131_072,
        Family::Qwen2 | Family::Qwen3 => 32_768,
    }
}

/// Returns the number with the digits that f32 prints: 1e-5, not 9.999999747378752e-6.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or(f64::from(number))
}

impl Keys<'_> {
    /// Returns the family, which `architectures` must agree with.
    fn family(&self) -> Result<Family, ModelError> {
        let value = self.get("model_type").ok_or_else(|| self.missing("model_type"))?;
        let named = |family: &Family| value == family.model_type();
        let known = Family::ALL.map(|family| format!("\"{}\"", family.model_type())).join(", ");
        let family = Family::ALL.into_iter().find(named);
        let family = family.ok_or_else(|| self.unsupported("model_type", value, &format!("only {known}")))?;
        self.one_of("architectures", &[&format!("[\"{}\"]", family.class())])?;
        Ok(family)
    }

    /// Returns θ and the scaling of the frequencies, as Transformers 5 reads them. The scaling
    /// comes from `rope_scaling`, the only key that Transformers 4 knows, or else from
    /// `rope_parameters`. θ comes from the same object, or else from the object around it, or else
    /// is Llama's. An empty object counts as absent.
    fn rope(&self) -> Result<(f32, RopeScaling), ModelError> {
        let old = self.nested("rope_scaling", "rope_scaling.")?;
        let new = self.nested("rope_parameters", "rope_parameters.")?;
        let chosen = [old, new].into_iter().flatten().find(|keys| !keys.object.is_empty());
        let theta = chosen.as_ref().map(|keys| keys.optional_number("rope_theta")).transpose()?.flatten();
        let theta = theta.or(self.optional_number("rope_theta")?).unwrap_or(10_000.0);
        let scaling = chosen.map(|keys| keys.rope_scaling()).transpose()?;
        Ok((theta, scaling.unwrap_or_default()))
    }

    /// Returns the scaling that this config object describes.
    fn rope_scaling(&self) -> Result<RopeScaling, ModelError> {
        self.one_of("partial_rotary_factor", &["1.0", "1"])?;
        let key = if self.get("rope_type").is_some() { "rope_type" } else { "type" };
        let number = |key| self.optional_number(key)?.ok_or_else(|| self.missing(key));
        let default = "default".into();
        let kind = self.get(key).unwrap_or(&default);
        match kind.as_str() {
            Some("default") => self.one_of("factor", &["1.0", "1"]).map(|()| RopeScaling::None),
            Some("linear") => Ok(RopeScaling::Linear(number("factor")?)),
            Some("llama3") => Ok(RopeScaling::Llama3 {
                factor: number("factor")?,
                low: number("low_freq_factor")?,
                high: number("high_freq_factor")?,
                positions: self.count("original_max_position_embeddings")?,
            }),
            _ => Err(self.unsupported(key, kind, r#"only "default", "linear" and "llama3""#)),
        }
    }

    /// Returns the number of tokens that a token attends to. `None` if no layer hides tokens. In a
    /// Mistral every layer does, whatever `layer_types` says.
    fn window(&self) -> Result<Option<usize>, ModelError> {
        let windowed = match self.family()? {
            Family::Llama => false,
            Family::Mistral => true,
            // An unknown layer type is refused even if the window is not used.
            Family::Qwen2 | Family::Qwen3 => self.any_windowed()? && self.flag("use_sliding_window")?,
        };
        if !windowed {
            return Ok(None);
        }
        let left_out = !self.object.contains_key("sliding_window");
        Ok(self.optional_count("sliding_window")?.or(left_out.then_some(DEFAULT_WINDOW)))
    }

    /// True if a Qwen that uses its window has a windowed layer. `layer_types` lists them; without
    /// it, the layers from `max_window_layers` on are windowed.
    fn any_windowed(&self) -> Result<bool, ModelError> {
        let Some(value) = self.get("layer_types") else {
            let first = self.object.get("max_window_layers").and_then(Value::as_u64);
            return Ok(first.unwrap_or(FIRST_WINDOWED) < self.count("num_hidden_layers")? as u64);
        };
        let types = value.as_array().map(Vec::as_slice).unwrap_or_default();
        if types.iter().any(|one| one != FULL && one != WINDOWED) || types.is_empty() {
            return Err(self.unsupported("layer_types", value, &format!("only `{FULL}` and `{WINDOWED}`")));
        }
        Ok(types.iter().any(|one| one == WINDOWED))
    }

    /// Returns the number of key/value heads of a model whose config does not state it. This is the
    /// number of query heads or, if the key is omitted and not null, Transformers' default for the
    /// family.
    fn default_kv_heads(&self, family: Family, heads: usize) -> usize {
        match family {
            _ if self.object.contains_key(KV_HEADS) => heads,
            Family::Llama => heads,
            Family::Mistral => 8,
            Family::Qwen2 | Family::Qwen3 => 32,
        }
    }

    /// Returns the model with unscaled rotary frequencies.
    fn model(&self, window: Option<usize>) -> Result<ModelConfig, ModelError> {
        let family = self.family()?;
        TENSORS.iter().try_for_each(|(key, allowed)| self.one_of(key, allowed))?;
        let (width, heads) = (self.count("hidden_size")?, self.count("num_attention_heads")?);
        let head_dim = if family == Family::Qwen3 { 128 } else { width / heads };
        let max_positions = self.optional_count(POSITIONS)?.unwrap_or(default_positions(family));
        Ok(ModelConfig {
            name: self.name.into(),
            family,
            vocabulary: self.count("vocab_size")?,
            width,
            layers: self.count("num_hidden_layers")?,
            heads,
            kv_heads: self.optional_count(KV_HEADS)?.unwrap_or(self.default_kv_heads(family, heads)),
            head_dim: self.optional_count("head_dim")?.unwrap_or(head_dim),
            feed_forward: self.count("intermediate_size")?,
            sequence_length: max_positions.min(512).min(window.unwrap_or(usize::MAX)),
            batch_size: 1,
            max_positions,
            norm_eps: self.optional_number("rms_norm_eps")?.unwrap_or(1e-6),
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            window,
            tied: self.flag(TIED)?,
            initializer_range: self.optional_f64("initializer_range")?.unwrap_or(INITIALIZER_RANGE),
        })
    }
}

#[cfg(test)]
mod tests;
