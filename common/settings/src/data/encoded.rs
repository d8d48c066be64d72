//! Encodes text before a run, to a temporary file of 32-bit ids. The file has no name, so it
//! vanishes with the process.

use super::progress::EncodingProgress;
use super::source::{DataSource, PROMPT, TokenFormat};
use crate::error::{Failure, Result};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use text::{TextError, Tokenizer, ids};

/// Bytes of a text that are encoded at once.
const PIECE: usize = 1 << 20;
/// The mark that some editors put before a text in UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
/// Maximum length of a piece: a text is cut there even if no line ends.
const LONGEST_PIECE: usize = 2 * PIECE;

/// The state of an encoding.
struct Encoder<'a> {
    name: &'a str,
    tokenizer: Tokenizer,
    mask_prompt: bool,
    out: BufWriter<File>,
    /// Number of tokens written, and of those that carry a loss.
    tokens: u64,
    learned: u64,
    progress: Option<EncodingProgress>,
    /// The warning about a record without an end.
    warning: Option<String>,
}

/// Encodes the text in `file`, named `name` in errors, as `source` asks, and reports to `progress`.
///
/// # Errors
/// A usage failure if the tokenizer cannot be opened or the text is malformed; a failed run if the
/// file for the ids cannot be written.
pub(super) fn encode(
    source: &DataSource,
    file: File,
    name: &str,
    progress: Option<EncodingProgress>,
) -> Result<File> {
    let tokenizer = Tokenizer::open(source.tokenizer.as_deref())?;
    let out = BufWriter::new(tempfile::tempfile().map_err(unwritten)?);
    let mask_prompt = source.mask_prompt;
    let (tokens, learned, warning) = (0, 0, None);
    let mut encoder = Encoder { name, tokenizer, mask_prompt, out, tokens, learned, progress, warning };
    let mut text = BufReader::new(file);
    // An editor's mark of UTF-8 is no part of the text.
    if text.fill_buf().is_ok_and(|bytes| bytes.starts_with(BYTE_ORDER_MARK)) {
        text.consume(BYTE_ORDER_MARK.len());
    }
    match source.format {
        TokenFormat::Jsonl => encoder.records(text)?,
        _ => encoder.text(text)?,
    }
    if let Some(progress) = encoder.progress.take() {
        progress.finish();
        encoder.warning.iter().for_each(|warning| events::complain!("warning: {name}: {warning}"));
    }
    encoder.out.into_inner().map_err(|error| unwritten(error.into_error()))
}

impl Encoder<'_> {
    /// Encodes plain text in pieces. A piece ends before a line that does not begin with a space,
    /// where tokenizers that split text first split it anyway. If there is no such line within
    /// [`LONGEST_PIECE`] bytes, the piece ends at [`last_cut`].
    fn text(&mut self, mut text: impl BufRead) -> Result<()> {
        let mut piece = Vec::new();
        loop {
            let room = (LONGEST_PIECE - piece.len()) as u64;
            let read = Read::take(&mut text, room).read_until(b'\n', &mut piece);
            let read = read.map_err(|error| self.unread(&error))?;
            let next = text.fill_buf().map_err(|error| self.unread(&error))?.first();
            let may_end = piece.ends_with(b"\n") && next.is_none_or(|byte| !byte.is_ascii_whitespace());
            let end = match piece.len() {
                length if read == 0 || length >= PIECE && may_end => length,
                LONGEST_PIECE => last_cut(&piece),
                _ => continue,
            };
            let rest = piece.split_off(end);
            self.piece(std::mem::replace(&mut piece, rest))?;
            if read == 0 {
                return Ok(());
            }
        }
    }

    fn piece(&mut self, piece: Vec<u8>) -> Result<()> {
        let bytes = piece.len();
        let piece = String::from_utf8(piece).map_err(|_| self.unread(&io::ErrorKind::InvalidData.into()))?;
        self.put(&self.tokenizer.encode(&piece)?)?;
        self.advance(bytes);
        Ok(())
    }

    /// Counts `bytes` more encoded bytes.
    fn advance(&mut self, bytes: usize) {
        let tokens = self.tokens;
        self.progress.iter_mut().for_each(|progress| progress.advance(bytes as u64, tokens));
    }

    /// Encodes a record per line.
    fn records(&mut self, text: impl BufRead) -> Result<()> {
        let mark = if self.mask_prompt { PROMPT } else { 0 };
        for (number, line) in text.lines().enumerate() {
            let line = line.map_err(|error| self.unread(&error))?;
            if !line.trim().is_empty() {
                let tokens = self.tokenizer.encode_record(&line, mark);
                self.put(&tokens.map_err(|error| self.of_line(number + 1, error))?)?;
                self.warning = self.warning.take().or_else(|| self.tokenizer.unended(&line));
            }
            self.advance(line.len() + 1);
        }
        if self.learned == 0 && self.tokens > 0 { Err(self.unlearned()) } else { Ok(()) }
    }

    fn put(&mut self, tokens: &[u32]) -> Result<()> {
        self.out.write_all(&ids::to_bytes(tokens)).map_err(unwritten)?;
        self.tokens += tokens.len() as u64;
        self.learned += ids::unmarked(tokens, PROMPT) as u64;
        Ok(())
    }

    /// Returns `error` with the number of its line.
    fn of_line(&self, line: usize, error: TextError) -> Failure {
        match error {
            TextError::Input(why) => Failure::usage(format!("{}: line {line} {why}", self.name)),
            other => other.into(),
        }
    }

    fn unlearned(&self) -> Failure {
        Failure::usage(format!(
            "{}: with --mask-prompt no token carries a loss: no message has the role \"assistant\", or the chat \
             template marks none\nCheck the roles and the template, or leave --mask-prompt out.",
            self.name
        ))
    }

    fn unread(&self, error: &io::Error) -> Failure {
        Failure::usage(match error.kind() {
            io::ErrorKind::InvalidData => {
                format!("{} is not UTF-8 text\nFor token ids give --data-format u16 or u32.", self.name)
            }
            _ => format!("cannot read {}: {error}", self.name),
        })
    }
}

/// Returns the last index at which a space separates two words: tokenizers that pre-split text
/// split there too. Without one, returns the start of the last character.
fn last_cut(piece: &[u8]) -> usize {
    let cuts = |&at: &usize| {
        !piece[at - 1].is_ascii_whitespace() && piece[at] == b' ' && piece[at + 1].is_ascii_alphanumeric()
    };
    let begins = |&at: &usize| piece[at] & 0xC0 != 0x80;
    let mut last = (1..piece.len() - 1).rev().filter(cuts);
    last.next().or_else(|| (1..piece.len()).rev().find(begins)).unwrap_or(piece.len())
}

fn unwritten(error: io::Error) -> Failure {
    let directory = std::env::temp_dir();
    Failure::run(format!(
        "the tokens of the data cannot be written to {}: {error}\n\
         Make room there, or name another directory in the environment variable TMPDIR.",
        directory.display()
    ))
}

#[cfg(test)]
mod tests;
