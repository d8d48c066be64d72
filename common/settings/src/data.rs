//! Training text as token ids, in a defined order.
//!
//! Sample g of a run is `g = ((step · accumulation + micro) · world + rank) · micro_batch + row`;
//! it takes tokens `o..o + T + 1` with `o = (g · T) mod (length − T − 1)`. With a shuffle seed the
//! windows at multiples of T are visited in a random order, a new one each epoch.

use crate::corpus::{self, SplitMix};
use crate::error::{Failure, Result};
use crate::size::human;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// How a data file encodes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TokenFormat {
    /// Every byte is a token.
    #[default]
    Bytes,
    /// Little-endian 16-bit token ids.
    U16,
    /// Little-endian 32-bit token ids.
    U32,
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
}

impl TokenFormat {
    /// Bytes of a token in a file.
    fn size(self) -> usize {
        match self {
            TokenFormat::Bytes => 1,
            TokenFormat::U16 => 2,
            TokenFormat::U32 => 4,
        }
    }
}

impl DataSource {
    /// Returns the bytes of main memory that the tokens take; 0 if that is not known before they
    /// are read.
    pub fn bytes(&self) -> u64 {
        let length = match &self.path {
            None => corpus::BYTES as u64,
            Some(path) => std::fs::metadata(path).map_or(0, |file| file.len()),
        };
        (length / self.format.size() as u64).saturating_mul(size_of::<u32>() as u64)
    }
}

