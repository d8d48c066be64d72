//! Formats questions and answers for a chapter's page.

use super::question::{Answer, Chapter, Question};
use super::runs::Runs;
use events::say::grouped;
use planner::numbers::plain;
use trainer::{Failure, Result};

fn chapter(number: &str) -> Result<&'static Chapter> {
    let number = number.parse().map_err(|_| Failure::run(format!("{number:?} is not a chapter")))?;
    super::chapter(number)
}

/// Returns the questions to guess, with numbers.
///
/// # Errors
/// If no such chapter exists.
pub fn guesses(number: &str) -> Result<String> {
    let guesses = chapter(number)?.guesses.iter().enumerate();
    Ok(guesses.map(|(index, guess)| format!("{}. {}\n", index + 1, guess.ask)).collect())
}

/// Returns a table of the same questions with predictions and measurements.
///
/// # Errors
/// If no such chapter exists, or a run fails.
pub fn answers(number: &str, runs: &Runs) -> Result<String> {
    let mut text = String::from("| | predicted | measured |\n|---|--:|--:|\n");
    for (index, guess) in chapter(number)?.guesses.iter().enumerate() {
        let [predicted, measured] = guess.figure.said(&*runs.report(&guess.run)?);
        text += &format!("| {}. {} | {predicted} | {measured} |\n", index + 1, guess.ask);
    }
    Ok(text)
}

/// Returns the quiz, with each answer folded away.
///
/// # Errors
/// If no such chapter exists, or an answer cannot be computed.
pub fn quiz(number: &str, runs: &Runs) -> Result<String> {
    let mut text = String::new();
    for (index, question) in chapter(number)?.quiz.iter().enumerate() {
        text += &format!("**{}.** {}\n\n", index + 1, question.ask);
        if let Answer::Choice(options, _) = &question.answer {
            let options = options.iter().enumerate();
            text.extend(options.map(|(at, option)| format!("- {}) {option}\n", letter(at))));
            text.push('\n');
        }
        text += &format!("<details><summary>Answer</summary>{}</details>\n\n", answer(question, runs)?);
    }
    Ok(text)
}

/// Returns a question's answer and the reason, in words.
///
/// # Errors
/// If it cannot be computed.
pub fn answer(question: &Question, runs: &Runs) -> Result<String> {
    let answer = match &question.answer {
        Answer::Choice(_, right) => letter(*right).to_string(),
        Answer::Number(compute, unit) => format!("{} {unit}", number(compute.value(runs)?)),
    };
    Ok(format!("{}. {}", answer.trim_end(), question.why))
}

/// Formats whole numbers in groups of digits, and others with four significant digits and at most
/// three decimals.
pub fn number(value: f64) -> String {
    if value.fract() == 0.0 && value >= 0.0 {
        return grouped(value as u64);
    }
    let before_point = value.abs().log10().floor() as i32 + 1;
    plain(value, (4 - before_point).clamp(0, 3) as usize)
}

/// Returns `a`, `b`, `c`, …
pub fn letter(index: usize) -> char {
    (b'a' + index as u8) as char
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        for (value, shown) in [
            (3_674_624.0, "3,674,624"),
            (29.3125, "29.31"),
            (112.5, "112.5"),
            (12_345.6, "12346"),
            (64.0 / 22.0, "2.909"),
            (0.875, "0.875"),
            (0.000_4, "0"),
        ] {
            assert_eq!(number(value), shown);
        }
    }
}
