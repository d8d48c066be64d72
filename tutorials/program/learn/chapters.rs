//! Every chapter's questions, from `chapters.json`.

use super::question::Chapter;
use std::sync::LazyLock;

/// The chapters, in order.
pub static ALL: LazyLock<Vec<Chapter>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("chapters.json"))
        .expect("it is part of the program, and a test reads it")
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learn::question::Answer;

    #[test]
    fn every_chapter_is_there_once_and_every_choice_exists() {
        for (at, chapter) in ALL.iter().enumerate() {
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
