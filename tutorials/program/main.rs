//! `cargo run -p tutorials -- …`: the book's program.

use std::process::ExitCode;
use tutorials::cli::{Cli, Command};
use tutorials::{book, compare, explain, fit, flip, learn, programs};

fn main() -> ExitCode {
    let result = match shell::parse::<Cli>().command {
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
        Command::Shell(for_shell) => for_shell
            .text(shell::command::<Cli>())
            .map(|text| events::say!("{}", text.trim_end()))
            .map_err(|error| trainer::Failure::run(error.to_string())),
    };
    trainer::exit_code(result)
}
