//! Initial weights: drawn from a seed, or pretrained.

use checkpoint::{ModelFiles, Reader};
use model::{Layout, Model, TensorId, init};
use settings::Config;
use settings::data::Data;
use settings::machine::not_started;
use sharding::WeightSource;
use std::ops::Range;
use std::sync::Arc;
use text::bytes::VOCABULARY;

/// Elements of each tensor that ranks compare before they start.
const SAMPLE: usize = 256;

/// The fewest elements for a thread: drawing fewer takes less time than starting one.
const ELEMENTS_PER_THREAD: usize = 1 << 16;

/// Weights drawn from a seed, the same whatever the stage and the number of ranks.
pub(crate) struct SeededWeights {
    pub seed: u64,
    /// Standard deviation of projections and embeddings.
    pub deviation: f64,
    pub layout: Layout,
    /// Threads that draw the elements of a large tensor.
    pub threads: usize,
}

impl WeightSource for SeededWeights {
    fn read(&self, tensor: TensorId, range: Range<usize>, into: &mut [f32]) -> Result<(), String> {
        let piece = into.len().div_ceil(self.threads.max(1)).max(ELEMENTS_PER_THREAD);
        let draw = &|(number, out): (usize, &mut [f32])| {
            let start = range.start + number * piece;
            let drawn = (self.seed, self.deviation);
            init::fill(drawn, &self.layout.tensors[tensor], tensor, start..start + out.len(), out);
        };
        let mut pieces = into.chunks_mut(piece).enumerate();
        let first = pieces.next();
        std::thread::scope(|scope| {
            for piece in pieces {
                let spawned = std::thread::Builder::new().spawn_scoped(scope, move || draw(piece));
                spawned.map_err(|error| not_started("a thread to draw weights", &error))?;
            }
            if let Some(piece) = first {
                draw(piece);
            }
            Ok(())
        })
    }
}

/// Weights read from saved files.
pub(crate) struct PretrainedWeights {
    pub reader: Arc<Reader>,
    pub layout: Layout,
}

impl WeightSource for PretrainedWeights {
    fn read(&self, tensor: TensorId, range: Range<usize>, into: &mut [f32]) -> Result<(), String> {
        let spec = &self.layout.tensors[tensor];
        self.reader.read(spec, range.clone(), into).map_err(|e| e.to_string())?;
        match checkpoint::not_finite(into) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{}: tensor `{}` has {} at {:?}, so no loss with these weights is finite\n\
                 Copy or download them again, or start from an earlier save of them.",
                self.reader.directory().display(),
                spec.name,
                into[at],
                place(&spec.shape, range.start + at),
            )),
        }
    }
}

/// Returns the indices of element `number`, counted row-major.
fn place(shape: &[usize], number: usize) -> Vec<usize> {
    let mut left = number;
    let mut indices: Vec<usize> = shape.iter().rev().map(|&size| (left % size, left /= size).0).collect();
    indices.reverse();
    indices
}

/// Opens the pretrained weights that `config` names, for all ranks of this process. `None` if it
/// names none.
///
/// # Errors
/// If they cannot be read, or do not fit `model`.
pub(crate) fn open_pretrained(config: &Config, model: &Model) -> Result<Option<Arc<Reader>>, String> {
    let Some(dir) = &config.init_from else { return Ok(None) };
    let reader = Reader::open(dir).map_err(|e| e.to_string())?;
    reader.check(&model.layout).map_err(|e| e.to_string())?;
    Ok(Some(Arc::new(reader)))
}

/// Returns a source of the tensors of `model`: the `pretrained` weights if there are any, else
/// weights that `threads` threads draw from `seed`.
pub(crate) fn weights(
    pretrained: Option<&Arc<Reader>>,
    model: &Model,
    seed: u64,
    threads: usize,
) -> Arc<dyn WeightSource> {
    let (layout, deviation) = (model.layout.clone(), model.config.initializer_range);
    match pretrained {
        None => Arc::new(SeededWeights { seed, deviation, layout, threads }),
        Some(reader) => Arc::new(PretrainedWeights { reader: reader.clone(), layout }),
    }
}

