//! `predict CHAPTER`: asks for guesses, then shows the predicted and measured values.

use super::number::read_number;
use super::progress::Progress;
use super::question::{Guess, is_within};
use super::runs::Runs;
use super::terminal::{Typed, ask, pose};
use clap::Args;
use events::say::grouped;
use std::io::BufRead;
use trainer::Result;

/// The arguments of `predict`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The chapter's number
    chapter: u32,
    /// Ask again what you have guessed before
    #[arg(long)]
    again: bool,
}

/// Asks for guesses, runs, and compares. Starts with the first number that has not been guessed
/// yet.
///
/// # Errors
/// If the chapter has nothing to guess, or a run fails.
pub fn run(arguments: &Arguments) -> Result<()> {
    play(arguments, &mut std::io::stdin().lock(), &mut Progress::load())
}

fn play(arguments: &Arguments, input: &mut dyn BufRead, progress: &mut Progress) -> Result<()> {
    let number = arguments.chapter;
    let chapter = super::chapter(number)?;
    if chapter.guesses.is_empty() {
        events::say!(
            "Chapter {number} has no numbers to guess; its quiz: cargo run -p tutorials -- quiz {number}"
        );
        return Ok(());
    }
    let open = |(index, _): &(usize, _)| arguments.again || !progress.is_predicted(number, *index);
    let guesses: Vec<_> = chapter.guesses.iter().enumerate().filter(open).collect();
    if !guesses.is_empty() {
        events::say!(
            "Type numbers like 3,674,624 or 3.67MB; within 1 % is right, times within 10 %.\n\
             Enter skips, q leaves; next time you continue where you stopped.\n"
        );
    }
    let runs = Runs::default();
    for (index, guess) in guesses {
        pose(index + 1, &guess.ask);
        events::say!("   {}", guess.run.command());
        let typed = match number_from(input, guess.figure.unit())? {
            Typed::Leave => return Ok(()),
            Typed::Skip => None,
            Typed::Answer(value) => Some(value),
        };
        let right = show(guess, typed, &runs)?;
        if typed.is_some() {
            progress.predicted(number, index, right)?;
        }
    }
    events::say!("{}   (--again asks again)", progress.prediction_line(chapter));
    Ok(())
}

/// Asks until the reader types a number, skips, or leaves.
fn number_from(input: &mut dyn BufRead, unit: &str) -> Result<Typed<f64>> {
    let example = if unit == "ms" { "1,500 or 1.5 s" } else { "3,674,624 or 3.67MB" };
    loop {
        match ask(input, &format!("   your guess ({unit}):"))? {
            Typed::Leave => return Ok(Typed::Leave),
            Typed::Skip => return Ok(Typed::Skip),
            Typed::Answer(text) => match read_number(&text, unit) {
                Some(value) => return Ok(Typed::Answer(value)),
                None => events::say!("   {text:?} is not a number of {unit}: write {example}"),
            },
        }
    }
}

/// Runs, and prints the guess next to prediction and measurement. True if the guess was correct.
fn show(guess: &Guess, typed: Option<f64>, runs: &Runs) -> Result<bool> {
    events::complain!("   running …");
    let (predicted, measured) = guess.figure.of(&*runs.report(&guess.run)?);
    let is_right =
        |value| [predicted, measured].iter().any(|&it| is_within(guess.figure.tolerance(), value, it as f64));
    let right = typed.is_some_and(is_right);
    let guessed = typed.map_or("-".into(), |value| grouped(value as u64));
    let unit = guess.figure.unit();
    let run = format!("predicted {}   measured {} {unit}", grouped(predicted), grouped(measured));
    events::say!("   guess {guessed}   {run}");
    match typed {
        Some(_) if right => events::say!("   right\n"),
        Some(value) if measured > 0 => {
            events::say!("   {:.2} × the measured value\n", value / measured as f64)
        }
        _ => events::say!(),
    }
    Ok(right)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays chapter 8 with typed input. Returns which of its three numbers have a guess
    /// afterwards, and the line that counts the correct ones.
    fn played(typed: &str, again: bool, progress: &mut Progress) -> ([bool; 3], String) {
        let arguments = Arguments { chapter: 8, again };
        play(&arguments, &mut typed.as_bytes(), progress).unwrap();
        let chapter = crate::learn::chapter(8).unwrap();
        ([0, 1, 2].map(|index| progress.is_predicted(8, index)), progress.prediction_line(chapter))
    }

    #[test]
    fn guessing_goes_on_where_it_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress.json");
        let mut progress = Progress::at(file.clone());
        let (guessed, line) = played("many\n1\n\nq\n", false, &mut progress);
        assert_eq!(
            (guessed, line.as_str()),
            ([true, false, false], "predicted 0 of 3"),
            "a wrong one, a skipped one"
        );
        let mut later = Progress::at(file);
        let (guessed, line) = played("2.756MB\nq\n", false, &mut later);
        assert_eq!(
            (guessed, line.as_str()),
            ([true, true, false], "predicted 1 of 3"),
            "the second is asked first"
        );
        let (_, line) = played("459,328\nq\n", true, &mut later);
        assert_eq!(line, "predicted 2 of 3", "all are asked again");
    }
}
