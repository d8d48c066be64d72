//! Training text as token ids, in a defined order.
//!
//! Sample g of a run is `g = ((step · accumulation + micro) · world + rank) · micro_batch + row`;
//! it takes tokens `o..o + T + 1` with `o = (g · T) mod (length − T)`. With a shuffle seed the
//! windows at multiples of T are visited in a random order, a new one each epoch.
//!
//! A validation reads each window at a multiple of T once, so that its loss does not depend on how
//! many ranks share it: samples beyond the last window carry no loss.

mod container;
mod encoded;
mod progress;
mod source;
mod tokens;

pub use progress::ProgressOutput;
pub use source::{DataSource, TokenFormat};

use crate::corpus::SplitMix;
use crate::error::{Failure, Result};
use source::PROMPT;
use std::ops::Range;
use tokens::Tokens;

/// All tokens of a run. A file is read in windows, as samples need them.
#[derive(Debug)]
pub struct Data {
    tokens: Tokens,
    training: usize,
    shuffle: Option<u64>,
    vocabulary: usize,
}

/// The tokens to train on, or to validate on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// The model trains on it.
    Training,
    /// Only its loss is measured.
    Validation,
}

impl Data {
    /// Opens `source` for a model of `vocabulary` tokens and sequences of `length` tokens. `output`
    /// says whether the progress of encoding a large text is printed.
    ///
    /// # Errors
    /// A usage failure if the file cannot be read, is too short, or holds ids that the model does
    /// not know.
    pub fn open(
        source: &DataSource,
        vocabulary: usize,
        length: usize,
        output: ProgressOutput,
    ) -> Result<Self> {
        let tokens = match &source.path {
            None => Tokens::built_in(source.tokenizer.as_deref())?,
            Some(path) => Tokens::open(path, source, output)?,
        };
        let training = tokens.len - (tokens.len as f64 * source.validation) as usize;
        check_length(&tokens.name, training, length, ("training", ""))?;
        if source.validation > 0.0 {
            let more = ("validation", "a larger --val-fraction, ");
            check_length(&tokens.name, tokens.len - training, length, more)?;
        }
        tokens.examine(vocabulary)?;
        Ok(Data { tokens, training, shuffle: source.shuffle, vocabulary })
    }

    /// Returns the name of the data in errors.
    pub fn name(&self) -> &str {
        &self.tokens.name
    }

    /// True if each token is a byte of text.
    pub fn is_bytes(&self) -> bool {
        self.tokens.is_bytes
    }

    /// Returns the number of tokens in `split`.
    pub fn len(&self, split: Split) -> usize {
        self.place(split).len()
    }

    fn place(&self, split: Split) -> Range<usize> {
        match split {
            Split::Training => 0..self.training,
            Split::Validation => self.training..self.tokens.len,
        }
    }

    /// Reads `length` tokens of `split` from its token `start` on, as they are stored.
    ///
    /// # Errors
    /// If the file can no longer be read or has changed.
    pub fn window(&self, split: Split, start: usize, length: usize) -> Result<Vec<u32>> {
        let start = self.place(split).start + start;
        self.tokens.read(start..start + length, self.vocabulary)
    }

    /// Returns how many windows of `length` tokens `split` has.
    pub fn windows(&self, split: Split, length: usize) -> usize {
        (self.len(split) - 1) / length
    }

    /// Returns sample `g` of `split`, of `length` tokens. Past the last window of a validation it
    /// is a window again, and no token of it carries a loss.
    ///
    /// # Errors
    /// As [`Data::window`].
    pub fn sample(&self, split: Split, g: u64, length: usize) -> Result<Sample> {
        let (tokens, step) = (self.len(split) as u64, length as u64);
        let windows = self.windows(split, length) as u64;
        let start = match (split, self.shuffle) {
            (Split::Training, Some(seed)) if windows > 1 => shuffled(seed, g, windows) * step,
            _ => (g * step) % (tokens - step),
        };
        let mut tokens = self.window(split, start as usize, length + 1)?;
        if split == Split::Validation && g >= windows {
            tokens.iter_mut().for_each(|token| *token |= PROMPT);
        }
        Ok(Sample { tokens, vocabulary: self.vocabulary })
    }

    /// Returns the number of tokens of `samples` that carry a loss.
    ///
    /// # Errors
    /// As [`Data::window`].
    pub fn target_count(&self, split: Split, samples: Range<u64>, length: usize) -> Result<u64> {
        let samples = match split {
            Split::Training => samples,
            Split::Validation => {
                let windows = self.windows(split, length) as u64;
                samples.start.min(windows)..samples.end.min(windows)
            }
        };
        if !self.tokens.has_prompts {
            return Ok((samples.end - samples.start) * length as u64);
        }
        let vocabulary = self.vocabulary as u32;
        samples.map(|g| self.sample(split, g, length)).try_fold(0, |count, sample| {
            Ok(count + sample?.targets().filter(|&target| target != vocabulary).count() as u64)
        })
    }
}

/// A sequence of tokens, each to be predicted from those before it.
pub struct Sample {
    /// The tokens of the sequence and one more.
    tokens: Vec<u32>,
    vocabulary: usize,
}

impl Sample {
    /// Returns the input tokens.
    pub fn inputs(&self) -> impl Iterator<Item = u32> {
        self.tokens[..self.tokens.len() - 1].iter().map(|token| token & !PROMPT)
    }

    /// Returns the target tokens; the size of the vocabulary in place of each that carries no loss.
    pub fn targets(&self) -> impl Iterator<Item = u32> {
        let target = |&token: &u32| if token & PROMPT == 0 { token } else { self.vocabulary as u32 };
        self.tokens[1..].iter().map(target)
    }
}

/// Returns the window of sample `g` when `windows` windows are visited in a random order, a new one
/// each epoch: a Feistel network over the window's index, walked until it falls inside (cycle
/// walking).
fn shuffled(seed: u64, g: u64, windows: u64) -> u64 {
    let (epoch, mut index) = (g / windows, g % windows);
    let half = (64 - (windows - 1).leading_zeros()).div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    loop {
        let (mut left, mut right) = (index >> half, index & mask);
        for round in 0..4u64 {
            let key = seed ^ (epoch << 20) ^ (round << 60) ^ right.wrapping_mul(0xD6E8_FEB8_6659_FD93);
            (left, right) = (right, left ^ (SplitMix(key).next_u64() & mask));
        }
        index = (left << half) | right;
        if index < windows {
            return index;
        }
    }
}

/// Refuses a split of fewer tokens than one sequence of `length` needs. The error says what would
/// give it more tokens, other than a longer file.
fn check_length(name: &str, tokens: usize, length: usize, (what, more): (&str, &str)) -> Result<()> {
    if tokens > length {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{name} has {tokens} {what} tokens, but one sequence of {length} needs at least {}\n\
         Give {more}a longer file with --data, or a smaller --seq-len.",
        length + 1
    )))
}

#[cfg(test)]
mod tests;
