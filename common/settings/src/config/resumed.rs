//! The model of a checkpoint that a run resumes.

use checkpoint::{Checkpoints, Manifest};
use model::{ModelConfig, ModelError};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use storage::Disk;

/// The key of the architecture in the identity of a run.
pub const ARCHITECTURE: &str = "architecture";
/// The key of the architecture that does not change the weights, and is only recorded.
pub const POSITIONS: &str = "max_position_embeddings";

/// Returns the model of the run that wrote `manifest`, called `name` unless it is a preset's.
///
/// # Errors
/// If the manifest does not describe a Llama-style model.
pub fn model(manifest: &Manifest, name: &str) -> Result<ModelConfig, ModelError> {
    let mut kept = manifest.identity[ARCHITECTURE].clone();
    let preset = ModelConfig::presets().filter_map(|preset| ModelConfig::preset(preset).ok());
    if let Some(mut preset) = preset.into_iter().find(|preset| identity(preset) == kept) {
        let trained = manifest.record["max_positions"].as_u64().unwrap_or(0) as usize;
        preset.max_positions = preset.max_positions.max(trained);
        return Ok(preset);
    }
    if let Some(keys) = kept.as_object_mut() {
        keys.insert(POSITIONS.into(), manifest.record["max_positions"].clone());
    }
    ModelConfig::from_hugging_face(&kept.to_string(), name)
}

/// Returns the settings of `model` that determine its weights.
pub fn identity(model: &ModelConfig) -> Value {
    let mut config = model.to_hugging_face();
    if let Some(keys) = config.as_object_mut() {
        keys.remove(POSITIONS);
    }
    config
}

/// Returns the model of the newest checkpoint in `directory` whose manifest can be read; `None` if
/// there is none.
pub(super) fn newest(directory: &Path) -> Option<ModelConfig> {
    let checkpoints = Checkpoints::new(directory, Arc::new(Disk::new(1)));
    let name = directory.display().to_string();
    let read = |kept: &String| model(&checkpoints.manifest(kept).ok()?, &name).ok();
    checkpoints.names().ok()?.iter().find_map(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(model: &ModelConfig) -> Manifest {
        Manifest {
            progress: Value::Null,
            identity: json!({ARCHITECTURE: identity(model)}),
            record: json!({"max_positions": model.max_positions.max(model.sequence_length)}),
            block_bytes: 1,
            files: Vec::new(),
            model_files: Vec::new(),
        }
    }

    #[test]
    fn presets_come_back_by_name_and_with_their_batches() {
        for name in ModelConfig::presets() {
            let preset = ModelConfig::preset(name).unwrap();
            assert_eq!(model(&of(&preset), "kept").unwrap(), preset);
        }
    }

    #[test]
    fn a_preset_keeps_the_longest_sequences_that_it_was_trained_on() {
        let longer = ModelConfig { sequence_length: 512, ..ModelConfig::tiny() };
        assert_eq!(model(&of(&longer), "kept").unwrap().max_positions, 512);
    }

    #[test]
    fn another_model_is_read_as_from_its_configuration() {
        let other = ModelConfig { layers: 3, max_positions: 512, ..ModelConfig::tiny() };
        let text = other.to_hugging_face().to_string();
        assert_eq!(
            model(&of(&other), "kept").unwrap(),
            ModelConfig::from_hugging_face(&text, "kept").unwrap()
        );
    }
}
