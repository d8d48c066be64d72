//! The model that the flags name.

use super::resumed;
use crate::cli::TrainArgs;
use crate::error::{Failure, Result};
use checkpoint::Reader;
use model::ModelConfig;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The model that a run trains by default.
pub const DEFAULT_MODEL: &str = "tiny";

/// Returns the model of the `--init-from` weights, or else the one that `--model` names, or else
/// that of the checkpoint to resume, or else [`DEFAULT_MODEL`], with the micro-batch shape that the
/// flags give.
///
/// # Errors
/// A usage failure that names the flag, the preset or the file.
pub fn architecture(args: &TrainArgs) -> Result<ModelConfig> {
    let mut model = match (&args.architecture.init_from, &args.architecture.model) {
        (Some(_), Some(_)) => {
            return Err(Failure::usage("--init-from supplies the architecture: leave --model out"));
        }
        (Some(dir), None) => {
            let config = Reader::open(dir).and_then(|reader| reader.config());
            config.map_err(|e| Failure::usage(format!("--init-from: {e}")))?
        }
        (None, Some(name)) => named(name)?,
        (None, None) => match args.output.checkpoint.as_deref().and_then(resumed::newest) {
            Some(model) => model,
            None => named(DEFAULT_MODEL)?,
        },
    };
    model.batch_size = args.training.batch_size.unwrap_or(model.batch_size);
    model.sequence_length = args.training.seq_len.unwrap_or(model.sequence_length);
    model.validate().map_err(Failure::usage)?;
    Ok(model)
}

/// Returns the `config.json` that `--model name` names, unless it is a preset.
pub(super) fn config_json(name: &str) -> Option<PathBuf> {
    if ModelConfig::preset(name).is_ok() {
        return None;
    }
    let path = Path::new(name);
    if path.is_dir() {
        Some(path.join("config.json"))
    } else {
        (name.ends_with(".json") || path.exists()).then(|| path.into())
    }
}

/// Reads a preset, or a `config.json`.
fn named(name: &str) -> Result<ModelConfig> {
    let Some(path) = config_json(name) else {
        return ModelConfig::preset(name).map_err(|e| Failure::usage(format!("--model: {e}")));
    };
    let failed = |why: String| Failure::usage(format!("cannot read --model {}: {why}", path.display()));
    let file = storage::open_regular(File::options().read(true), &path);
    let text = file.and_then(std::io::read_to_string).map_err(|error| failed(error.to_string()))?;
    ModelConfig::from_hugging_face(&text, name).map_err(|e| Failure::usage(format!("--model: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_no_model() {
        let error = named("/dev/null").unwrap_err();
        assert_eq!(error.to_string(), "cannot read --model /dev/null: it is not a regular file");
    }
}
