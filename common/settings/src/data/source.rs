//! The settings of the data.

use crate::error::{Failure, Result};
use std::path::PathBuf;

/// How a data file encodes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TokenFormat {
    /// Text: every byte is a token, or what --tokenizer makes of it.
    #[default]
    Bytes,
    /// Little-endian 16-bit token ids.
    U16,
    /// Little-endian 32-bit token ids.
    U32,
    /// A JSON object per line: its "text", its "prompt" and "completion", or its "messages".
    Jsonl,
}

/// Where tokens come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DataSource {
    /// A file; the built-in text if none.
    pub path: Option<PathBuf>,
    /// Its encoding.
    pub format: TokenFormat,
    /// Share of the tokens, at the end, that is kept for validation.
    pub validation: f64,
    /// Seed of the shuffled order; the order of the text if none.
    pub shuffle: Option<u64>,
    /// The tokenizer of text; bytes if none.
    pub tokenizer: Option<PathBuf>,
    /// Whether the tokens of prompts, and of all turns but the assistant's, carry no loss.
    pub mask_prompt: bool,
}

/// Set in a token that carries no loss: a prompt's.
pub(super) const PROMPT: u32 = 1 << 31;

impl TokenFormat {
    /// Returns how a file of this format stores a token.
    pub(super) fn width(self) -> Width {
        match self {
            TokenFormat::Bytes => Width::U8,
            TokenFormat::U16 => Width::U16,
            TokenFormat::U32 | TokenFormat::Jsonl => Width::U32,
        }
    }
}

impl DataSource {
    /// True if the data are text.
    pub(super) fn holds_text(&self) -> bool {
        matches!(self.format, TokenFormat::Bytes | TokenFormat::Jsonl)
    }

    /// True if the data are encoded before a run.
    pub(super) fn is_encoded(&self) -> bool {
        self.format == TokenFormat::Jsonl || self.tokenizer.is_some() && self.holds_text()
    }

    /// Returns these settings if they fit each other.
    ///
    /// # Errors
    /// A usage failure that names the flags.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.mask_prompt && self.format != TokenFormat::Jsonl {
            return Err(Failure::usage(
                "--mask-prompt is about the prompts in JSON lines: give --data FILE --data-format jsonl, too",
            ));
        }
        if self.format == TokenFormat::Jsonl && self.path.is_none() {
            return Err(Failure::usage("--data-format jsonl is about a file: give --data FILE, too"));
        }
        Ok(self)
    }
}

/// How a token is stored: as an unsigned little-endian number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Width {
    U8,
    U16,
    U32,
}

impl Width {
    /// Bytes of a token.
    pub(super) fn size(self) -> usize {
        match self {
            Width::U8 => size_of::<u8>(),
            Width::U16 => size_of::<u16>(),
            Width::U32 => size_of::<u32>(),
        }
    }

    /// The largest id.
    pub(super) fn largest(self) -> usize {
        (1 << (8 * self.size())) - 1
    }

    /// What `--data-format` calls it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Width::U8 => "bytes",
            Width::U16 => "u16",
            Width::U32 => "u32",
        }
    }
}
