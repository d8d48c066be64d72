//! Every chapter's questions.

mod beginning;
mod beyond;
mod field;
mod practice;
mod stages;

use super::question::{Answer, Chapter, Compute, Figure, Guess, Question};
use super::runs::Run;
use planner::Stage;

/// The chapters, in order.
pub const ALL: &[Chapter] = &[
    beginning::FIRST_RUN,
    beginning::BYTES,
    beginning::COLLECTIVES,
    beginning::DDP,
    stages::ZERO1,
    stages::ZERO2,
    stages::ZERO3,
    practice::HIDING,
    practice::PRECISION,
    practice::ACTIVATIONS,
    practice::CONFIGURATIONS,
    field::GPUS,
    field::CHOOSING,
    field::CLAIMS,
    field::DIAGNOSIS,
    beyond::BEYOND,
    beyond::INFINITY,
    beyond::STATE,
];

const fn run(stage: Stage, flags: &'static str) -> Run {
    Run { stage, flags }
}

impl Run {
    const fn guess(self, ask: &'static str, figure: Figure) -> Guess {
        Guess { ask, run: self, figure }
    }

    const fn measured(self, ask: &'static str, figure: Figure, why: &'static str) -> Question {
        Question { ask, answer: Answer::Number(Compute::Measured(self, figure), "bytes"), why }
    }
}

const fn choose(
    ask: &'static str,
    options: &'static [&'static str],
    right: usize,
    why: &'static str,
) -> Question {
    Question { ask, answer: Answer::Choice(options, right), why }
}

const fn planned(ask: &'static str, number: fn() -> f64, unit: &'static str, why: &'static str) -> Question {
    Question { ask, answer: Answer::Number(Compute::Planned(number), unit), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chapter_is_there_once_and_every_choice_exists() {
        for (at, chapter) in ALL.iter().enumerate() {
            assert_eq!(chapter.number as usize, at);
            assert!(chapter.quiz.len() >= 3, "chapter {at}");
            for question in chapter.quiz {
                if let Answer::Choice(options, right) = &question.answer {
                    assert!(*right < options.len() && options.len() >= 2, "{}", question.ask);
                }
            }
        }
    }
}
