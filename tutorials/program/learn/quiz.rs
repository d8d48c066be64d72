//! `quiz CHAPTER`: the chapter's quiz in the terminal.

use super::lab::Lab;
use super::pages::{self, letter};
use super::progress::Progress;
use super::question::{Answer, Question, is_right, read_number};
use super::terminal::{Typed, ask};
use clap::Args;
use std::io::BufRead;
use trainer::Result;

/// Which chapter.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The chapter's number
    chapter: u32,
    /// Ask again what was answered before
    #[arg(long)]
    again: bool,
}

/// Plays the quiz from the first question that was not answered yet.
///
/// # Errors
/// If the chapter has no quiz, or an answer cannot be computed.
pub fn run(arguments: &Arguments) -> Result<()> {
    play(arguments, &mut std::io::stdin().lock(), &mut Progress::load())
}

fn play(arguments: &Arguments, input: &mut dyn BufRead, progress: &mut Progress) -> Result<()> {
    let chapter = super::chapter(arguments.chapter)?;
    let lab = Lab::default();
    events::say!("Enter skips, q leaves; where you stop, you go on next time.\n");
    for (index, question) in chapter.quiz.iter().enumerate() {
        if !arguments.again && progress.is_answered(chapter.number, index) {
            continue;
        }
        events::say!("{}. {}", index + 1, question.ask);
        match ask(input, &prompt(question))? {
            Typed::Leave => return Ok(()),
            Typed::Skip => events::say!("   {}\n", pages::answer(question, &lab)?),
            Typed::Answer(text) => {
                let right = judge(question, &text, &lab)?;
                let verdict = if right { "right" } else { "no" };
                events::say!("   {verdict}: {}\n", pages::answer(question, &lab)?);
                progress.answered(chapter.number, index, right)?;
            }
        }
    }
    events::say!("{}", progress.quiz_line(chapter));
    Ok(())
}

fn prompt(question: &Question) -> String {
    match &question.answer {
        Answer::Choice(options, _) => {
            let lines =
                options.iter().enumerate().map(|(at, option)| format!("   {}) {option}\n", letter(at)));
            lines.collect::<String>() + "   letter:"
        }
        Answer::Number(_, unit) => format!("   number ({unit}):"),
    }
}

fn judge(question: &Question, text: &str, lab: &Lab) -> Result<bool> {
    Ok(match &question.answer {
        Answer::Choice(_, right) => {
            text.trim_end_matches(')').eq_ignore_ascii_case(&letter(*right).to_string())
        }
        Answer::Number(compute, unit) => match read_number(text.strip_suffix(unit).unwrap_or(text)) {
            Some(typed) => is_right(typed, compute.value(lab)?),
            None => false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays chapter 12 with what is typed; its answers need no runs. How many are right afterwards.
    fn played(typed: &str, progress: &mut Progress) -> usize {
        let arguments = Arguments { chapter: 12, again: false };
        play(&arguments, &mut typed.as_bytes(), progress).unwrap();
        (0..4).filter(|&index| progress.is_answered(12, index)).count()
    }

    #[test]
    fn a_quiz_goes_on_where_it_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("progress.json");
        let mut progress = Progress::at(file.clone());
        assert_eq!(played("a\n25 times\nq\n", &mut progress), 0, "a wrong letter, a wrong number");
        assert_eq!(played("b\n24 times\n", &mut progress), 2, "the end of input leaves");
        let mut again = Progress::at(file);
        assert_eq!(played("112\n", &mut again), 3, "within a percent; only what is open is asked");
        assert_eq!(played("b)\n", &mut again), 4);
        assert_eq!(played("", &mut again), 4);
    }
}
