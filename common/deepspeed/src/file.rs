//! Files on disk: finds them and determines their language.

use crate::node::Node;
use crate::{hjson, yaml};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Maximum size of a file that is read: real ones have a few kilobytes.
const LARGEST: u64 = 1 << 20;

/// Returns the path of the DeepSpeed file `inner`, which the file at `outer` names: relative to the
/// current directory, to the directory of `outer` or one above it, or next to `outer`.
pub(crate) fn beside(outer: &Path, inner: &str) -> PathBuf {
    let inner = Path::new(inner);
    let above = outer.ancestors().skip(1).map(|folder| folder.join(inner));
    let near = inner.file_name().map(|name| outer.with_file_name(name));
    let mut places = [inner.to_path_buf()].into_iter().chain(above).chain(near);
    places.find(|path| path.is_file()).unwrap_or(inner.into())
}

/// The language of a file: DeepSpeed's are JSON, Accelerate's mostly YAML.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// JSON and HJSON.
    Json,
    Yaml,
}

/// Reads the file at `path`. Returns its contents, its language, and warnings.
pub(crate) fn load(path: &Path) -> Result<(Node, Language, Vec<String>), String> {
    // Opening a pipe would wait for its writer, and a device may have no end.
    if path.exists() && !path.is_file() {
        return Err("it is not a regular file; give the path of a saved file".into());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => "not text in UTF-8".into(),
        _ => e.to_string(),
    })?;
    if text.len() as u64 > LARGEST {
        return Err(format!("too long for a configuration: at most {LARGEST} bytes are read"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(
            "it is empty; write at least {}, or something like {\"zero_optimization\": {\"stage\": 3}}"
                .into(),
        );
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    let language = match extension.to_ascii_lowercase().as_str() {
        "json" | "hjson" | "jsonc" => Language::Json,
        "yaml" | "yml" => Language::Yaml,
        _ if text.trim_start().starts_with('{') => Language::Json,
        _ => Language::Yaml,
    };
    // JSON is also YAML.
    let (root, doubts) = match language {
        Language::Yaml if !text.trim_start().starts_with('{') => yaml::parse(text)?,
        _ => (hjson::parse(text)?, Vec::new()),
    };
    Ok((root, language, doubts))
}
