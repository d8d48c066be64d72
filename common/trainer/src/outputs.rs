//! The files that a run writes: probed before the run begins.

use crate::checkpoints;
use checkpoint::{CheckpointError, ModelFiles, Writer};
use model::Model;
use report::Report;
use settings::size::human;
use settings::{Config, Failure, Result};
use std::path::PathBuf;
use storage::Disk;

/// Returns the bytes of the weights that this process saves at the end, in the type that flags or
/// `model_files` name.
pub(crate) fn saved_bytes(config: &Config, model: &Model, model_files: &ModelFiles) -> u64 {
    let stored = config.save_format.element_type.unwrap_or_else(|| model_files.element_type());
    let saves = config.leads() && config.output.save.is_some();
    if saves { model.layout.parameters() * stored.bytes() as u64 } else { 0 }
}

/// Refuses a run whose output files cannot be written, or whose disk has no room for `bytes` of
/// weights.
///
/// # Errors
/// A failure that names the flag or the file.
pub(crate) fn probe(config: &Config, bytes: u64) -> Result<()> {
    check_files(config)?;
    if let Some(path) = &config.output.report {
        Report::probe(path)?;
    }
    if let Some(dir) = &config.output.save {
        Writer::probe(dir).map_err(checkpoints::unsaved)?;
        let room = Disk::new(1).room(dir).map_err(|error| Failure::run(CheckpointError::from(error)))?;
        if room < bytes {
            return Err(Failure::run(format!(
                "the disk of {} has no room for the weights of this run: {} are free, and they take {}\n\
                 Free some space, save to a directory on another disk, or save in 16 bits (--save-dtype bf16).",
                dir.display(),
                human(room),
                human(bytes)
            )));
        }
    }
    Ok(())
}

/// Refuses a run whose output files would replace its data or each other.
fn check_files(config: &Config) -> Result<()> {
    let output = &config.output;
    let files = [
        ("--data", config.corpus.source.path.as_ref()),
        ("--tokenizer", config.corpus.source.tokenizer.as_ref()),
        ("--report", output.report.as_ref()),
        ("--metrics", output.metrics.as_ref()),
        ("--record", output.record.as_ref()),
    ];
    let named = |(flag, path): (&'static str, Option<&PathBuf>)| {
        let path = path?;
        // Several outputs may go to one terminal or pipe.
        let is_stream = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        (!is_stream).then(|| (flag, path.canonicalize().unwrap_or_else(|_| path.clone())))
    };
    let files: Vec<_> = files.into_iter().filter_map(named).collect();
    for (index, (flag, path)) in files.iter().enumerate() {
        if let Some((other, _)) = files[..index].iter().find(|(_, earlier)| earlier == path) {
            return Err(Failure::usage(format!(
                "{other} and {flag} are one file, {}: the one would replace the other\nGive two files.",
                path.display()
            )));
        }
    }
    Ok(())
}
