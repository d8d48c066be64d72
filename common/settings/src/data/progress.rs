//! Reports the progress of encoding a text.

use crate::size::{clock, human};
use events::say::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// An encoding that ends sooner prints nothing.
const SILENT: Duration = Duration::from_secs(2);
/// Time between two lines if there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Whether the progress of encoding a large text is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressOutput {
    /// One process of a job prints it.
    Printed,
    /// The others do not.
    Silent,
}

/// The progress of encoding a text.
pub(super) struct EncodingProgress {
    /// The name of the text in messages.
    name: String,
    bytes: u64,
    of: u64,
    tokens: u64,
    started: Instant,
    /// Time at which the last line was due, since the start.
    said: Duration,
    /// A line that is redrawn; `None` to print separate lines.
    line: Option<ProgressBar>,
}

impl EncodingProgress {
    /// Returns the progress of a text of `of` bytes, which has just begun.
    pub(super) fn new(name: &str, of: u64) -> Self {
        let style = ProgressStyle::with_template("{wide_msg}").unwrap_or(ProgressStyle::default_bar());
        let line = std::io::stderr().is_terminal().then(|| ProgressBar::new(of).with_style(style));
        let (started, said) = (Instant::now(), Duration::ZERO);
        EncodingProgress { name: name.into(), bytes: 0, of, tokens: 0, started, said, line }
    }

    /// Counts `bytes` more of the text, which has `tokens` tokens so far.
    pub(super) fn advance(&mut self, bytes: u64, tokens: u64) {
        (self.bytes, self.tokens) = (self.bytes + bytes, tokens);
        let elapsed = self.started.elapsed();
        if !self.is_due(elapsed) {
            return;
        }
        match &self.line {
            Some(line) => line.set_message(self.words(elapsed)),
            None => events::complain!("{}", self.words(elapsed)),
        }
    }

    /// Prints the time that the encoding took.
    pub(super) fn finish(self) {
        let elapsed = self.started.elapsed();
        self.line.iter().for_each(ProgressBar::finish_and_clear);
        if elapsed >= SILENT {
            let (size, tokens) = (human(self.bytes), grouped(self.tokens));
            events::complain!("tokenized {}: {size}, {tokens} tokens in {}", self.name, clock(elapsed));
        }
    }

    /// True if a line is due at the time `elapsed` since the start.
    fn is_due(&mut self, elapsed: Duration) -> bool {
        if self.line.is_some() {
            return elapsed >= SILENT;
        }
        let due = elapsed >= self.said + EVERY;
        if due {
            self.said = elapsed;
        }
        due
    }

    fn words(&self, elapsed: Duration) -> String {
        let left = elapsed.mul_f64(self.of.saturating_sub(self.bytes) as f64 / self.bytes.max(1) as f64);
        format!(
            "tokenizing {}: {} of {}, {} tokens, {} left",
            self.name,
            human(self.bytes),
            human(self.of),
            grouped(self.tokens),
            clock(left)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(line: Option<ProgressBar>) -> EncodingProgress {
        EncodingProgress {
            bytes: 30_000_000,
            tokens: 7_654_321,
            line,
            ..EncodingProgress::new("--data x.txt", 120_000_000)
        }
    }

    #[test]
    fn a_line_says_what_is_done_and_how_long_the_rest_takes() {
        assert_eq!(
            progress(None).words(Duration::from_secs(25)),
            "tokenizing --data x.txt: 30.0 MB of 120 MB, 7,654,321 tokens, 1:15 left"
        );
    }

    #[test]
    fn lines_are_ten_seconds_apart_and_one_on_a_terminal_begins_after_two() {
        let due = |mut progress: EncodingProgress| {
            (1..=25).filter(|&at| progress.is_due(Duration::from_secs(at))).collect::<Vec<_>>()
        };
        assert_eq!(due(progress(None)), [10, 20]);
        assert_eq!(due(progress(Some(ProgressBar::hidden()))), (2..=25).collect::<Vec<_>>());
    }
}
