//! Runs the workspace's programs inside this one: a single build serves every command of the book.

use clap::Args;
use std::ffi::OsString;
use std::process::ExitCode;

/// The names that [`run`] knows.
pub const NAMES: [&str; 5] = ["zero0-ddp", "zero1", "zero2", "zero3", "planner"];

/// A program and its arguments.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The program's name, then its arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

/// Runs the program as if it had been called directly.
pub fn run(arguments: Arguments) -> ExitCode {
    let words = arguments.words;
    let name = words[0].to_str().unwrap_or_default();
    match stages::named(name) {
        Some(stage) => stages::main_from(stage, words),
        None if name == "planner" => planner::cli::main_from(words),
        None => {
            let known = NAMES.join(", ");
            events::complain!("error: there is no program {:?}; choose one of {known}", words[0]);
            ExitCode::from(2)
        }
    }
}
