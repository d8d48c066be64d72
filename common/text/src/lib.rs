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
mod ids;
#[cfg(feature = "tokenizers")]
mod python;
mod record;

pub use error::{Result, TextError};
pub use ids::{Width, first_outside};

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

    /// Returns the tokens of the record in a line of JSON, each with whether it carries a loss: with
    /// `mask` a prompt's do not, nor what the assistant of a conversation does not say. The token that
    /// ends a text follows, but for a conversation, which its chat template ends.
    ///
    /// # Errors
    /// If the line is no record, or the tokenizer does not know a part of it. The message continues a
    /// sentence that names the line.
    pub fn encode_record(&self, line: &str, mask: bool) -> Result<Vec<(u32, bool)>> {
        let (prompt, rest) = match Record::read(line)? {
            Record::Chat { .. } => return self.encode_conversation(line, mask),
            Record::Text { text } => (String::new(), text),
            Record::Pair { prompt, completion } => (prompt, completion),
        };
        let prompt = self.encode(&prompt)?.into_iter().map(|id| (id, !mask));
        let rest = self.encode(&rest)?.into_iter().chain(self.end()).map(|id| (id, true));
        Ok(prompt.chain(rest).collect())
    }

    /// Returns the tokens of the conversation in a line of JSON, as the model's chat template writes
    /// it, each with whether it carries a loss.
    fn encode_conversation(&self, line: &str, mask: bool) -> Result<Vec<(u32, bool)>> {
        match self {
            #[cfg(feature = "tokenizers")]
            Tokenizer::File(file) => file.encode_conversation(line, mask),
            Tokenizer::Bytes => {
                let _ = (line, mask);
                Err(TextError::input(
                    "is a conversation, which needs the chat template of a model: give --tokenizer MODEL/tokenizer.json",
                ))
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

#[cfg(test)]
#[cfg(feature = "tokenizers")]
mod tests;
