//! The settings of the data.

use crate::error::{Failure, Result};
use crate::labels;
use crate::size::{number, whole};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use text::ids::Width;

/// How a data file encodes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TokenFormat {
    /// Text: every byte is a token, or the text is encoded by --tokenizer.
    #[default]
    Bytes,
    /// Little-endian 16-bit token ids.
    U16,
    /// Little-endian 32-bit token ids.
    U32,
    /// A JSON object per line: its "text", its "prompt" and "completion", or its "messages".
    Jsonl,
}

/// The source of the tokens, according to the flags.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct DataSource {
    /// Text or binary file to train on; sentences about ranks and shards if none is given.
    #[arg(id = "data", long = "data", value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// Format of the data file.
    #[arg(id = "data_format", long = "data-format", value_enum, default_value_t, value_name = "FORMAT")]
    pub format: TokenFormat,
    /// Hugging Face tokenizer of the data's text, in the same folder as its model's chat template.
    /// (Build with --features tokenizers.)
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Compute no loss for prompts, nor for turns other than the assistant's; the model still reads
    /// them.
    #[arg(long)]
    pub mask_prompt: bool,
    /// Visit the data in an order shuffled by this seed.
    #[arg(id = "shuffle_seed", long = "shuffle-seed", value_name = "SEED", value_parser = whole::<u64>(0..=u64::MAX))]
    pub shuffle: Option<u64>,
    /// Share of the data, at its end, that is used for validation only.
    #[arg(id = "val_fraction", long = "val-fraction", default_value_t = 0.0, value_name = "SHARE", value_parser = number("a number from 0 to 0.9", |x| (0.0..=0.9).contains(&x)))]
    pub validation: f64,
}

/// The bit that is set in a token that carries no loss: a prompt's.
pub(super) const PROMPT: u32 = 1 << 31;

impl TokenFormat {
    /// Returns the width of a token in a file of this format.
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

    /// Returns these settings if they are compatible with each other.
    pub(crate) fn checked(self) -> Result<Self> {
        if self.mask_prompt && self.format != TokenFormat::Jsonl {
            return Err(Failure::usage("--mask-prompt needs --data FILE and --data-format jsonl"));
        }
        if self.format != TokenFormat::Bytes && self.path.is_none() {
            let format = labels::word(&self.format);
            return Err(Failure::usage(format!("--data-format {format} needs --data FILE")));
        }
        Ok(self)
    }
}
