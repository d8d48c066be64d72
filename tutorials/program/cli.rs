//! The command line of the program.

use crate::{book, compare, explain, fit, flip, learn, programs};
use clap::{Parser, Subcommand};

/// Learn with the book: predict, quiz yourself, check exercises, diagnose.
#[derive(Debug, Parser)]
#[command(name = "tutorials", version = env!("VERSION"), arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run stages with the same settings: tables, memory profiles, a recommendation
    Compare(Box<compare::Arguments>),
    /// Find each stage's largest micro-batch under a capacity: predicted, then measured
    Fit(Box<fit::Arguments>),
    /// Say why a finished run was as slow as it was, and what would help
    Explain(explain::Arguments),
    /// Guess numbers of a chapter, then see them predicted and measured
    Predict(learn::predict::Arguments),
    /// Play a chapter's quiz
    Quiz(learn::quiz::Arguments),
    /// Check an exercise
    Check(learn::check::Arguments),
    /// Diagnose a run with a hidden fault
    Lab(learn::lab::Arguments),
    /// Flip a bit of a file, as a failing disk does
    Flip(flip::Arguments),
    /// Show what you have predicted, answered and solved so far
    Progress(learn::overview::Arguments),
    /// Compare the book with what the programs do, or update it
    Book(book::Arguments),
    /// Run one of the workspace's programs, as the book does
    #[command(hide = true)]
    Program(programs::Arguments),
    /// For shells.
    #[command(flatten)]
    Shell(shell::ShellCommand),
}
