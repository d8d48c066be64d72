//! The small files next to a model's weights: its configuration, its generation settings and its
//! tokenizer.

use crate::names::{self, CONFIG, TOKENIZER};
use crate::{CheckpointError, ElementType, Result};
use model::ModelConfig;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;
use text::bytes;

/// Keys of `config.json` that hold the type of the weights: Transformers 5 and later, then before.
const TYPES: [&str; 2] = ["dtype", "torch_dtype"];

/// `config.json`, generation config and tokenizer files of a model, by name. They are saved with
/// the trained weights. `config.json` names the type in which the weights are saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelFiles {
    files: BTreeMap<&'static str, Vec<u8>>,
}

impl ModelFiles {
    /// Returns the files of a model that is trained from scratch: a `config.json` with the
    /// given text. Its weights are saved as f32, the type of training.
    pub fn of_config(text: &str) -> Self {
        let mut new = ModelFiles { files: BTreeMap::from([(CONFIG, text.into())]) };
        new.set_element_type(ElementType::F32);
        new
    }

    /// Reads the model files in `directory`, next to weights that are stored as `stored`.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] naming the file that exists but cannot be read.
    pub(crate) fn beside(directory: &Path, stored: ElementType) -> Result<Self> {
        let mut found = ModelFiles::default();
        found.add(directory, names::model_files())?;
        found.set_element_type(stored);
        Ok(found)
    }

    /// Returns these files with another tokenizer: the file at `path` and the tokenizer files next
    /// to it.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] naming the file that exists but cannot be read.
    pub fn with_tokenizer(mut self, path: &Path) -> Result<Self> {
        let [definition, others @ ..] = TOKENIZER;
        let contents = storage::read_regular(path).map_err(CheckpointError::io("read", path))?;
        self.files.retain(|name, _| !TOKENIZER.contains(name));
        self.add(path.parent().unwrap_or(Path::new("")), others)?;
        self.files.insert(definition, contents);
        Ok(self)
    }

    /// Reads the files named in `names` that exist in `directory`.
    fn add(&mut self, directory: &Path, names: impl IntoIterator<Item = &'static str>) -> Result<()> {
        for name in names {
            let path = directory.join(name);
            match storage::read_regular(&path) {
                Ok(contents) => drop(self.files.insert(name, contents)),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(CheckpointError::io("read", &path)(error)),
            }
        }
        Ok(())
    }

    /// Returns model files with the given contents, by name. `None` if a name is unknown.
    pub(crate) fn from_files(files: impl IntoIterator<Item = (String, Vec<u8>)>) -> Option<Self> {
        let known = |(name, contents): (String, _)| Some((names::model_file(&name)?, contents));
        Some(ModelFiles { files: files.into_iter().map(known).collect::<Option<_>>()? })
    }

    /// True if there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the contents of each file, by name.
    pub fn files(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.files.iter().map(|(name, contents)| (*name, contents.as_slice()))
    }

    /// Returns the type in which weights are saved unless another one is asked for.
    pub fn element_type(&self) -> ElementType {
        let config = self.config().unwrap_or_default();
        let named = TYPES.iter().find_map(|key| config.get(*key)?.as_str());
        ElementType::ALL.into_iter().find(|one| Some(one.torch()) == named).unwrap_or_default()
    }

    /// Returns these files as they are saved with the trained weights of `model`, stored as
    /// `stored`. A model without a `config.json` gets one. A model of 256 tokens without a
    /// tokenizer gets the byte-level one.
    pub(crate) fn trained(&self, model: &ModelConfig, stored: ElementType) -> Self {
        let mut saved = self.clone();
        // `to_hugging_face` returns an object by contract.
        let own = || serde_json::from_value(model.to_hugging_face()).unwrap_or_default();
        let mut config = saved.config().unwrap_or_else(own);
        model.update_hugging_face(&mut config);
        saved.set_config(config);
        saved.set_element_type(stored);
        if model.vocabulary == bytes::VOCABULARY && !saved.has_tokenizer() {
            let files = bytes::files(model.max_positions.max(model.sequence_length));
            saved.files.extend(files.map(|(name, contents)| (name, contents.into_bytes())));
        }
        saved
    }

    /// Adds `old`'s files that are missing here. A tokenizer counts as one, however many files it
    /// has.
    pub(crate) fn complete(&mut self, old: Self) {
        let has_tokenizer = self.has_tokenizer();
        for (name, contents) in old.files {
            if !(has_tokenizer && TOKENIZER.contains(&name)) {
                self.files.entry(name).or_insert(contents);
            }
        }
    }

    /// Returns the vocabulary size in `config.json`, whatever model it describes.
    pub(crate) fn vocabulary(&self) -> Option<u64> {
        self.config()?.get("vocab_size")?.as_u64()
    }

    fn has_tokenizer(&self) -> bool {
        TOKENIZER.iter().any(|name| self.files.contains_key(name))
    }

    /// Returns `config.json` as an object. `None` if it is missing or is not an object.
    fn config(&self) -> Option<Map<String, Value>> {
        serde_json::from_slice(self.files.get(CONFIG)?).ok()
    }

    fn set_config(&mut self, config: Map<String, Value>) {
        self.files.insert(CONFIG, format!("{:#}\n", Value::Object(config)).into_bytes());
    }

    /// Sets the weights' type in `config.json`, under every key that holds it.
    fn set_element_type(&mut self, stored: ElementType) {
        let Some(mut config) = self.config() else { return };
        let there: Vec<_> = TYPES.into_iter().filter(|key| config.contains_key(*key)).collect();
        for key in if there.is_empty() { vec![TYPES[1]] } else { there } {
            config.insert(key.into(), stored.torch().into());
        }
        self.set_config(config);
    }
}
