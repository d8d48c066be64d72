//! Prints what a reader has done so far.

use super::lab::case::Case;
use super::progress::{self, Progress};
use super::{chapters, exercises};
use clap::Args;
use trainer::Result;

/// The arguments of `progress`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Forget everything
    #[arg(long)]
    reset: bool,
}

/// Prints the progress.
///
/// # Errors
/// If the file cannot be written when the reader asks to forget.
pub fn run(arguments: &Arguments) -> Result<()> {
    let file = progress::file();
    let mut progress = Progress::load();
    if arguments.reset {
        progress.forget()?;
    }
    for chapter in chapters::ALL.iter() {
        let (guesses, quiz) = (progress.prediction_line(chapter), progress.quiz_line(chapter));
        events::say!("chapter {:>2}   {guesses}   {quiz}", chapter.number);
    }
    print_exercises(&progress);
    print_labs(&progress);
    events::say!("\nsaved in {}", file.display());
    Ok(())
}

fn print_exercises(progress: &Progress) {
    let all = &exercises::ALL;
    let solved = all.iter().filter_map(|e| Some((&e.name, progress.score(&e.name)?)));
    let solved: Vec<(&String, String)> = solved.collect();
    events::say!("exercises    {} of {} solved", solved.len(), all.len());
    solved.iter().for_each(|(name, score)| events::say!("{:13}{name:<17}  {score}", ""));
}

fn print_labs(progress: &Progress) {
    let named: Vec<String> = Case::named().map(|case| case.name).collect();
    let solved = progress.diagnosed_labs();
    let count = named.iter().filter(|name| solved.contains(&name.as_str())).count();
    let names = if solved.is_empty() { String::new() } else { format!(": {}", solved.join(", ")) };
    events::say!("labs         {count} of {} solved{names}", named.len());
}
