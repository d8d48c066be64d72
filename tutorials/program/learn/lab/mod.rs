//! `lab NAME`: runs a training job with a hidden fault, shows the evidence, and asks for a
//! diagnosis.

pub mod case;
pub mod evidence;
pub mod finding;
mod patient;
mod tables;

pub use patient::{Given, Patient};

use super::progress::Progress;
use case::Case;
use clap::Args;
use finding::HINTS;
use std::path::PathBuf;
use trainer::Result;

/// The arguments of `lab`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A lab's name, or any number to draw one from; all names are listed if none is given
    lab: Option<String>,
    /// List the labs that have names
    #[arg(long)]
    list: bool,
    /// Answers
    #[command(flatten)]
    given: Given,
    /// Show this many hints
    #[arg(long, default_value_t = 0, value_name = "N", requires = "lab")]
    hints: usize,
    /// Folder for the recordings
    #[arg(long, value_name = "DIR", default_value = "lab", requires = "lab")]
    out: PathBuf,
}

/// Runs a lab, shows the evidence, and asks.
///
/// # Errors
/// If no such lab exists, a run cannot start, or an answer given as a flag is wrong.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = arguments.lab.as_ref().filter(|_| !arguments.list) else {
        return list();
    };
    let case = Case::of(name)?;
    let mut patient = Patient::examine(case, &arguments.out)?;
    events::say!("{}", patient.sight());
    (0..arguments.hints.min(HINTS)).for_each(|_| patient.hint());
    let mut progress = Progress::load();
    if arguments.given.any() {
        patient.judge(&arguments.given, &mut progress)
    } else {
        patient.ask(&mut std::io::stdin().lock(), &mut progress)
    }
}

fn list() -> Result<()> {
    for case in Case::named() {
        events::say!("{:>8}   {:<7}  {}", case.name, case.stage.label(), case.complaint);
    }
    events::say!("\nAny number draws another one. cargo run -p tutorials -- lab drift");
    Ok(())
}
