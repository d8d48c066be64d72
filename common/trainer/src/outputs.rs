//! The files that a run writes: probed before the run begins.

use crate::checkpoints;
use checkpoint::{CheckpointError, ModelFiles, Reader, Writer};
use model::Model;
use report::Report;
use settings::size::human;
use settings::{Config, Failure, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use storage::{Disk, parent};

/// Maximum number of links from a path to its file, as in Linux.
const LINKS: u32 = 40;

/// Returns the bytes of the weights that this process saves at the end, in the type that flags or
/// `model_files` name.
pub(crate) fn saved_bytes(config: &Config, model: &Model, model_files: &ModelFiles) -> u64 {
    let stored = config.save_format.element_type.unwrap_or_else(|| model_files.element_type());
    let saves = config.leads() && config.output.save.is_some();
    if saves { model.layout.parameters() * stored.bytes() as u64 } else { 0 }
}

/// Refuses a run whose output files cannot be written or would replace its inputs, such as the
/// `pretrained` weights.
///
/// # Errors
/// A failure that names the flag or the file.
pub(crate) fn probe(config: &Config, pretrained: Option<&Reader>) -> Result<()> {
    check_files(config, pretrained)?;
    if let Some(path) = &config.output.report {
        Report::probe(path)?;
    }
    if let Some(dir) = &config.output.save {
        Writer::probe(dir).map_err(checkpoints::save_failure)?;
    }
    Ok(())
}

/// Refuses a disk that has no room for the `bytes` of the final weights.
///
/// # Errors
/// If there is too little room, or the disk does not say how much there is.
pub(crate) fn check_room(config: &Config, bytes: u64) -> Result<()> {
    let Some(dir) = &config.output.save else { return Ok(()) };
    let room = Disk::new(1).free_bytes(dir).map_err(|error| Failure::run(CheckpointError::from(error)))?;
    if room >= bytes {
        return Ok(());
    }
    Err(Failure::run(format!(
        "the disk of {} has no room for the weights of this run: {} are free, and they take {}\n\
         Free some space, save to a directory on another disk, or save in 16 bits (--save-dtype bf16).",
        dir.display(),
        human(room),
        human(bytes)
    )))
}

/// Refuses a run whose output files would replace its input files or each other.
fn check_files(config: &Config, pretrained: Option<&Reader>) -> Result<()> {
    let mut seen: HashMap<PathBuf, &str> =
        inputs(config, pretrained).map(|(label, path)| (resolve(&path), label)).collect();
    // Several outputs may go to one terminal or pipe.
    let is_stream = |path: &PathBuf| path.metadata().is_ok_and(|metadata| !metadata.is_file());
    for (label, path) in outputs(config).filter(|(_, path)| !is_stream(path)) {
        let path = resolve(&path);
        if let Some(other) = seen.get(&path) {
            return Err(Failure::usage(format!(
                "{other} and {label} are one file, {}: the one would replace the other\nGive two files.",
                path.display()
            )));
        }
        seen.insert(path, label);
    }
    Ok(())
}

/// Returns the files that the run reads, each with the flag that names it.
fn inputs(config: &Config, pretrained: Option<&Reader>) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let source = &config.corpus.source;
    let file = Some(&config.findings.file).filter(|file| !file.is_empty());
    let named = [
        ("--config", file.map(PathBuf::from)),
        ("--model", config.config_json.clone()),
        ("--data", source.path.clone()),
        ("--tokenizer", source.tokenizer.clone()),
    ];
    let weights = pretrained.into_iter().flat_map(Reader::files);
    let named = named.into_iter().filter_map(|(flag, path)| Some((flag, path?)));
    named.chain(weights.map(|path| ("a file of --init-from", path)))
}

/// Returns the files that the run writes, each with the flag that names it.
fn outputs(config: &Config) -> impl Iterator<Item = (&'static str, PathBuf)> {
    let output = &config.output;
    let partial = output.record.as_ref().map(|path| {
        let mut name = resolve(path).into_os_string();
        name.push(".partial");
        PathBuf::from(name)
    });
    let named = [
        ("--report", output.report.clone()),
        ("--metrics", output.metrics.clone()),
        ("--record", output.record.clone()),
        ("the unfinished file of --record", partial),
    ];
    let logs = output
        .log_dir
        .iter()
        .flat_map(|dir| (0..config.world_size).map(|rank| ("a log of --log-dir", log_path(dir, rank))));
    named.into_iter().filter_map(|(flag, path)| Some((flag, path?))).chain(logs)
}

/// Returns the path of the log of `rank` in `--log-dir dir`.
pub(crate) fn log_path(dir: &Path, rank: usize) -> PathBuf {
    dir.join(format!("rank-{rank}.log"))
}

/// Returns the file that a write to `path` creates or replaces: links are followed, and neither
/// their target nor the file's directory need exist.
fn resolve(path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS {
        match (path.canonicalize(), path.read_link()) {
            (Ok(found), _) => return found,
            (_, Ok(target)) => path = parent(&path).join(target),
            _ => break,
        }
    }
    match path.file_name() {
        Some(name) => resolve(parent(&path)).join(name),
        None => path,
    }
}
