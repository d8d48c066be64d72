//! `config.json`, in the words of Transformers' Llama.

use model::ModelConfig;

/// `config` as text.
pub(crate) fn write(config: &ModelConfig) -> String {
    format!("{:#}\n", config.to_hugging_face())
}

/// The architecture in `text`, or what is wrong with it.
pub(crate) fn read(name: &str, text: &str) -> Result<ModelConfig, String> {
    ModelConfig::from_hugging_face(text, name).map_err(|error| error.to_string())
}