/// Returns the files to save with the weights, if this process saves any: those next to pretrained
/// weights or a named `config.json`, with the tokenizer of the data.
///
/// # Errors
/// If one exists and cannot be read.
pub(crate) fn model_files(config: &Config, pretrained: Option<&Reader>) -> Result<ModelFiles, String> {
    let saves = config.output.save.is_some() || config.output.checkpoint.is_some();
    if !(saves && config.leads()) {
        return Ok(ModelFiles::default());
    }
    let own = match (pretrained, &config.config_json) {
        (Some(reader), _) => reader.model_files().map_err(|e| e.to_string())?,
        (None, Some(path)) => {
            let text = std::fs::read_to_string(path);
            ModelFiles::of_config(&text.map_err(|e| format!("cannot read {}: {e}", path.display()))?)
        }
        _ => ModelFiles::default(),
    };
    match &config.corpus.source.tokenizer {
        Some(path) => own.with_tokenizer(path).map_err(|e| e.to_string()),
        None => Ok(own),
    }
}

/// Returns a warning for each contradiction between saved weights and their configuration or the
/// data.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn warnings(reader: &Reader, model: &Model, data: &Data) -> Result<Vec<String>, String> {
    let mut warnings = reader.warnings(&model.config, &model.layout).map_err(|e| e.to_string())?;
    let tokenizer = reader.directory().join("tokenizer.json");
    let other = data.is_bytes() && model.config.vocabulary != VOCABULARY;
    if other && tokenizer.exists() {
        warnings.push(format!(
            "{} is read as bytes, but the model has learned a tokenizer's tokens: give --tokenizer {} (in a program \
             that is built with --features tokenizers)",
            data.name(),
            tokenizer.display()
        ));
    }
    Ok(warnings)
}

/// Returns a hash over the beginning of every tensor. Ranks compare it, so that none silently
/// starts from different weights.
///
/// # Errors
/// If the source fails.
pub(crate) fn fingerprint(source: &dyn WeightSource, layout: &Layout) -> Result<[u8; 32], String> {
    let mut hasher = blake3::Hasher::new();
    for (id, tensor) in layout.tensors.iter().enumerate() {
        let mut values = vec![0f32; tensor.elements().min(SAMPLE)];
        source.read(id, 0..values.len(), &mut values)?;
        hasher.update(bytemuck::cast_slice(&values));
    }
    Ok(*hasher.finalize().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::ModelConfig;

    #[test]
    fn weights_have_the_deviation_that_the_configuration_states() {
        let drawn = [0.02, 0.04].map(|initializer_range| {
            let model = Model::new(ModelConfig { initializer_range, ..ModelConfig::tiny() }).unwrap();
            let mut values = vec![0.0; 9];
            weights(None, &model, 5, 1).read(0, 0..9, &mut values).unwrap();
            values
        });
        let doubled: Vec<f32> = drawn[0].iter().map(|value| 2.0 * value).collect();
        assert_eq!(drawn[1], doubled);
    }

    #[test]
    fn several_threads_draw_the_weights_of_one() {
        let layout = Layout::new(&ModelConfig::preset("small").unwrap());
        let id =
            layout.tensors.iter().position(|tensor| tensor.elements() > 3 * ELEMENTS_PER_THREAD).unwrap();
        // From an odd element on, in pieces that do not divide it evenly.
        let range = 7..layout.tensors[id].elements() - 2;
        let drawn = [1, 3].map(|threads| {
            let mut values = vec![0.0; range.len()];
            let source = SeededWeights { seed: 5, deviation: 0.02, layout: layout.clone(), threads };
            source.read(id, range.clone(), &mut values).unwrap();
            values
        });
        assert!(drawn[0] == drawn[1]);
    }
}
