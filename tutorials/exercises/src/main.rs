//! `cargo run -p exercises -- NAME`: checks a starter.

use clap::Parser;
use exercises::{ALL, Exercise};
use std::process::ExitCode;

/// Check an exercise of the book.
#[derive(Parser)]
#[command(name = "exercises", version)]
struct Arguments {
    /// The exercise; all are listed if none is given
    name: Option<String>,
    /// Show so many hints
    #[arg(long, default_value_t = 0, value_name = "N")]
    hints: usize,
    /// Check the solution in place of the starter
    #[arg(long)]
    solution: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(name) = &arguments.name else {
        list();
        return ExitCode::SUCCESS;
    };
    match ALL.iter().find(|exercise| exercise.name == name) {
        Some(exercise) => check(exercise, &arguments),
        None => {
            eprintln!("error: there is no exercise {name:?}");
            list();
            ExitCode::from(2)
        }
    }
}

fn list() {
    for exercise in ALL {
        println!("{:>18}   chapter {:>2}   {}", exercise.name, exercise.chapter, exercise.task);
    }
}

fn check(exercise: &Exercise, arguments: &Arguments) -> ExitCode {
    println!("{}: {}\n{}\n", exercise.name, exercise.task, exercise.file());
    for hint in exercise.hints.iter().take(arguments.hints) {
        println!("hint: {hint}");
    }
    let verdict = if arguments.solution { exercise.check_solution() } else { exercise.check() };
    match verdict {
        Ok(score) => {
            println!("passed: {score}");
            ExitCode::SUCCESS
        }
        Err(problem) => {
            println!("not yet: {problem}");
            if arguments.hints < exercise.hints.len() {
                println!("\nA hint: --hints {}", arguments.hints + 1);
            }
            ExitCode::FAILURE
        }
    }
}
