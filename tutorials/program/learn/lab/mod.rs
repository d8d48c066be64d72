//! `lab NAME`: a run with a hidden fault, its evidence, and a diagnosis to make.

pub mod case;
pub mod evidence;
pub mod finding;
mod patient;
mod tables;

pub use patient::{Given, Patient};

use super::progress::Progress;
use case::Case;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use settings::fault::Kind;
use std::path::PathBuf;
use trainer::Result;

/// Which run, and the reader's answers.
#[derive(Args, Debug)]
pub struct Arguments {
    /// A lab's name, or any number to draw one from; all names are listed if none is given
    lab: Option<String>,
    /// List the labs that have names
    #[arg(long)]
    list: bool,
    /// Answer without being asked: what is wrong
    #[arg(long, value_name = "KIND", value_parser = kinds())]
    what: Option<Kind>,
    /// Answer without being asked: on which rank
    #[arg(long, value_name = "R")]
    rank: Option<usize>,
    /// Answer without being asked: from which step on
    #[arg(long, value_name = "S")]
    step: Option<u32>,
    /// Show this many hints
    #[arg(long, default_value_t = 0, value_name = "N")]
    hints: usize,
    /// Folder for the recordings
    #[arg(long, value_name = "DIR", default_value = "lab")]
    out: PathBuf,
}

fn kinds() -> impl TypedValueParser<Value = Kind> {
    let word = |kind: &Kind| Some(kind.to_possible_value()?.help(None::<&str>));
    PossibleValuesParser::new(Kind::SILENT.iter().filter_map(word))
        .try_map(|word| Kind::from_str(&word, false))
}

/// Runs a lab, shows the evidence, and asks.
///
/// # Errors
/// If there is no such lab, a run cannot begin, or an answer given as a flag is wrong.
pub fn run(arguments: &Arguments) -> Result<()> {
    let Some(name) = arguments.lab.as_ref().filter(|_| !arguments.list) else {
        return list();
    };
    let case = Case::of(name)?;
    let mut patient = Patient::examine(case, &arguments.out)?;
    events::say!("{}", patient.sight());
    (0..arguments.hints).for_each(|_| patient.hint());
    let given = Given { what: arguments.what, rank: arguments.rank, step: arguments.step };
    let mut progress = Progress::load();
    if given.any() {
        patient.judge(&given, &mut progress)
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
