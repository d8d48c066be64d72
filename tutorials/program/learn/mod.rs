//! Learning in the terminal: predictions, quizzes, exercises, labs, what is done so far.

pub mod chapters;
pub mod check;
pub mod exercises;
mod figure;
pub(crate) mod flags;
pub mod lab;
pub mod pages;
pub mod predict;
pub mod progress;
pub mod question;
pub mod quiz;
pub mod runs;
mod terminal;

use trainer::{Failure, Result};

/// What chapter `number` asks.
///
/// # Errors
/// If the book has no such chapter.
pub fn chapter(number: u32) -> Result<&'static question::Chapter> {
    chapters::ALL.iter().find(|chapter| chapter.number == number).ok_or_else(|| {
        let known: Vec<String> = chapters::ALL.iter().map(|chapter| chapter.number.to_string()).collect();
        Failure::usage(format!("chapter {number} asks nothing; chapters that do: {}", known.join(", ")))
    })
}
