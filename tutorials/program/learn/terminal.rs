//! Asking in a terminal, line by line; an empty line skips, the end of input leaves.

use std::io::{BufRead, Write};
use trainer::{Failure, Result};

/// What a reader typed.
pub(crate) enum Typed {
    /// Something.
    Answer(String),
    /// Nothing: the next question, please.
    Skip,
    /// The end of input, or `q`.
    Leave,
}

/// Shows `prompt` and reads a line.
pub(crate) fn ask(input: &mut dyn BufRead, prompt: &str) -> Result<Typed> {
    print!("{prompt} ");
    let fail = |e: std::io::Error| Failure::run(format!("cannot read from the terminal: {e}"));
    std::io::stdout().flush().map_err(fail)?;
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
