//! Text to tokens and back: bytes, or a Hugging Face tokenizer in a program that is built with the
//! feature `tokenizers`.

use crate::error::{Failure, Result};
use checkpoint::tokenizer as bytes;
use std::path::Path;

/// What turns text into tokens and back.
pub enum Tokenizer {
    /// Every byte is a token.
    Bytes,
    /// A `tokenizer.json`.
    #[cfg(feature = "tokenizers")]
    File(Box<file::FileTokenizer>),
}

impl Tokenizer {
    /// Opens the tokenizer in a file; bytes if there is none.
    ///
    /// # Errors
    /// A usage failure if it cannot be read, or this program is built without such tokenizers.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        match path {
            None => Ok(Tokenizer::Bytes),
            #[cfg(feature = "tokenizers")]
            Some(path) => Ok(Tokenizer::File(Box::new(file::FileTokenizer::open(path)?))),
            #[cfg(not(feature = "tokenizers"))]
            Some(path) => Err(Failure::usage(format!(
                "--tokenizer {} needs a program that is built with tokenizers: add --features tokenizers to \
                 cargo run or cargo build",
                path.display()
            ))),
        }
    }

    /// Returns the tokens of `text`, without those that begin or end a text.
    ///
    /// # Errors
    /// If the tokenizer does not know a part of it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Tokenizer::Bytes => Ok(bytes::encode(text)),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.encode(text),
        }
    }

    /// Returns the text of `tokens`.
    ///
    /// # Errors
    /// If the tokenizer fails.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        match self {
            Tokenizer::Bytes => Ok(bytes::decode(tokens)),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.decode(tokens),
        }
    }

    /// Returns the token that ends a text: a line's end among bytes; none if a tokenizer's
    /// `tokenizer_config.json` names none.
    pub fn end(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => Some(b'\n'.into()),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.end,
        }
    }
}

#[cfg(feature = "tokenizers")]
mod file {
    use super::{Failure, Path, Result};
    use serde_json::Value;

    /// A tokenizer in a file, which errors name.
    pub struct FileTokenizer {
        name: String,
        tokenizer: tokenizers::Tokenizer,
        pub(super) end: Option<u32>,
    }

    impl FileTokenizer {
        pub(super) fn open(path: &Path) -> Result<Self> {
            let name = format!("--tokenizer {}", path.display());
            let tokenizer = tokenizers::Tokenizer::from_file(path).map_err(|error| {
                Failure::usage(format!(
                    "cannot read {name}: {error}\nGive the tokenizer.json of a model in Hugging Face's format."
                ))
            })?;
            let end = end_of_text(path).and_then(|token| tokenizer.token_to_id(&token));
            Ok(FileTokenizer { name, tokenizer, end })
        }

        pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
            let encoded = self.tokenizer.encode_fast(text, false);
            Ok(encoded.map_err(|error| self.failed("encode a text", &error))?.get_ids().to_vec())
        }

        pub(super) fn decode(&self, tokens: &[u32]) -> Result<String> {
            self.tokenizer.decode(tokens, true).map_err(|error| self.failed("decode tokens", &error))
        }

        fn failed(&self, what: &str, error: &tokenizers::Error) -> Failure {
            Failure::run(format!("{} cannot {what}: {error}", self.name))
        }
    }

    /// Returns the `eos_token` of the `tokenizer_config.json` beside a tokenizer: a string, or an
    /// object with its content.
    fn end_of_text(path: &Path) -> Option<String> {
        let text = std::fs::read_to_string(path.with_file_name("tokenizer_config.json")).ok()?;
        let token = serde_json::from_str::<Value>(&text).ok()?["eos_token"].take();
        token.as_str().or(token["content"].as_str()).map(String::from)
    }
}

#[cfg(all(test, feature = "tokenizers"))]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"{
        "version": "1.0", "added_tokens": [{"id": 4, "content": "</s>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false}], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": {"type": "Fuse"}, "truncation": null, "padding": null,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2, "ab": 3}, "merges": ["a b"]}
    }"#;

    #[test]
    fn a_file_gives_its_tokens_and_the_one_that_ends_a_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, DEFINITION).unwrap();
        let open = || Tokenizer::open(Some(&path)).unwrap();
        assert_eq!(open().encode("ab ba").unwrap(), [3, 2, 1, 0]);
        assert_eq!(open().decode(&[3, 2, 1, 0, 4]).unwrap(), "ab ba");
        assert_eq!(open().end(), None);
        for token in [r#""</s>""#, r#"{"content": "</s>", "lstrip": false}"#] {
            std::fs::write(dir.path().join("tokenizer_config.json"), format!(r#"{{"eos_token": {token}}}"#))
                .unwrap();
            assert_eq!(open().end(), Some(4), "{token}");
        }
    }

    #[test]
    fn a_file_that_is_no_tokenizer_is_a_usage_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokenizer.json");
        for contents in ["", "{}", r#"{"model": {"type": "BPE"}}"#] {
            std::fs::write(&path, contents).unwrap();
            let error = Tokenizer::open(Some(&path)).err().unwrap();
            assert!(
                error.code() == 2 && error.to_string().starts_with("cannot read --tokenizer "),
                "{error}"
            );
        }
    }
}
