//! Every chapter's questions, from `chapters.json`.

use super::question::Chapter;
use std::sync::LazyLock;
use trainer::{Failure, Result};

static ALL: LazyLock<serde_json::Result<Vec<Chapter>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("chapters.json")));

/// Returns the chapters, in order.
///
/// # Errors
/// If the file has a mistake.
pub fn all() -> Result<&'static [Chapter]> {
    ALL.as_deref().map_err(|e| Failure::run(format!("chapters.json: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::question::Answer;

    #[test]
    fn every_chapter_is_there_once_and_every_choice_exists() {
        for (at, chapter) in all().unwrap().iter().enumerate() {
            assert_eq!(chapter.number as usize, at);
            assert!(chapter.quiz.len() >= 3, "chapter {at}");
            for question in &chapter.quiz {
                if let Answer::Choice(options, right) = &question.answer {
                    assert!(*right < options.len() && options.len() >= 2, "{}", question.ask);
                }
            }
        }
    }
}