/// All tokens of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    tokens: Vec<u32>,
    training: usize,
    shuffle: Option<u64>,
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
    /// Reads `source` for a model of `vocabulary` tokens and sequences of `length` tokens.
    ///
    /// # Errors
    /// If the file cannot be read, is too short, or holds ids that the model does not know.
    pub fn load(source: &DataSource, vocabulary: usize, length: usize) -> Result<Self> {
        let (name, tokens) = match &source.path {
            None => ("the built-in text".into(), bytes_to_tokens(corpus::text().as_bytes())),
            Some(path) => (path.display().to_string(), read(path, source.format)?),
        };
        let training = tokens.len() - (tokens.len() as f64 * source.validation) as usize;
        check_length(&name, training, length, "training")?;
        if source.validation > 0.0 {
            check_length(&name, tokens.len() - training, length, "validation")?;
        }
        if let Some(at) = tokens.iter().position(|&token| token as usize >= vocabulary) {
            return Err(Failure::usage(format!(
                "{name}: token {} at position {at} is outside the model's vocabulary of {vocabulary}\n\
                 Choose a model with a larger vocabulary, or check --data-format.",
                tokens[at]
            )));
        }
        Ok(Data { tokens, training, shuffle: source.shuffle })
    }

    /// Returns the number of tokens in `split`.
    pub fn len(&self, split: Split) -> usize {
        self.tokens_of(split).len()
    }

    /// True if `split` has no tokens.
    pub fn is_empty(&self, split: Split) -> bool {
        self.tokens_of(split).is_empty()
    }

    /// Returns the tokens of `split`.
    pub fn tokens_of(&self, split: Split) -> &[u32] {
        match split {
            Split::Training => &self.tokens[..self.training],
            Split::Validation => &self.tokens[self.training..],
        }
    }

    /// Returns sample `g` of `split`: `length + 1` tokens. The first `length` are the inputs, the
    /// last `length` the targets.
    pub fn sample(&self, split: Split, g: u64, length: usize) -> &[u32] {
        let tokens = self.tokens_of(split);
        let span = (tokens.len() - length - 1) as u64;
        let start = match (split, self.shuffle) {
            (Split::Training, Some(seed)) if span > length as u64 => {
                shuffled(seed, g, span / length as u64) * length as u64
            }
            _ => (g * length as u64) % span.max(1),
        };
        &tokens[start as usize..start as usize + length + 1]
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

fn bytes_to_tokens(bytes: &[u8]) -> Vec<u32> {
    bytes.iter().map(|&byte| u32::from(byte)).collect()
}

/// Bytes that are read at once: whole tokens.
const CHUNK: usize = 1 << 16;

fn read(path: &Path, format: TokenFormat) -> Result<Vec<u32>> {
    let unreadable = |error| unreadable(path, &error);
    let mut file = File::open(path).map_err(unreadable)?;
    let (size, mut length) = (format.size(), 0);
    let mut tokens = Vec::new();
    // A pipe has no length, and a file may grow: the loop makes room for the rest.
    reserve(path, &mut tokens, file.metadata().map_err(unreadable)?.len() as usize / size)?;
    let mut chunk = Vec::with_capacity(CHUNK);
    while file.by_ref().take(CHUNK as u64).read_to_end(&mut chunk).map_err(unreadable)? > 0 {
        length += chunk.len();
        reserve(path, &mut tokens, chunk.len() / size)?;
        let id = |token: &[u8]| token.iter().rev().fold(0u32, |id, &byte| id << 8 | u32::from(byte));
        tokens.extend(chunk.chunks_exact(size).map(id));
        chunk.clear();
    }
    if length == 0 {
        return Err(Failure::usage(format!(
            "--data {} is empty\nGive a file with text, or leave --data out for the built-in text.",
            path.display()
        )));
    }
    if length % size != 0 {
        return Err(Failure::usage(format!(
            "--data {} has {length} bytes, not a whole number of {size}-byte token ids: check --data-format",
            path.display()
        )));
    }
    Ok(tokens)
}

/// Makes room for `more` tokens of `path`.
fn reserve(path: &Path, tokens: &mut Vec<u32>, more: usize) -> Result<()> {
    let reserved = if tokens.is_empty() { tokens.try_reserve_exact(more) } else { tokens.try_reserve(more) };
    reserved.map_err(|_| {
        let needs = (tokens.len() + more).saturating_mul(size_of::<u32>());
        Failure::OutOfMemory(format!(
            "out of memory: the text of --data {} needs {} of main memory, and the system gives no more\n\
             Give a shorter text, or raise the limit (ulimit -v shows one of the process).",
            path.display(),
            human(needs as u64)
        ))
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    use std::io::ErrorKind::*;
    let remedy = match error.kind() {
        NotFound => "Check the path, or leave --data out for the built-in text.",
        IsADirectory => "This is a directory. Name one file in it.",
        NotADirectory => "A part of the path is a file: check the path.",
        PermissionDenied => "Give this user access to it, or choose another file.",
        _ => "Choose another file, or look into the cause that the system gives.",
    };
    Failure::usage(format!("cannot read --data {}: {error}\n{remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(length: u32, shuffle: Option<u64>) -> Data {
        Data { tokens: (0..length).collect(), training: length as usize, shuffle }
    }

    #[test]
    fn the_order_is_the_documented_one() {
        let data = data(1000, None);
        for g in [0u64, 1, 7, 63, 64, 1000] {
            let start = (g * 16) % (1000 - 17);
            let expected: Vec<u32> = (start as u32..start as u32 + 17).collect();
            assert_eq!(data.sample(Split::Training, g, 16), expected);
        }
    }

    #[test]
    fn a_shuffled_epoch_visits_every_window_once() {
        let data = data(1000, Some(9));
        let windows = (1000 - 17) / 16;
        for epoch in 0..3 {
            let mut starts: Vec<u32> =
                (0..windows).map(|i| data.sample(Split::Training, epoch * windows + i, 16)[0]).collect();
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
            (0..windows).map(|i| data.sample(Split::Training, epoch * windows + i, 16)[0]).collect()
        };
        let orders = [order(0, 0), order(0, 1), order(1, 0), order(1, 1), order(u64::MAX, 0)];
        for (index, one) in orders.iter().enumerate() {
            assert!(orders[..index].iter().all(|other| other != one), "order {index} was there before");
        }
        assert_eq!(order(1, 1), orders[3], "the same every time");
    }

    #[test]
    fn training_and_validation_read_no_token_of_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.bin");
        let ids: Vec<u8> = (0..400u16).flat_map(u16::to_le_bytes).collect();
        std::fs::write(&path, ids).unwrap();
        for shuffle in [None, Some(3)] {
            let source =
                DataSource { path: Some(path.clone()), format: TokenFormat::U16, validation: 0.25, shuffle };
            let data = Data::load(&source, 400, 8).unwrap();
            assert_eq!((data.len(Split::Training), data.len(Split::Validation)), (300, 100));
            let seen = |split| (0..1000).flat_map(|g| data.sample(split, g, 8)).fold((400, 0), minmax);
            let ((first, last), (held, end)) = (seen(Split::Training), seen(Split::Validation));
            assert!(first == 0 && (288..300).contains(&last), "training reads {first} to {last}");
            assert!(held == 300 && (390..400).contains(&end), "validation reads {held} to {end}");
        }
    }

    fn minmax((least, most): (u32, u32), token: &u32) -> (u32, u32) {
        (least.min(*token), most.max(*token))
    }

    #[test]
    fn token_files_are_little_endian() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ids.bin");
        std::fs::write(&path, [1u8, 2, 3, 4]).unwrap();
        assert_eq!(read(&path, TokenFormat::U16).unwrap(), [0x0201, 0x0403]);
        assert_eq!(read(&path, TokenFormat::U32).unwrap(), [0x0403_0201]);
        std::fs::write(&path, [1u8, 2, 3]).unwrap();
        assert_eq!(read(&path, TokenFormat::U16).unwrap_err().code(), 2);
    }
}
