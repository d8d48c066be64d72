//! Asks questions in a terminal. An empty line skips the question, and the end of input leaves.
//! Sentences are wrapped.

use std::io::BufRead;
use trainer::{Failure, Result};

/// Maximum number of columns in a line.
const WIDTH: usize = 79;

pub(crate) enum Typed<T = String> {
    /// An answer.
    Answer(T),
    /// An empty line: continues with the next question.
    Skip,
    /// The end of input, or `q`.
    Leave,
}

/// Shows `prompt` and reads a line.
pub(crate) fn ask(input: &mut dyn BufRead, prompt: &str) -> Result<Typed> {
    if !events::say::prompt(prompt) {
        return Ok(Typed::Leave);
    }
    let fail = |e: std::io::Error| Failure::run(format!("cannot read from the terminal: {e}"));
    let mut line = String::new();
    if input.read_line(&mut line).map_err(fail)? == 0 {
        events::say!();
        return Ok(Typed::Leave);
    }
    Ok(match line.trim() {
        "q" | "quit" => Typed::Leave,
        "" => Typed::Skip,
        text => Typed::Answer(text.to_string()),
    })
}

/// Prints `text` after three spaces, wrapped between words.
pub(crate) fn tell(text: &str) {
    events::say!("{}", wrapped(text));
}

/// Prints a question after its number, wrapped in the same way.
pub(crate) fn pose(number: usize, question: &str) {
    events::say!("{}", numbered(number, question));
}

fn numbered(number: usize, question: &str) -> String {
    let text = wrapped(question);
    format!("{number}.{}", text.strip_prefix("  ").unwrap_or(&text))
}

fn wrapped(text: &str) -> String {
    events::say::wrapped(text, WIDTH, "   ", "   ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_sentences_are_wrapped_between_words() {
        assert_eq!(wrapped("right: so it is"), "   right: so it is");
        let long = wrapped(&"word ".repeat(50));
        assert_eq!(long.lines().count(), 4);
        assert!(long.lines().all(|line| line.starts_with("   word") && line.chars().count() <= WIDTH));
        assert_eq!(wrapped(&"x".repeat(200)).lines().count(), 1);
        let question = numbered(3, &"word ".repeat(30));
        assert!(question.starts_with("3. word") && question.lines().nth(1).unwrap().starts_with("   word"));
    }
}
