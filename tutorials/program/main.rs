//! `cargo run -p tutorials -- …`: what goes with the book.

use clap::{Parser, Subcommand};
use std::process::ExitCode;
use tutorials::{book, compare, explain, fit, learn, programs};

/// Learn with the book: predict, quiz yourself, check exercises, diagnose.
#[derive(Parser)]
#[command(name = "tutorials", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run stages with the same settings: tables, memory profiles, a recommendation
    Compare(Box<compare::Arguments>),
    /// Find each stage's largest micro-batch under a capacity: predicted, then by running
    Fit(Box<fit::Arguments>),
    /// Say why a finished run was as slow as it was, and what would help
    Explain(explain::Arguments),
    /// Guess numbers of a chapter, then see them predicted and measured
    Predict(learn::predict::Arguments),
    /// Play a chapter's quiz
    Quiz(learn::quiz::Arguments),
    /// Check an exercise
    Check(learn::check::Arguments),
    /// Diagnose a run that something hidden is wrong with
    Lab(learn::lab::Arguments),
    /// What is predicted, answered and solved so far
    Progress(learn::progress::Arguments),
    /// Check that the book says what the programs do, or write what they do into it
    Book(book::Arguments),
    /// One of the workspace's programs, as the book runs it
    #[command(hide = true)]
    Program(programs::Arguments),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Predict(arguments) => learn::predict::run(&arguments),
        Command::Quiz(arguments) => learn::quiz::run(&arguments),
        Command::Check(arguments) => learn::check::run(&arguments),
        Command::Lab(arguments) => learn::lab::run(&arguments),
        Command::Progress(arguments) => learn::progress::run(&arguments),
        Command::Book(arguments) => book::run(&arguments),
        Command::Program(arguments) => return programs::run(arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            events::complain!("error: {failure}");
            ExitCode::from(failure.code())
        }
    }
}
