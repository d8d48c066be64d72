//! The program that every exercise uses.

use crate::{Check, Verdict, guarded};
use clap::Parser;
use std::path::PathBuf;
use std::process::ExitCode;

/// Check this exercise of the book.
#[derive(Parser)]
struct Arguments {
    /// Check the solution in place of the starter
    #[arg(long)]
    solution: bool,
    /// The file to write the score to
    #[arg(long, value_name = "FILE", hide = true)]
    score: Option<PathBuf>,
}

/// Defines the program of an exercise, with the checks of its starter and of the solution next to
/// `src`.
#[macro_export]
macro_rules! program {
    ($starter:expr, $solution:expr) => {
        #[path = "../solution.rs"]
        mod solution;

        fn main() -> std::process::ExitCode {
            $crate::main(|| $starter, || $solution)
        }
    };
}

/// Checks the starter in its current state, or the solution.
pub fn main(starter: Check, solution: Check) -> ExitCode {
    let arguments: Arguments = shell::parse();
    let verdict = guarded(if arguments.solution { solution } else { starter });
    if let (Ok(score), Some(file)) = (&verdict, &arguments.score)
        && let Err(error) = score.write(file)
    {
        events::complain!("error: cannot write --score {}: {error}", file.display());
        return ExitCode::from(2);
    }
    say(&verdict)
}

fn say(verdict: &Verdict) -> ExitCode {
    match verdict {
        Ok(score) if score.is_best() => events::say!("solved: {score}"),
        Ok(score) => events::say!("solved, but it costs more than needed: {score}"),
        Err(problem) => {
            events::say!("not yet: {problem}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
