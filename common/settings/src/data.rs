//! Training text as token ids, in a defined order.
//!
//! Sample g of a run is `g = ((step · accumulation + micro) · world + rank) · micro_batch + row`;
//! it takes tokens `o..o + T + 1` with `o = (g · T) mod (length − T − 1)`. With a shuffle seed the
//! windows at multiples of T are visited in a random order, a new one each epoch.

mod container;
mod encoded;
mod progress;
mod source;
mod tokens;

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
    /// Its loss is measured only.
    Validation,
}

impl Data {
    /// Opens `source` for a model of `vocabulary` tokens and sequences of `length` tokens. If
    /// `reports_progress`, prints how much of a large text is encoded.
    ///
    /// # Errors
    /// A usage failure if the file cannot be read, is too short, or holds ids that the model does
    /// not know.
    pub fn open(
        source: &DataSource,
        vocabulary: usize,
        length: usize,
        reports_progress: bool,
    ) -> Result<Self> {
        let tokens = match &source.path {
            None => Tokens::built_in(source.tokenizer.as_deref())?,
            Some(path) => Tokens::open(path, source, reports_progress)?,
        };
        let training = tokens.len - (tokens.len as f64 * source.validation) as usize;
        check_length(&tokens.name, training, length, "training")?;
        if source.validation > 0.0 {
            check_length(&tokens.name, tokens.len - training, length, "validation")?;
        }
        tokens.examine(vocabulary)?;
        Ok(Data { tokens, training, shuffle: source.shuffle, vocabulary })
    }

    /// Returns what errors call the data.
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

    /// True if `split` has no tokens.
    pub fn is_empty(&self, split: Split) -> bool {
        self.place(split).is_empty()
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
    /// If the file cannot be read any more or has changed.
    pub fn window(&self, split: Split, start: usize, length: usize) -> Result<Vec<u32>> {
        let start = self.place(split).start + start;
        self.tokens.read(start..start + length, self.vocabulary)
    }

    /// Returns sample `g` of `split`, of `length` tokens.
    ///
    /// # Errors
    /// As [`Data::window`].
    pub fn sample(&self, split: Split, g: u64, length: usize) -> Result<Sample> {
        let span = (self.len(split) - length - 1) as u64;
        let start = match (split, self.shuffle) {
            (Split::Training, Some(seed)) if span > length as u64 => {
                shuffled(seed, g, span / length as u64) * length as u64
            }
            _ => (g * length as u64) % span.max(1),
        };
        Ok(Sample { tokens: self.window(split, start as usize, length + 1)?, vocabulary: self.vocabulary })
    }

    /// Returns how many tokens of `samples` carry a loss.
    ///
    /// # Errors
    /// As [`Data::window`].
    pub fn target_count(&self, split: Split, samples: Range<u64>, length: usize) -> Result<u64> {
        if !self.tokens.has_prompts {
            return Ok((samples.end - samples.start) * length as u64);
        }
        let vocabulary = self.vocabulary as u32;
        samples.map(|g| self.sample(split, g, length)).try_fold(0, |count, sample| {
            Ok(count + sample?.targets().filter(|&target| target != vocabulary).count() as u64)
        })
    }
}

/// A sequence of tokens, each to be told from those before it.
pub struct Sample {
    /// One more than the sequence has.
    tokens: Vec<u32>,
    vocabulary: usize,
}

impl Sample {
    /// Returns the tokens that go in.
    pub fn inputs(&self) -> impl Iterator<Item = u32> {
        self.tokens[..self.tokens.len() - 1].iter().map(|token| token & !PROMPT)
    }

    /// Returns the tokens that are to come out; the size of the vocabulary in place of each that
    /// carries no loss.
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

fn check_length(name: &str, tokens: usize, length: usize, what: &str) -> Result<()> {
    if tokens > length + 1 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{name} has {tokens} {what} tokens, but one sequence of {length} needs at least {}\n\
         Give a longer file with --data, or a smaller --seq-len.",
        length + 2
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a file of the ids below `length`.
    fn ids(length: u16, validation: f64, shuffle: Option<u64>) -> (tempfile::TempDir, Data) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.bin");
        std::fs::write(&path, (0..length).flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).unwrap();
        let format = TokenFormat::U16;
        let source = DataSource { path: Some(path), format, validation, shuffle, ..DataSource::default() };
        let data = Data::open(&source, length.into(), 8, false).unwrap();
        (dir, data)
    }

    fn data(length: u16, shuffle: Option<u64>) -> Data {
        ids(length, 0.0, shuffle).1
    }

    impl Data {
        fn first(&self, split: Split, g: u64) -> u32 {
            self.sample(split, g, 16).unwrap().tokens[0]
        }
    }

    #[test]
    fn the_order_is_the_documented_one() {
        let data = data(1000, None);
        for g in [0u64, 1, 7, 63, 64, 1000] {
            let start = (g * 16) % (1000 - 17);
            let expected: Vec<u32> = (start as u32..start as u32 + 17).collect();
            assert_eq!(data.sample(Split::Training, g, 16).unwrap().tokens, expected);
        }
    }

    #[test]
    fn a_shuffled_epoch_visits_every_window_once() {
        let data = data(1000, Some(9));
        let windows = (1000 - 17) / 16;
        for epoch in 0..3 {
            let mut starts: Vec<u32> =
                (0..windows).map(|i| data.first(Split::Training, epoch * windows + i)).collect();
            let order = starts.clone();
            starts.sort_unstable();
            assert_eq!(starts, (0..windows as u32).map(|w| w * 16).collect::<Vec<_>>());
            assert_ne!(order, starts, "epoch {epoch} is shuffled");
        }
    }

    #[test]
    fn every_seed_and_every_epoch_has_an_order_of_its_own() {
        let windows: u64 = (1000 - 17) / 16;
        let order = |seed, epoch| -> Vec<u32> {
            let data = data(1000, Some(seed));
            (0..windows).map(|i| data.first(Split::Training, epoch * windows + i)).collect()
        };
        let orders = [order(0, 0), order(0, 1), order(1, 0), order(1, 1), order(u64::MAX, 0)];
        for (index, one) in orders.iter().enumerate() {
            assert!(orders[..index].iter().all(|other| other != one), "order {index} was there before");
        }
        assert_eq!(order(1, 1), orders[3], "the same every time");
    }

    #[test]
    fn training_and_validation_read_no_token_of_each_other() {
        for shuffle in [None, Some(3)] {
            let (_dir, data) = ids(400, 0.25, shuffle);
            assert_eq!((data.len(Split::Training), data.len(Split::Validation)), (300, 100));
            let seen = |split| {
                (0..1000).flat_map(|g| data.sample(split, g, 8).unwrap().tokens).fold((400, 0), minmax)
            };
            let ((first, last), (held, end)) = (seen(Split::Training), seen(Split::Validation));
            assert!(first == 0 && (288..300).contains(&last), "training reads {first} to {last}");
            assert!(held == 300 && (390..400).contains(&end), "validation reads {held} to {end}");
        }
    }

    fn minmax((least, most): (u32, u32), token: u32) -> (u32, u32) {
        (least.min(token), most.max(token))
    }
}
