//! Learning in the terminal: predictions, quizzes, exercises, labs, and the reader's progress.

pub mod chapters;
pub mod check;
pub mod exercises;
pub(crate) mod figure;
pub mod lab;
mod number;
pub mod overview;
pub mod pages;
pub mod predict;
pub mod progress;
pub mod question;
pub mod quiz;
pub mod runs;
mod terminal;

use trainer::{Failure, Result};

/// Returns the questions of chapter `number`.
///
/// # Errors
/// If the book does not have that chapter.
pub fn chapter(number: u32) -> Result<&'static question::Chapter> {
    chapters::ALL.get(number as usize).ok_or_else(|| {
        let known: Vec<String> = chapters::ALL.iter().map(|chapter| chapter.number.to_string()).collect();
        let known = known.join(", ");
        Failure::usage(format!("chapter {number} has no questions; these chapters have: {known}"))
    })
}
