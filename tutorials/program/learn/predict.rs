//! `predict CHAPTER`: guess, then see what was predicted and measured.

use super::progress::Progress;
use super::question::{Guess, is_right, read_number};
use super::runs::Runs;
use super::terminal::{Typed, ask};
use clap::Args;
use planner::table::grouped;
use std::io::BufRead;
use trainer::Result;

/// Which chapter.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The chapter's number
    chapter: u32,
}

/// Asks, runs, compares.
///
/// # Errors
/// If the chapter has nothing to guess, or a run fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    play(arguments.chapter, &mut std::io::stdin().lock(), &mut Progress::load())
}

/// Asks for every number of chapter `number`.
fn play(number: u32, input: &mut dyn BufRead, progress: &mut Progress) -> Result<()> {
    let chapter = super::chapter(number)?;
    if chapter.guesses.is_empty() {
        events::say!(
            "Chapter {number} has no numbers to guess; its quiz: cargo run -p tutorials -- quiz {number}"
        );
        return Ok(());
    }
    events::say!(
        "Type a number of bytes (3,674,624 or 3.67MB); within 1 % is right. Enter skips, q leaves.\n"
    );
    let runs = Runs::default();
    for (index, guess) in chapter.guesses.iter().enumerate() {
        events::say!("{}. {}\n   {}", index + 1, guess.ask, guess.run.command());
        let typed = match number_from(input)? {
            Asked::Left => return Ok(()),
            Asked::Skipped => None,
            Asked::Number(value) => Some(value),
        };
        let right = show(guess, typed, &runs)?;
        if typed.is_some() {
            progress.predicted(number, index, right)?;
        }
    }
    events::say!("{}", progress.prediction_line(chapter));
    Ok(())
}

enum Asked {
    Number(f64),
    Skipped,
    Left,
}

/// Asks until what is typed is a number, nothing, or the wish to leave.
fn number_from(input: &mut dyn BufRead) -> Result<Asked> {
    loop {
        match ask(input, "   your guess:")? {
            Typed::Leave => return Ok(Asked::Left),
            Typed::Skip => return Ok(Asked::Skipped),
            Typed::Answer(text) => match read_number(&text) {
                Some(value) => return Ok(Asked::Number(value)),
                None => events::say!("   {text:?} is no number: write 3,674,624 or 3.67MB"),
            },
        }
    }
}

/// Runs, and puts the guess beside prediction and measurement; whether it was within 1 %.
fn show(guess: &Guess, typed: Option<f64>, runs: &Runs) -> Result<bool> {
    events::complain!("   running …");
    let (predicted, measured) = guess.figure.of(&*runs.report(&guess.run)?);
    let right = typed.is_some_and(|value| is_right(value, measured as f64));
    let guessed = typed.map_or("-".into(), |value| grouped(value as u64));
    events::say!("   guess {guessed}   predicted {}   measured {}", grouped(predicted), grouped(measured));
    match typed {
        Some(_) if right => events::say!("   right\n"),
        Some(value) if measured > 0 => events::say!("   {:.2} × what it is\n", value / measured as f64),
        _ => events::say!(),
    }
    Ok(right)
}
