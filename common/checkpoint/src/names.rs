//! The names of the files that this crate writes to a directory of weights.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Prefixes of the names of files with all weights, momenta, or variances.
pub(crate) const STEMS: [&str; 3] = ["model", "exp_avg", "exp_avg_sq"];
/// Name of the manifest in its checkpoint's directory.
pub(crate) const MANIFEST: &str = "manifest.json";
/// Name of the file that describes the architecture.
pub(crate) const CONFIG: &str = "config.json";
/// Name of the file with the settings for text generation.
pub(crate) const GENERATION: &str = "generation_config.json";
/// The files of a tokenizer that may be stored next to the weights, by Transformers' names.
pub(crate) const TOKENIZER: [&str; 8] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
];

/// Returns this crate's own copy of `name`. `None` if `name` is not a small file next to the
/// weights.
pub(crate) fn model_file(name: &str) -> Option<&'static str> {
    model_files().find(|known| *known == name)
}

/// Returns the names of all small files that may be stored next to the weights.
pub(crate) fn model_files() -> impl Iterator<Item = &'static str> {
    [CONFIG, GENERATION].into_iter().chain(TOKENIZER)
}

/// Returns the name of the single file that holds all tensors under `stem`.
pub(crate) fn single(stem: &str) -> String {
    format!("{stem}.safetensors")
}

/// Returns the name of the index if the tensors under `stem` are in several files.
pub(crate) fn index(stem: &str) -> String {
    format!("{stem}.safetensors.index.json")
}

/// Returns the name of file `number` (from 0) of `files`.
pub(crate) fn shard(stem: &str, number: usize, files: usize) -> String {
    format!("{stem}-{:05}-of-{files:05}.safetensors", number + 1)
}

/// True if a save replaces or removes the file `name`.
pub(crate) fn is_ours(name: &OsStr) -> bool {
    is_weights(name) || name.to_str().is_some_and(|name| model_file(name).is_some())
}

/// True if a file of this name holds weights or moments, or is their index.
pub(crate) fn is_weights(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    STEMS.iter().any(|stem| name == single(stem) || name == index(stem) || is_shard(name, stem))
}

fn is_shard(name: &str, stem: &str) -> bool {
    let numbers = name.strip_prefix(stem).and_then(|rest| rest.strip_prefix('-'));
    let numbers = numbers.and_then(|rest| rest.strip_suffix(".safetensors"));
    let number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.and_then(|rest| rest.split_once("-of-")).is_some_and(|(one, all)| number(one) && number(all))
}

/// True if both describe the same file or directory.
pub(crate) fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_weights_are_ours_and_others_are_not() {
        for name in [
            "config.json",
            "generation_config.json",
            "merges.txt",
            "model.safetensors",
            "model.safetensors.index.json",
            "model-00001-of-00003.safetensors",
            "exp_avg_sq-00001-of-00003.safetensors",
            "exp_avg.safetensors",
        ] {
            assert!(is_ours(OsStr::new(name)), "{name}");
        }
        for name in [
            "notes.txt",
            "model",
            "model-1-of-3.safetensors",
            "model-00001-of-0000x.safetensors",
            "other.safetensors",
            "pytorch_model.bin",
            "exp_avg_sq_2.safetensors",
        ] {
            assert!(!is_ours(OsStr::new(name)), "{name}");
        }
        assert!(is_ours(OsStr::new(&shard("model", 2, 12))));
        assert_eq!(shard("model", 2, 12), "model-00003-of-00012.safetensors");
    }
}
