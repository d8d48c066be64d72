//! Converts text to tokens and back, either as bytes or with a Hugging Face tokenizer in a program
//! that is built with the feature `tokenizers`. Also converts token ids to and from their storage
//! formats.

pub mod bytes;
#[cfg(feature = "tokenizers")]
mod chat;
#[cfg(feature = "tokenizers")]
mod conversation;
mod error;
#[cfg(feature = "tokenizers")]
mod file;
pub mod ids;
#[cfg(feature = "tokenizers")]
mod python;
mod record;
#[cfg(feature = "tokenizers")]
mod regular;

pub use error::{Result, TextError};

use record::Record;
use std::path::Path;

/// A tokenizer, which turns text into tokens and back.
pub enum Tokenizer {
    /// Every byte is a token.
    Bytes,
    /// A `tokenizer.json`.
    #[cfg(feature = "tokenizers")]
    File(Box<file::FileTokenizer>),
}

impl Tokenizer {
    /// Opens the tokenizer in the file at `path`. `None` selects the byte-level tokenizer.
    ///
    /// # Errors
    /// If the file cannot be read, or this program is built without such tokenizers.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        match path {
            None => Ok(Tokenizer::Bytes),
            #[cfg(feature = "tokenizers")]
            Some(path) => Ok(Tokenizer::File(Box::new(file::FileTokenizer::open(path)?))),
            #[cfg(not(feature = "tokenizers"))]
            Some(path) => Err(TextError::input(format!(
                "--tokenizer {} needs a program that is built with tokenizers: add --features tokenizers to \
                 cargo run or cargo build",
                path.display()
            ))),
        }
    }

    /// Returns the tokens of `text`, without any that mark its beginning or end.
    ///
    /// # Errors
    /// If the tokenizer cannot encode a part of the text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Tokenizer::Bytes => Ok(bytes::encode(text)),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.encode(text),
        }
    }

    /// Returns the tokens of the record in a line of JSON. The bits of `mark` are set in tokens
    /// that carry no loss: those of a prompt, and in a conversation all that the assistant does not
    /// say. A token that begins in a prompt and ends in its completion carries a loss. If `mark` is
    /// 0, every token does. An end-of-text token follows a text or a completion; a conversation
    /// ends as its chat template says.
    ///
    /// # Errors
    /// [`TextError::Input`] if the line is not a record, or a conversation's chat template is
    /// missing or fails; its message continues a sentence that names the line.
    /// [`TextError::Tokenizer`] if the tokenizer fails.
    pub fn encode_record(&self, line: &str, mark: u32) -> Result<Vec<u32>> {
        let mut tokens = match Record::read(line)? {
            Record::Chat => return self.encode_conversation(line, mark),
            Record::Text(text) => self.encode(&text)?,
            Record::Pair { prompt, completion } => self.encode_pair(&prompt, &completion, mark)?,
        };
        tokens.extend(self.end());
        Ok(tokens)
    }

    /// Returns the tokens of a prompt and its completion, encoded as one text. The bits of `mark`
    /// are set in tokens that end in the prompt.
    fn encode_pair(&self, prompt: &str, completion: &str, mark: u32) -> Result<Vec<u32>> {
        match self {
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.encode_pair(prompt, completion, mark),
            Tokenizer::Bytes => {
                let prompt = bytes::encode(prompt).into_iter().map(|token| token | mark);
                Ok(prompt.chain(bytes::encode(completion)).collect())
            }
        }
    }

    /// Returns the tokens of the conversation in a line of JSON, rendered with the model's chat
    /// template. The bits of `mark` are set in tokens that the assistant does not say.
    fn encode_conversation(&self, line: &str, mark: u32) -> Result<Vec<u32>> {
        match self {
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.encode_conversation(line, mark),
            Tokenizer::Bytes => {
                let _ = (line, mark);
                Err(TextError::input(
                    "is a conversation, which needs the chat template of a model: give --tokenizer MODEL/tokenizer.json",
                ))
            }
        }
    }

    /// Returns a warning if nothing marks the end of the record in a line of JSON: the tokenizer
    /// has no end-of-text token, and the record is not a conversation, which its chat template
    /// ends.
    pub fn unended(&self, line: &str) -> Option<String> {
        match self {
            Tokenizer::Bytes => {
                let _ = line;
                None
            }
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => {
                file.unended().filter(|_| !matches!(Record::read(line), Ok(Record::Chat)))
            }
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

    /// Returns the token that ends generation. `None` for bytes, because a newline may be part of
    /// the text.
    pub fn stop(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => None,
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.end,
        }
    }

    /// Returns the end-of-text token. For bytes this is a newline. `None` if neither
    /// `tokenizer_config.json` nor `special_tokens_map.json` names a token that the tokenizer has.
    pub fn end(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => Some(b'\n'.into()),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.end,
        }
    }
}

/// The bit that marks tokens in tests.
#[cfg(test)]
const MARK: u32 = 1 << 31;

#[cfg(test)]
#[cfg(feature = "tokenizers")]
mod tests;
