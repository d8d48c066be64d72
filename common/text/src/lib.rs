//! Text to tokens and back: bytes, or a Hugging Face tokenizer in a program that is built with the
//! feature `tokenizers`. Beside them, token ids as files hold them.

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

pub use error::{Result, TextError};

use record::Record;
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
    /// If it cannot be read, or this program is built without such tokenizers.
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

    /// Returns the tokens of the record in a line of JSON, with the bits of `mark` set in those that
    /// carry no loss: a prompt's, and of a conversation what others than the assistant say. A token
    /// that begins in a prompt and ends in its completion carries one. With 0 every token does. The
    /// token that ends a text follows a text or a completion; a conversation's chat template ends it.
    ///
    /// # Errors
    /// [`TextError::Input`] if the line is no record, or the chat template of a conversation is missing
    /// or fails: its message continues a sentence that names the line. [`TextError::Tokenizer`] if the
    /// tokenizer fails.
    pub fn encode_record(&self, line: &str, mark: u32) -> Result<Vec<u32>> {
        let mut tokens = match Record::read(line)? {
            Record::Chat => return self.encode_conversation(line, mark),
            Record::Text(text) => self.encode(&text)?,
            Record::Pair { prompt, completion } => self.encode_pair(&prompt, &completion, mark)?,
        };
        tokens.extend(self.end());
        Ok(tokens)
    }

    /// Returns the tokens of a prompt with its completion, which are one text, with the bits of `mark`
    /// set in those that end in the prompt.
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

    /// Returns the tokens of the conversation in a line of JSON, as the model's chat template writes
    /// it, with the bits of `mark` set in those that the assistant does not say.
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

    /// Returns a warning if nothing ends the record in a line of JSON: the tokenizer has no token that
    /// ends a text, and the record is no conversation, which its chat template ends.
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

    /// Returns the token after which a text that is generated is complete; none among bytes, of which a
    /// line's end may be one.
    pub fn stop(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => None,
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.end,
        }
    }

    /// Returns the token that ends a text: a line's end among bytes; none if neither the
    /// `tokenizer_config.json` nor the `special_tokens_map.json` of a tokenizer names one that it has.
    pub fn end(&self) -> Option<u32> {
        match self {
            Tokenizer::Bytes => Some(b'\n'.into()),
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.end,
        }
    }
}

/// Marks tokens in tests.
#[cfg(test)]
const MARK: u32 = 1 << 31;

#[cfg(test)]
#[cfg(feature = "tokenizers")]
mod tests;
