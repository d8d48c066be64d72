//! `cargo run -p tutorials -- …`: the book's program.

use clap::{CommandFactory, Parser};
use std::process::ExitCode;
use tutorials::cli::{Cli, Command};
use tutorials::{book, compare, explain, fit, flip, learn, programs};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Fit(arguments) => fit::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Predict(arguments) => learn::predict::run(&arguments),
        Command::Quiz(arguments) => learn::quiz::run(&arguments),
        Command::Check(arguments) => learn::check::run(&arguments),
        Command::Lab(arguments) => learn::lab::run(&arguments),
        Command::Flip(arguments) => flip::run(&arguments),
        Command::Progress(arguments) => learn::overview::run(&arguments),
        Command::Book(arguments) => book::run(&arguments),
        Command::Program(arguments) => return programs::run(arguments),
        Command::Shell(shell) => shell
            .text(Cli::command())
            .map(|text| events::say!("{}", text.trim_end()))
            .map_err(|error| trainer::Failure::run(error.to_string())),
    };
    trainer::exit_code(result)
}
