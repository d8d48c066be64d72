//! Presents a comparison as text for the terminal, and as a folder with tables, pictures and the
//! runs' reports.

use super::{Comparison, cannot_write, plot, recommend, steps, tables};
use events::say::counted;
use shell::table::Format;
use std::path::Path;
use trainer::Result;

pub(super) fn terminal(comparison: &Comparison) -> String {
    let mut text = format!("\n{}\n", settings(comparison));
    for table in tables::all(comparison) {
        text.push_str(&format!("\n{}", table.render(Format::Terminal)));
    }
    if comparison.outcomes.iter().all(|outcome| outcome.run().is_none()) {
        return text;
    }
    text.push_str(&format!("\n{}", notes(comparison)));
    let top = top(comparison);
    for outcome in &comparison.outcomes {
        if let Ok((run, profile)) = &outcome.ran {
            text.push_str(&format!("\n{}", plot::terminal(run.stage.label(), profile, top)));
        }
    }
    text + &format!("\n{}\n{}", plot::key(), recommend::recommendation(comparison))
}

/// Writes the folder. Returns the names of its files.
pub(super) fn write(comparison: &Comparison, folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut pictures = String::new();
    for outcome in &comparison.outcomes {
        let Ok((run, profile)) = &outcome.ran else { continue };
        let (package, label) = (run.stage.package(), run.stage.label());
        let picture = format!("memory-{package}.svg");
        file(folder, &picture, plot::svg(label, profile, top(comparison)))?;
        let report = format!("{package}.json");
        run.report.write(&folder.join(&report))?;
        pictures.push_str(&format!("![Memory of {label}]({picture})\n\n"));
        names.extend([picture, report]);
    }
    let tables = tables::all(comparison);
    let tables: Vec<String> = tables.iter().map(|table| table.render(Format::Markdown)).collect();
    let text = format!(
        "# Comparison\n\n{}\n\n{}\n{}\n## Memory in the last step\n\n{pictures}## Recommendation\n\n{}",
        settings(comparison),
        tables.join("\n"),
        notes(comparison),
        recommend::recommendation(comparison)
    );
    file(folder, "comparison.md", text)?;
    names.insert(0, "comparison.md".into());
    Ok(names)
}

fn file(folder: &Path, name: &str, text: String) -> Result<()> {
    let path = folder.join(name);
    crate::file::replace(&path, text.into_bytes()).map_err(|e| cannot_write(&path, &e))
}

/// Describes the settings that all runs share.
fn settings(comparison: &Comparison) -> String {
    let config = &comparison.config;
    format!(
        "{} on {}, {}\n{} of {} of {} × {} tokens per rank",
        config.model.name,
        counted(config.world_size, "rank", "ranks"),
        config.describe_device(),
        counted(config.steps as usize, "step", "steps"),
        counted(config.micro_batches, "micro-batch", "micro-batches"),
        config.batch_size,
        config.sequence_length,
    )
}

fn notes(comparison: &Comparison) -> String {
    let mut notes = format!(
        "{}Means, and the parts below them, are of all steps and ranks.\n\
         Losses and weights are compared with the first column's.\n",
        steps::words(comparison.config.steps as usize)
    );
    let cores = settings::machine::cores();
    if comparison.config.world_size > cores {
        notes.push_str(&format!(
            "The ranks share {cores} processor cores, so more ranks are not faster here.\n"
        ));
    }
    if comparison.config.link.is_none() {
        notes.push_str(
            "No link is simulated: exposed communication is the ranks' own copying and adding. See --link.\n",
        );
    }
    notes
}

/// Returns the upper edge of every plot. All plots share it, so that they can be compared.
fn top(comparison: &Comparison) -> u64 {
    let ran = comparison.outcomes.iter().filter_map(|outcome| outcome.ran.as_ref().ok());
    ran.map(|(_, profile)| profile.peak()).max().unwrap_or(0)
}
