//! Keeps the chapters in sync with the programs.
//!
//! Programs generate parts of a chapter: code, outputs, tables, diffs, pictures, quizzes. Each such
//! place is marked by an HTML comment, invisible on the rendered page, or is a `console` block.
//! [`Workshop::render`] regenerates all of them. A chapter that differs from its rendering is
//! stale.

mod activations;
mod bus;
mod chapter;
mod claims;
mod code;
mod commit;
mod console;
mod diff;
mod disk;
mod fsdp;
mod hops;
mod links;
mod marks;
mod picture;
mod redacted;
mod reshard;
mod stages;
mod tables;
mod translation;

pub use chapter::Workshop;

use crate::workspace::root;
use clap::Args;
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// Selects the chapters, and whether to update them.
#[derive(Args, Debug)]
pub struct Arguments {
    /// Chapters, by number; all if none is given
    chapters: Vec<u32>,
    /// Update the chapters to what the programs do
    #[arg(long)]
    bless: bool,
}

/// Checks or blesses chapters.
///
/// # Errors
/// If a chapter is stale, or has another problem.
pub fn run(arguments: &Arguments) -> Result<()> {
    let pages = pages()?;
    let numbers: Vec<u32> = pages.iter().filter_map(|file| number(file)).collect();
    if let Some(unknown) = arguments.chapters.iter().find(|wanted| !numbers.contains(wanted)) {
        let last = numbers.iter().max().map_or(0, |last| *last);
        return Err(Failure::usage(format!("there is no chapter {unknown}: they are 0 to {last}")));
    }
    let program =
        std::env::current_exe().map_err(|e| Failure::run(format!("cannot find this program: {e}")))?;
    let mut workshop = Workshop::new(root(), program, arguments.bless)?;
    let mut problems = Vec::new();
    for file in pages {
        if arguments.chapters.is_empty() || arguments.chapters.iter().any(|&n| number(&file) == Some(n)) {
            events::say!("{}", file.display());
            problems
                .extend(inspect(&file, &mut workshop).unwrap_or_else(|failure| vec![failure.to_string()]));
        }
    }
    problems.extend(dead_links()?);
    if problems.is_empty() { Ok(()) } else { Err(Failure::run(problems.join("\n\n"))) }
}

/// Returns a sentence for every dead link in the book and the documents around it, and for every
/// picture that no chapter includes.
///
/// # Errors
/// If the pages cannot be read.
pub fn dead_links() -> Result<Vec<String>> {
    let mut dead = links::unshown(&sources())?;
    for folder in [sources(), root(), root().join("docs")] {
        dead.extend(links::dead(&folder)?);
    }
    Ok(dead)
}

/// Returns the problems of the chapter in `file`. Writes its rendering first if the workshop
/// blesses.
///
/// # Errors
/// If it cannot be read, rendered or written.
pub fn inspect(file: &Path, workshop: &mut Workshop) -> Result<Vec<String>> {
    let fail = |e: &dyn std::fmt::Display| Failure::run(format!("{}: {e}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|e| fail(&e))?;
    let rendered = workshop.render(&text).map_err(|e| fail(&e))?;
    let mut problems = std::mem::take(&mut workshop.problems);
    if text != rendered && workshop.bless {
        std::fs::write(file, &rendered).map_err(|e| fail(&e))?;
    } else if text != rendered {
        problems.push(difference(&text, &rendered));
    }
    problems.extend(marks::unproven(&rendered, &std::mem::take(&mut workshop.frames)));
    Ok(problems.into_iter().map(|problem| format!("{}: {problem}", file.display())).collect())
}

/// Returns a message with the first lines that are stale.
fn difference(text: &str, rendered: &str) -> String {
    let at = text.lines().zip(rendered.lines()).take_while(|(old, new)| old == new).count();
    let excerpt = |text: &str| text.lines().skip(at).take(6).collect::<Vec<_>>().join("\n    ");
    format!(
        "line {} is stale. It says\n    {}\nand should say\n    {}\nRead it, then: cargo run -p tutorials -- book --bless",
        at + 1,
        excerpt(text),
        excerpt(rendered)
    )
}

fn sources() -> PathBuf {
    root().join("tutorials/src")
}

/// Returns the chapters in order, then the README.
///
/// # Errors
/// If their folder cannot be read.
pub fn pages() -> Result<Vec<PathBuf>> {
    let folder =
        std::fs::read_dir(sources()).map_err(|e| Failure::run(format!("cannot read the chapters: {e}")))?;
    let mut files: Vec<PathBuf> = folder.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| number(file).is_some());
    files.sort();
    files.push(root().join("README.md"));
    Ok(files)
}

/// Returns the number that a chapter's file name begins with.
pub fn number(file: &Path) -> Option<u32> {
    let name = file.file_name()?.to_str()?.strip_suffix(".md")?;
    name.split_once('-')?.0.parse().ok()
}
