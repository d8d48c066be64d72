//! The manifest of a checkpoint: its identity, and the hash of every block of its files.
//!
//! It is stored as one JSON object: the format's version, a hash of version and content, and the
//! content. Every byte is verified.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The format version that this crate writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// A checkpoint's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The progress of training, in a form chosen by the caller.
    pub progress: Value,
    /// Values that a resuming run must share with the run that wrote the checkpoint.
    pub identity: Value,
    /// Values that are only recorded: the writer's stage, strategy, number of ranks and so on.
    pub record: Value,
    /// Size of a block in bytes.
    pub block_bytes: u64,
    /// The files, one per rank.
    pub files: Vec<FileRecord>,
    /// The [`ModelFiles`](crate::ModelFiles); `companions` on disk. Empty if training did not start
    /// from weights with any.
    #[serde(rename = "companions", default, skip_serializing_if = "Vec::is_empty")]
    pub model_files: Vec<FileRecord>,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Name in the checkpoint's directory.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// The hash of each block, in hexadecimal digits.
    pub blocks: Vec<String>,
}

/// The reason why a text is not a manifest.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NotAManifest {
    /// It is intact, but in a format that this crate does not read.
    Format(u32),
    /// It is damaged: a description.
    Damaged(&'static str),
}

impl Manifest {
    /// Returns the text of the manifest file.
    ///
    /// # Errors
    /// JSON's: a number that is not finite.
    pub(super) fn seal(&self) -> serde_json::Result<String> {
        let content = serde_json::to_string(self)?;
        let hash = hash(&FORMAT.to_string(), &content);
        Ok(format!("{{\"format\":{FORMAT},\"blake3\":\"{hash}\",\"manifest\":{content}}}"))
    }

    /// Parses the text of a manifest file.
    ///
    /// # Errors
    /// If any byte differs from the data that was written, or the format is newer.
    pub(super) fn unseal(text: &str) -> Result<Self, NotAManifest> {
        let (format, content) =
            verified(text).ok_or(NotAManifest::Damaged("its hash does not match its content"))?;
        match format.parse() {
            Ok(FORMAT) => serde_json::from_str(content)
                .map_err(|_| NotAManifest::Damaged("its content does not follow the format")),
            Ok(other) => Err(NotAManifest::Format(other)),
            Err(_) => Err(NotAManifest::Damaged("it names no format")),
        }
    }
}

/// Returns the version and the content in `text`. `None` if they do not match the hash between
/// them.
fn verified(text: &str) -> Option<(&str, &str)> {
    let rest = text.strip_prefix("{\"format\":")?;
    let (format, rest) = rest.split_once(",\"blake3\":\"")?;
    let (found, rest) = rest.split_once("\",\"manifest\":")?;
    let content = rest.strip_suffix('}')?;
    (found == hash(format, content)).then_some((format, content))
}

fn hash(format: &str, content: &str) -> String {
    blake3::hash(format!("{format} {content}").as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn manifest() -> Manifest {
        Manifest {
            progress: json!({"steps": 4}),
            identity: json!({"architecture": {"layers": 2}}),
            record: json!({"stage": "ZeRO-3"}),
            block_bytes: 1 << 20,
            files: vec![FileRecord { name: "rank-0".into(), bytes: 7, blocks: vec!["ab".into()] }],
            model_files: Vec::new(),
        }
    }

    #[test]
    fn a_manifest_reads_back_and_no_flipped_bit_goes_unseen() {
        let text = manifest().seal().unwrap();
        assert!(text.starts_with("{\"format\":1,"), "the version comes first");
        assert_eq!(Manifest::unseal(&text), Ok(manifest()));
        for bit in 0..8 * text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(changed) = String::from_utf8(bytes) {
                assert!(matches!(Manifest::unseal(&changed), Err(NotAManifest::Damaged(_))), "{changed}");
            }
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let content = "{\"new\":true}";
        let text = format!("{{\"format\":2,\"blake3\":\"{}\",\"manifest\":{content}}}", hash("2", content));
        assert_eq!(Manifest::unseal(&text), Err(NotAManifest::Format(2)));
    }
}
