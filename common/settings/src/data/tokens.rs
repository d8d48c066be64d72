//! Token ids, in main memory or in a file that is read in windows.

use super::container::{self, Contents};
use super::encoded;
use super::progress::{EncodingProgress, ProgressOutput};
use super::source::{DataSource, PROMPT};
use crate::corpus;
use crate::error::{Failure, Result};
use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use text::Tokenizer;
use text::ids::{self, Width};

/// Maximum number of bytes of a file that are examined before a run.
const EXAMINED: usize = 1 << 30;
/// Number of tokens that are examined at once.
const PIECE: usize = 1 << 14;

/// The token ids of a text.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The name of the text in errors.
    pub(super) name: String,
    store: TokenStore,
    width: Width,
    /// Whether each token is a byte of text.
    pub(super) is_bytes: bool,
    /// Whether some tokens are a prompt's, with [`PROMPT`] set.
    pub(super) has_prompts: bool,
    /// The number of tokens.
    pub(super) len: usize,
}

#[derive(Debug)]
enum TokenStore {
    Memory(Cow<'static, [u8]>),
    /// A file, and the byte at which its first token begins.
    File(File, u64),
}

impl TokenStore {
    /// Fills `into` with the bytes from `start` on, counted from the first token.
    fn read(&self, start: usize, into: &mut [u8]) -> io::Result<()> {
        match self {
            TokenStore::Memory(bytes) => into.copy_from_slice(&bytes[start..start + into.len()]),
            TokenStore::File(file, first) => file.read_exact_at(into, first + start as u64)?,
        }
        Ok(())
    }
}

impl Tokens {
    /// Returns the built-in text, a token per byte or encoded by a tokenizer.
    pub(super) fn built_in(tokenizer: Option<&Path>) -> Result<Self> {
        let (name, text) = ("the built-in text".into(), corpus::text());
        let (bytes, width) = match tokenizer {
            None => (Cow::Borrowed(text.as_bytes()), Width::U8),
            Some(path) => {
                let tokens = Tokenizer::open(Some(path))?.encode(text)?;
                (Cow::Owned(ids::to_bytes(&tokens)), Width::U32)
            }
        };
        let len = bytes.len() / width.size();
        let is_bytes = tokenizer.is_none();
        Ok(Tokens { name, store: TokenStore::Memory(bytes), width, is_bytes, has_prompts: false, len })
    }

    /// Opens a file. Its tokens are stored as `source` says, unless the file's header says
    /// otherwise. Text for a tokenizer is encoded to another file; `output` says whether its
    /// progress is printed.
    ///
    /// # Errors
    /// A usage failure if it cannot be read, is empty, or does not hold such tokens.
    pub(super) fn open(path: &Path, source: &DataSource, output: ProgressOutput) -> Result<Self> {
        let unreadable = |error| unreadable(path, &error);
        let name = format!("--data {}", path.display());
        let file = storage::open_regular(File::options().read(true), path);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotSeekable if path.is_dir() => unreadable(rustix::io::Errno::ISDIR.into()),
            io::ErrorKind::NotSeekable => Failure::usage(format!(
                "{name} is not a regular file, and ranks read it at many places\n\
                 Write what it delivers to a file first: cat {} > FILE",
                path.display()
            )),
            _ => unreadable(error),
        })?;
        let metadata = file.metadata().map_err(unreadable)?;
        let mut head = vec![0; container::HEAD.min(metadata.len() as usize)];
        file.read_exact_at(&mut head, 0).map_err(unreadable)?;
        let found = container::recognise(&head, source.format);
        let found = found.map_err(|why| Failure::usage(format!("{name} {why}")))?;
        let encoded = found.is_none() && source.is_encoded();
        let file = if encoded {
            let progress =
                (output == ProgressOutput::Printed).then(|| EncodingProgress::new(&name, metadata.len()));
            encoded::encode(source, file, &name, progress)?
        } else {
            file
        };
        let width = if encoded { Width::U32 } else { source.format.width() };
        let Contents { width, start } = found.unwrap_or(Contents { width, start: 0 });
        let length = file.metadata().map_err(unreadable)?.len();
        let len = count(&name, length.saturating_sub(start), width)?;
        let has_prompts = encoded && source.mask_prompt;
        let is_bytes = found.is_none() && source.holds_text() && source.tokenizer.is_none();
        Ok(Tokens { name, store: TokenStore::File(file, start), width, is_bytes, has_prompts, len })
    }

    /// Reads the tokens in `range`, for a model of `vocabulary` tokens.
    ///
    /// # Errors
    /// A failed run if the file can no longer be read; a usage failure if it holds ids that the
    /// model does not know.
    pub(super) fn read(&self, range: Range<usize>, vocabulary: usize) -> Result<Vec<u32>> {
        let size = self.width.size();
        let mut bytes = vec![0; range.len() * size];
        self.store.read(range.start * size, &mut bytes).map_err(|error| self.changed(&range, &error))?;
        let tokens = self.width.decode(&bytes);
        let mark = if self.has_prompts { PROMPT } else { 0 };
        match ids::first_outside(&tokens, mark, vocabulary) {
            None => Ok(tokens),
            Some(at) => Err(Failure::usage(format!(
                "{}: token {} at position {} is outside the model's vocabulary of {vocabulary}\n\
                 Choose a model with a larger vocabulary, or check --data-format and --tokenizer.",
                self.name,
                tokens[at] & !mark,
                range.start + at
            ))),
        }
    }

    /// Looks for ids outside a model's `vocabulary`: everywhere, or in a file that is larger than
    /// [`EXAMINED`] in pieces at equal distances.
    pub(super) fn examine(&self, vocabulary: usize) -> Result<()> {
        if self.width.largest() < vocabulary {
            return Ok(());
        }
        let pieces = self.len.div_ceil(PIECE);
        let examined = pieces.min(EXAMINED / (PIECE * self.width.size()));
        for number in 0..examined {
            let start = pieces * number / examined * PIECE;
            self.read(start..self.len.min(start + PIECE), vocabulary)?;
        }
        Ok(())
    }

    fn changed(&self, range: &Range<usize>, error: &io::Error) -> Failure {
        let Range { start, end } = range;
        let why = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the file is shorter than it was when the run began".into(),
            _ => error.to_string(),
        };
        Failure::run(format!(
            "{}: tokens {start} to {end} cannot be read: {why}\nLeave the file alone while a run reads it.",
            self.name
        ))
    }
}

/// Returns the number of tokens in `bytes` bytes.
fn count(name: &str, bytes: u64, width: Width) -> Result<usize> {
    let size = width.size() as u64;
    if bytes == 0 {
        return Err(Failure::usage(format!(
            "{name} is empty\nGive a file with text, or leave --data out for the built-in text."
        )));
    }
    if !bytes.is_multiple_of(size) {
        return Err(Failure::usage(format!(
            "{name} has {bytes} bytes, not a whole number of {size}-byte token ids: check --data-format"
        )));
    }
    Ok((bytes / size) as usize)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    use io::ErrorKind::*;
    let remedy = match error.kind() {
        NotFound => "Check the path, or leave --data out for the built-in text.",
        IsADirectory => "This is a directory. Name one file in it.",
        NotADirectory => "A part of the path is a file: check the path.",
        PermissionDenied => "Give this user access to it, or choose another file.",
        _ => "Choose another file, or fix the cause that the system reports.",
    };
    Failure::usage(format!("cannot read --data {}: {error}\n{remedy}", path.display()))
}

#[cfg(test)]
mod tests;
