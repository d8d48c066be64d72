//! What chapters ask, and how answers are computed.

pub use super::figure::Figure;
use super::runs::{Run, Runs};
use trainer::Result;

/// The questions of one chapter.
pub struct Chapter {
    /// Its number.
    pub number: u32,
    /// Numbers to guess before running.
    pub guesses: &'static [Guess],
    /// The quiz.
    pub quiz: &'static [Question],
}

/// A number of a run.
pub struct Guess {
    /// The question.
    pub ask: &'static str,
    /// The run.
    pub run: Run,
    /// The number of the run to guess.
    pub figure: Figure,
}

/// A question of a quiz.
pub struct Question {
    /// The question.
    pub ask: &'static str,
    /// Its answer.
    pub answer: Answer,
    /// The reason.
    pub why: &'static str,
}

/// An answer.
pub enum Answer {
    /// One of several; the position of the right one.
    Choice(&'static [&'static str], usize),
    /// A number and its unit, computed.
    Number(Compute, &'static str),
}

/// How a number is computed.
pub enum Compute {
    /// By the planner.
    Planned(fn() -> f64),
    /// By a run.
    Measured(Run, Figure),
}

impl Compute {
    /// Returns the number.
    ///
    /// # Errors
    /// If the run fails.
    pub fn value(&self, runs: &Runs) -> Result<f64> {
        match self {
            Compute::Planned(number) => Ok(number()),
            Compute::Measured(run, figure) => Ok(figure.of(&*runs.report(run)?).1 as f64),
        }
    }
}

/// True if a typed answer differs from the right one by at most `part` of it.
pub fn is_within(part: f64, typed: f64, answer: f64) -> bool {
    (typed - answer).abs() <= part * answer.abs()
}

/// Reads a number as people type it: `1,705,984`, `1.7MB`, `2/3`, `1e6`. A second counts as 1,000
/// milliseconds.
pub fn read_number(text: &str) -> Option<f64> {
    if let Some((over, under)) = text.split_once('/') {
        return Some(read_number(over)? / read_number(under)?).filter(|ratio| ratio.is_finite());
    }
    let plain: String = text.trim().replace([',', '_', ' '], "");
    let unit = plain.find(|c: char| c.is_alphabetic() && c != 'e' || c == '%').unwrap_or(plain.len());
    let factor = match plain[unit..].to_ascii_lowercase().as_str() {
        "" | "b" | "bytes" | "×" | "x" | "%" | "ms" => 1.0,
        "k" | "kb" | "s" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "kib" => 1024.0,
        "mib" => 1048576.0,
        "gib" => 1073741824.0,
        _ => return None,
    };
    let value: f64 = plain[..unit].parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some(value * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_type_them() {
        for (text, value) in [
            ("1,705,984", 1705984.0),
            ("1.7 MB", 1.7e6),
            ("2/3", 2.0 / 3.0),
            ("1e6", 1e6),
            ("50%", 50.0),
            ("4GiB", 4294967296.0),
            ("1.5 s", 1500.0),
            ("1500ms", 1500.0),
        ] {
            assert_eq!(read_number(text), Some(value), "{text}");
        }
        for text in ["", "many", "1 apple", "nan", "1/0", "-5"] {
            assert_eq!(read_number(text), None, "{text}");
        }
    }
}
