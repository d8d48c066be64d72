//! Loads a model.

use crate::file_reader::FileReader;
use crate::{CONFIG, CheckpointError, ElementType, ModelFiles, Result, index, names};
use model::{Layout, ModelConfig, TensorSpec};
use safetensors::tensor::TensorInfo;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The two tensors that are one if the head is tied.
const EMBEDDING: &str = "model.embed_tokens.weight";
const HEAD: &str = "lm_head.weight";
/// Elements of these tensors that are compared at a time.
const COMPARED: usize = 1 << 18;
/// Maximum number of surplus tensors that a message lists.
const LISTED: usize = 3;

/// A model's files, open and validated. Reads slices of tensors straight from the disk, so that a
/// rank reads only the elements that it owns. Ranks may share one reader.
///
/// It ignores tensors that the model does not have; [`Reader::warnings`] names them.
#[derive(Debug)]
pub struct Reader {
    /// The weights' file or index, for error messages.
    path: PathBuf,
    /// The directory that holds `config.json`.
    directory: PathBuf,
    /// Handle of that directory from when the weights were opened. A save replaces the directory.
    opened: File,
    files: Vec<FileReader>,
    /// Maps a tensor's name to the position of its file.
    place: BTreeMap<String, usize>,
}

impl Reader {
    /// Opens a directory (its `model.safetensors`, or else the shards of
    /// `model.safetensors.index.json`), a single safetensors file, or an index. Everything but
    /// `config.json` is validated here.
    ///
    /// # Errors
    /// [`CheckpointError`] naming the file that is missing, cut short or damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = weights(path.as_ref())?;
        let directory = storage::parent(&path).to_path_buf();
        let opened = File::open(&directory).map_err(CheckpointError::io("open", &directory))?;
        let (files, place) = if path.extension().is_some_and(|extension| extension == "json") {
            index::open(&path)?
        } else {
            let file = FileReader::open(&path)?;
            let place = file.names().into_iter().map(|name| (name, 0)).collect();
            (vec![file], place)
        };
        let reader = Reader { path, directory, opened, files, place };
        reader.check_same_save()?;
        Ok(reader)
    }

    /// Fails if data read since the weights were opened may belong to another save.
    fn check_same_save(&self) -> Result<()> {
        let directory = &self.directory;
        let found = self.opened.metadata().and_then(|ours| Ok((ours, fs::metadata(directory)?)));
        match found {
            Ok((ours, there)) if names::is_same(&ours, &there) => Ok(()),
            _ => Err(CheckpointError::Replaced(directory.to_path_buf())),
        }
    }

    /// Returns the directory that holds the weights and their `config.json`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the paths of the files that this reads: those of the weights and the small ones next
    /// to them.
    pub fn files(&self) -> impl Iterator<Item = PathBuf> {
        let beside = names::model_files().map(|name| self.directory.join(name));
        let weights = self.files.iter().map(|file| file.path().to_path_buf());
        weights.chain([self.path.clone()]).chain(beside.filter(|path| path.is_file()))
    }

    /// Reads the architecture from `config.json`; its name is the directory's. A stored head whose
    /// values differ from the embedding's is not tied, whatever `config.json` says. Transformers 5
    /// loads it the same way.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] if `config.json` is missing, [`CheckpointError::Config`] if it does
    /// not describe a Llama-style model, [`CheckpointError::Replaced`] if it may belong to another
    /// save; otherwise as [`Reader::read`].
    pub fn config(&self) -> Result<ModelConfig> {
        let stated = self.stated_config()?;
        let tied = stated.tied && !self.has_own_head(&stated)?;
        Ok(ModelConfig { tied, ..stated })
    }

    /// Reads the architecture as `config.json` states it.
    fn stated_config(&self) -> Result<ModelConfig> {
        let path = self.directory.join(CONFIG);
        let file = storage::open_regular(File::options().read(true), &path);
        let text = file.and_then(std::io::read_to_string).map_err(CheckpointError::io("open", &path))?;
        self.check_same_save()?;
        ModelConfig::from_hugging_face(&text, &self.name())
            .map_err(|source| CheckpointError::Config { path, source })
    }

    /// True if the files hold a head that differs from the embedding of `config`'s model.
    fn has_own_head(&self, config: &ModelConfig) -> Result<bool> {
        let spec =
            |name: &str| TensorSpec { name: name.into(), shape: vec![config.vocabulary, config.width] };
        let both = [EMBEDDING, HEAD];
        if !both.iter().all(|name| self.place.contains_key(*name)) {
            return Ok(false);
        }
        let [embedding, head] = both.map(spec);
        let elements = embedding.elements();
        for start in (0..elements).step_by(COMPARED) {
            let range = start..elements.min(start + COMPARED);
            let mut values = [(); 2].map(|()| vec![0.0; range.len()]);
            self.read(&embedding, range.clone(), &mut values[0])?;
            self.read(&head, range, &mut values[1])?;
            if values[0] != values[1] {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns a sentence for each contradiction between the files and `config`, as returned by
    /// [`Reader::config`], or the tensors in its `layout`.
    ///
    /// # Errors
    /// As [`Reader::config`].
    pub fn warnings(&self, config: &ModelConfig, layout: &Layout) -> Result<Vec<String>> {
        let directory = self.directory.display();
        let untied = (!config.tied && self.stated_config()?.tied).then(|| {
            format!(
                "{directory} has `{HEAD}` with other values than `{EMBEDDING}`, though config.json says \
                 \"tie_word_embeddings\": true; the head is used as it is stored and is not tied, as in Transformers 5"
            )
        });
        let surplus = self.surplus(layout);
        let ignored = (!surplus.is_empty()).then(|| {
            let (count, listed) = (surplus.len(), surplus.iter().take(LISTED));
            let listed = listed.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let more = count.checked_sub(LISTED).filter(|more| *more > 0);
            let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
            let tensors = if count == 1 { "a tensor" } else { &format!("{count} tensors") };
            format!(
                "{directory} has {tensors} that the model does not have, so they are neither trained nor saved: \
                 {listed}{more}"
            )
        });
        Ok(untied.into_iter().chain(ignored).collect())
    }

    /// Returns the names of tensors that are not in `layout`. Skips a copy of the embedding stored
    /// as the head, and rotary frequencies, which old models store and which follow from
    /// `config.json`.
    fn surplus(&self, layout: &Layout) -> Vec<&str> {
        let known: BTreeSet<&str> = layout.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
        let names = self.place.keys().map(String::as_str);
        let usual = |name: &&str| *name == HEAD || name.ends_with("rotary_emb.inv_freq");
        names.filter(|name| !known.contains(name) && !usual(name)).collect()
    }

    /// Reads the small files next to the weights. A model trained from these weights is saved with
    /// them, in the type in which most of the weights are stored.
    ///
    /// # Errors
    /// [`CheckpointError::Io`] naming the file that exists but cannot be read,
    /// [`CheckpointError::Replaced`] if the files may belong to another save.
    pub fn model_files(&self) -> Result<ModelFiles> {
        let found = ModelFiles::beside(&self.directory, self.stored_type())?;
        self.check_same_save()?;
        Ok(found)
    }

    /// Returns the type in which most elements are stored.
    fn stored_type(&self) -> ElementType {
        let elements = |one: &ElementType| -> usize {
            let infos = self.place.iter().filter_map(|(name, &file)| self.files.get(file)?.info(name));
            infos
                .filter(|info| info.dtype == one.dtype())
                .map(|info| info.shape.iter().product::<usize>())
                .sum()
        };
        // Of equally frequent types, the widest wins.
        ElementType::ALL.into_iter().rev().max_by_key(elements).unwrap_or_default()
    }

    /// Checks that every tensor of `layout` is present, with its shape and in a supported type.
    /// After that, [`Reader::read`] can fail only if the disk does.
    ///
    /// # Errors
    /// The first of [`CheckpointError::MissingTensor`], [`CheckpointError::WrongShape`] and
    /// [`CheckpointError::UnsupportedType`], in the layout's order.
    pub fn check(&self, layout: &Layout) -> Result<()> {
        let has_head = layout.tensors.iter().any(|tensor| tensor.name == HEAD);
        for tensor in &layout.tensors {
            if has_head && tensor.name == EMBEDDING && !self.place.contains_key(EMBEDDING) {
                return Err(self.missing(tensor));
            }
            let (file, info) = self.find(tensor)?;
            file.stored(&tensor.name, info)?;
        }
        Ok(())
    }

    /// Fills `values` with elements `range` of `tensor`, counted row-major, as f32 (BF16 and F16
    /// are widened, which is exact). Reads no other bytes.
    ///
    /// # Errors
    /// As [`Reader::check`]; [`CheckpointError::Elements`] if `range` leaves the tensor or is not
    /// as long as `values`; [`CheckpointError::Io`] if the disk fails.
    pub fn read(&self, tensor: &TensorSpec, range: Range<usize>, values: &mut [f32]) -> Result<()> {
        let (file, info) = self.find(tensor)?;
        file.read(&tensor.name, info, range, values)
    }

    /// Finds the file that holds `tensor`, and checks its shape. An embedding may be stored under
    /// the name of the head that is tied to it, because some writers keep only one of a shared
    /// tensor's names.
    fn find(&self, tensor: &TensorSpec) -> Result<(&FileReader, &TensorInfo)> {
        let stored = |name: &str| {
            let file = self.files.get(*self.place.get(name)?)?;
            Some((file, file.info(name)?))
        };
        let found = stored(&tensor.name).or_else(|| stored(HEAD).filter(|_| tensor.name == EMBEDDING));
        let (file, info) = found.ok_or_else(|| self.missing(tensor))?;
        if info.shape != tensor.shape {
            return Err(CheckpointError::WrongShape {
                path: file.path().to_path_buf(),
                tensor: tensor.name.clone(),
                expected: tensor.shape.clone(),
                found: info.shape.clone(),
            });
        }
        Ok((file, info))
    }

    fn missing(&self, tensor: &TensorSpec) -> CheckpointError {
        let hint = if tensor.name == HEAD {
            "If its head uses the embedding's weights, say \"tie_word_embeddings\": true in config.json."
        } else {
            "The weights belong to another architecture: use the config.json that came with them."
        };
        CheckpointError::MissingTensor {
            path: self.path.clone(),
            tensor: tensor.name.clone(),
            shape: tensor.shape.clone(),
            present: self.summary(),
            hint,
        }
    }

    /// Returns a description of the tensors in the files.
    fn summary(&self) -> String {
        match self.place.keys().next() {
            None => "it holds no tensors at all".into(),
            Some(first) => format!("it holds {} tensors, such as `{first}`", self.place.len()),
        }
    }

    /// Returns the directory's name after resolving links and `.`.
    fn name(&self) -> String {
        let resolved = self.directory.canonicalize().unwrap_or_else(|_| self.directory.clone());
        resolved.file_name().unwrap_or(resolved.as_os_str()).to_string_lossy().into_owned()
    }
}

/// Returns the path of the file that holds all weights, or of the index.
fn weights(path: &Path) -> Result<PathBuf> {
    let metadata = fs::metadata(path).map_err(CheckpointError::io("open", path))?;
    if !metadata.is_dir() {
        return Ok(path.to_path_buf());
    }
    let candidates = [names::single, names::index].map(|name| path.join(name(names::STEMS[0])));
    candidates.into_iter().find(|candidate| candidate.exists()).ok_or_else(|| no_weights(path))
}

fn no_weights(path: &Path) -> CheckpointError {
    let pickled = ["pytorch_model.bin", "pytorch_model.bin.index.json"];
    let of_step = |entry: fs::DirEntry| entry.path().join(names::MANIFEST).exists();
    let steps = || fs::read_dir(path).is_ok_and(|all| all.flatten().any(of_step));
    let hint = if path.join(names::MANIFEST).exists() || steps() {
        "It holds checkpoints: the subcommand export writes their weights (export --from DIR --to OUT)."
    } else if pickled.iter().any(|name| path.join(name).exists()) {
        "It holds PyTorch weights: load them in Transformers and save them with `save_pretrained`."
    } else {
        "Give the directory that a run saved to, or a model downloaded from Hugging Face."
    };
    CheckpointError::NoWeights { path: path.to_path_buf(), hint }
}
