//! `quiz CHAPTER`: plays the chapter's quiz in the terminal.

use super::number::read_number;
use super::pages::{self, letter};
use super::progress::Progress;
use super::question::{Answer, Question, is_within};
use super::runs::Runs;
use super::terminal::{Typed, ask, pose, tell};
use clap::Args;
use std::io::BufRead;
use trainer::Result;

/// The arguments of `quiz`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The chapter's number
    chapter: u32,
    /// Ask again what you have answered before
    #[arg(long)]
    again: bool,
}

/// Plays the quiz from the first question that has not been answered yet.
///
/// # Errors
/// If the chapter has no quiz, or an answer cannot be computed.
pub fn run(arguments: &Arguments) -> Result<()> {
    play(arguments, &mut std::io::stdin().lock(), &mut Progress::load())
}

fn play(arguments: &Arguments, input: &mut dyn BufRead, progress: &mut Progress) -> Result<()> {
    let chapter = super::chapter(arguments.chapter)?;
    let runs = Runs::default();
    events::say!("Enter skips, q leaves; next time you continue where you stopped.\n");
    for (index, question) in chapter.quiz.iter().enumerate() {
        if !arguments.again && progress.is_answered(chapter.number, index) {
            continue;
        }
        pose(index + 1, &question.ask);
        let answered = match answer_to(question, input, &runs)? {
            Typed::Leave => return Ok(()),
            Typed::Skip => None,
            Typed::Answer(right) => Some(right),
        };
        let verdict = answered.map_or("", |right| if right { "right: " } else { "no: " });
        tell(&format!("{verdict}{}", pages::answer(question, &runs)?));
        events::say!();
        if let Some(right) = answered {
            progress.answered(chapter.number, index, right)?;
        }
    }
    events::say!("{}   (--again asks again)", progress.quiz_line(chapter));
    Ok(())
}

/// Asks until the reader types an answer, skips, or leaves. True for a correct answer.
fn answer_to(question: &Question, input: &mut dyn BufRead, runs: &Runs) -> Result<Typed<bool>> {
    let mut words = prompt(question);
    loop {
        match ask(input, &words)? {
            Typed::Leave => return Ok(Typed::Leave),
            Typed::Skip => return Ok(Typed::Skip),
            Typed::Answer(text) => match judge(question, &text, runs)? {
                Some(right) => return Ok(Typed::Answer(right)),
                None => words = format!("   {text:?} is not a {}:", expected(question)),
            },
        }
    }
}

/// Describes the answers that a question accepts.
fn expected(question: &Question) -> String {
    match &question.answer {
        Answer::Choice(options, _) => format!("letter from a to {}", letter(options.len() - 1)),
        Answer::Number(_, unit) if unit == "bytes" => "number of bytes, like 3,674,624 or 3.67MB".into(),
        Answer::Number(_, unit) => format!("number of {unit}, like 3.5"),
    }
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

/// True if `text` is correct. `None` if it does not answer the question.
fn judge(question: &Question, text: &str, runs: &Runs) -> Result<Option<bool>> {
    Ok(match &question.answer {
        Answer::Choice(options, right) => {
            let typed = text.trim_end_matches(')').to_lowercase();
            let option = (0..options.len()).find(|&option| typed == letter(option).to_string());
            option.map(|option| option == *right)
        }
        Answer::Number(compute, unit) => match read_number(text, unit) {
            Some(typed) => Some(is_within(0.01, typed, compute.value(runs)?)),
            None => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays chapter 12, whose answers need no runs, with typed input. Returns the number of
    /// correct answers.
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
        assert_eq!(
            played("z\na\nmany\n25 times\nq\n", &mut progress),
            0,
            "no letter, a wrong one; no number, a wrong one"
        );
        assert_eq!(played("b\n24 times\n", &mut progress), 2, "the end of input leaves");
        let mut again = Progress::at(file);
        assert_eq!(played("112\n", &mut again), 3, "within a percent; only what is open is asked");
        assert_eq!(played("b)\n", &mut again), 4);
        assert_eq!(played("", &mut again), 4);
    }
}
