//! A Hugging Face tokenizer in a file, with the files next to it.

use super::chat::{ChatTemplate, content};
use super::conversation::Conversation;
use crate::error::{Result, TextError};
use crate::regular;
use serde_json::Value;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A tokenizer in a file.
pub struct FileTokenizer {
    path: PathBuf,
    tokenizer: tokenizers::Tokenizer,
    pub(super) end: Option<u32>,
    /// Content of `tokenizer_config.json`, plus the special tokens that only
    /// `special_tokens_map.json` names. Null if neither exists.
    settings: Value,
    /// Read for the first conversation.
    template: OnceLock<std::result::Result<ChatTemplate, String>>,
}

impl FileTokenizer {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let unreadable = |error: &dyn std::fmt::Display| {
            TextError::input(format!(
                "cannot read --tokenizer {}: {error}\n\
                 Give the tokenizer.json of a model in Hugging Face's format.",
                path.display()
            ))
        };
        let definition = regular::read(path).map_err(|error| unreadable(&error))?;
        let mut tokenizer =
            tokenizers::Tokenizer::from_bytes(definition).map_err(|error| unreadable(&error))?;
        // A file may ask for inputs padded to one length, which does not suit the text of a run.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| failed(path, "be set up", &error))?;
        let mut settings = beside(path, "tokenizer_config.json")?;
        let special = beside(path, "special_tokens_map.json")?;
        // The second file names the tokens that the first does not.
        let has_names = settings.is_object() || settings.is_null();
        let tokens = special.as_object().into_iter().flatten();
        for (name, token) in tokens.filter(|(name, _)| has_names && name.ends_with("_token")) {
            let named = &mut settings[name];
            if content(named).is_none() {
                *named = token.clone();
            }
        }
        let end = content(&settings["eos_token"]).and_then(|token| tokenizer.token_to_id(token));
        Ok(FileTokenizer { path: path.into(), tokenizer, end, settings, template: OnceLock::new() })
    }

    /// Returns a warning that no token marks the end of a text.
    pub(super) fn unended(&self) -> Option<String> {
        let warning = || {
            format!(
                "--tokenizer {} has no token that ends a text, so nothing ends an example, and the model does not \
                 learn to stop: name one as \"eos_token\" in {}",
                self.path.display(),
                self.path.with_file_name("tokenizer_config.json").display()
            )
        };
        self.end.is_none().then(warning)
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.tokenizer.encode_fast(text, false);
        Ok(encoded.map_err(|error| failed(&self.path, "encode a text", &error))?.get_ids().to_vec())
    }

    /// Implements [`super::Tokenizer::encode_conversation`]. A token carries a loss if any of its
    /// bytes does, as in Transformers.
    pub(super) fn encode_conversation(&self, line: &str, mark: u32) -> Result<Vec<u32>> {
        let template = self.template.get_or_init(|| ChatTemplate::beside(&self.path, &self.settings));
        let template = template.as_ref().map_err(TextError::input)?;
        let chat = Conversation::read(line).map_err(TextError::input)?;
        let rendering = template.render(&chat, mark != 0).map_err(TextError::input)?;
        let learned = |start, end| rendering.learned.iter().any(|span| start < span.end && end > span.start);
        self.encode_marked(&rendering.text, learned, mark)
    }

    /// Encodes a prompt and its completion as one text. Encoded separately, each would get a
    /// word-start marker from tokenizers that prepend one.
    pub(super) fn encode_pair(&self, prompt: &str, completion: &str, mark: u32) -> Result<Vec<u32>> {
        self.encode_marked(&[prompt, completion].concat(), |_, end| end > prompt.len(), mark)
    }

    /// Encodes `text`, with the bits of `mark` set in the tokens outside the ranges of `learned`.
    fn encode_marked(
        &self,
        text: &str,
        learned: impl Fn(usize, usize) -> bool,
        mark: u32,
    ) -> Result<Vec<u32>> {
        let encoded = self.tokenizer.encode(text, false);
        let encoded = encoded.map_err(|error| failed(&self.path, "encode a text", &error))?;
        let tokens = encoded.get_ids().iter().zip(encoded.get_offsets());
        Ok(tokens.map(|(&id, &(start, end))| if learned(start, end) { id } else { id | mark }).collect())
    }

    pub(super) fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, true).map_err(|error| failed(&self.path, "decode tokens", &error))
    }
}

fn failed(path: &Path, what: &str, error: &tokenizers::Error) -> TextError {
    TextError::Tokenizer(format!("--tokenizer {} cannot {what}: {error}", path.display()))
}

/// Reads the JSON file `name` next to the tokenizer at `path`. Null if it does not exist.
///
/// # Errors
/// If the file cannot be read or is not JSON.
fn beside(path: &Path, name: &str) -> Result<Value> {
    let path = path.with_file_name(name);
    let unreadable = |error: &dyn std::fmt::Display, remedy| {
        let path = path.display();
        TextError::input(format!("cannot read {path}, which belongs to the tokenizer: {error}\n{remedy}"))
    };
    match regular::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map_err(|error| unreadable(&error, "Download it again with the model.")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(unreadable(&error, "Let this program read it.")),
    }
}
