//! The weights in a checkpoint, in Hugging Face's format.

use crate::checkpoints;
use crate::resume::{self, DamagedCheckpoints, Provenance, TrainingProgress};
use checkpoint::{CheckpointError, Checkpoints, Destination, Format, OpenCheckpoint, Writer};
use events::say::counted;
use model::{Layout, ModelConfig};
use settings::cli::ExportArgs;
use settings::config::resumed;
use settings::{Failure, Result};
use sharding::TrainingState;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use storage::Disk;

/// How long an export waits for another writer, or a probe, that holds its directory.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// An intact checkpoint.
struct Intact {
    checkpoint: OpenCheckpoint,
    config: ModelConfig,
    layout: Layout,
}

/// Writes the checkpoint that `args` name. Returns the lines to print. Holds one tensor at a time.
/// If a run that still saves removes the checkpoint, a newer one is written.
///
/// # Errors
/// If there is no intact checkpoint, or the directory cannot be written.
pub(crate) fn export(args: &ExportArgs) -> Result<Vec<String>> {
    let format = Format { moments: args.moments, ..args.format.format(None) };
    let intact = loop {
        let intact = choose(&args.from)?;
        match write(&intact, &args.to, format) {
            Ok(()) => break intact,
            // The weights are complete, in the directory that the error names.
            Err(error @ CheckpointError::Unpublished { .. }) => return Err(Failure::run(error)),
            Err(_) if is_superseded(&args.from, intact.checkpoint.path()) => {}
            Err(error) => return Err(checkpoints::save_failure(error)),
        }
    };
    let manifest = intact.checkpoint.manifest();
    let progress: Option<TrainingProgress> = serde_json::from_value(manifest.progress.clone()).ok();
    let provenance: Option<Provenance> = serde_json::from_value(manifest.record.clone()).ok();
    let after =
        progress.map(|progress| format!(" after {}", counted(progress.steps as usize, "step", "steps")));
    let by =
        provenance.map(|by| format!("; saved by {} on {}", by.stage, counted(by.ranks, "rank", "ranks")));
    let stored = format.element_type.unwrap_or_else(|| intact.checkpoint.model_files().element_type());
    let moments = if args.moments { " and moments (f32)" } else { "" };
    Ok(vec![
        format!(
            "{}: all blocks are intact{}{}",
            intact.checkpoint.path().display(),
            by.unwrap_or_default(),
            after.unwrap_or_default()
        ),
        format!("weights ({stored}){moments} saved to {}", args.to.display()),
    ])
}

/// True if the checkpoint at `path` is gone, and the directory `from` has another one.
fn is_superseded(from: &Path, path: &Path) -> bool {
    let names = Checkpoints::new(from, Arc::new(Disk::new(1))).names();
    !path.exists() && names.is_ok_and(|names| !names.is_empty())
}

/// Returns the newest intact checkpoint in the directory `from`, or the one that `from` is.
fn choose(from: &Path) -> Result<Intact> {
    let disk = Arc::new(Disk::new(1));
    let (checkpoints, one) = match Checkpoints::one(from, disk.clone()) {
        Some((checkpoints, name)) => (checkpoints, Some(vec![name])),
        None => (Checkpoints::new(from, disk), None),
    };
    let open = |name: &str| Ok(open(&checkpoints, name)?);
    let (intact, damaged) = loop {
        let names = one.clone().map_or_else(|| checkpoints.names().map_err(Failure::usage), Ok)?;
        let (intact, mut damaged) =
            resume::newest_intact(names.iter().map(String::as_str), open, &resume::alone)?;
        // A run that still saves removes old checkpoints: they are gone, not damaged.
        let listed = damaged.len();
        damaged.retain(|(name, _)| one.is_some() || checkpoints.directory().join(name).exists());
        match intact {
            Some(intact) => break (intact, damaged),
            None if damaged.len() == listed => return Err(no_intact_checkpoint(from, &damaged)),
            None => {}
        }
    };
    for (_, how) in &damaged {
        events::complain!("warning: {how}; an older checkpoint is used.");
    }
    Ok(intact)
}

/// Opens the checkpoint `name` and verifies all of its blocks.
fn open(checkpoints: &Checkpoints, name: &str) -> checkpoint::Result<Intact> {
    let manifest = checkpoints.manifest(name)?;
    let path = checkpoints.directory().join(name);
    let config = resumed::model(&manifest, "checkpoint")
        .map_err(|source| CheckpointError::Config { path: path.clone(), source })?;
    let layout = Layout::new(&config);
    let checkpoint = checkpoints.open(name, manifest, &layout)?;
    for state in TrainingState::ALL {
        for (id, tensor) in layout.tensors.iter().enumerate() {
            checkpoint.verify(state, id, &(0..tensor.elements()))?;
        }
    }
    Ok(Intact { checkpoint, config, layout })
}

fn write(intact: &Intact, to: &Path, format: Format) -> checkpoint::Result<()> {
    let Intact { checkpoint, config, layout } = intact;
    let model_files = checkpoint.model_files();
    let destination = Destination { path: to, disk: Arc::new(Disk::new(1)), timeout: LOCK_TIMEOUT };
    let mut writer = Writer::on(destination, config, layout, format, model_files)?;
    let mut values = Vec::new();
    for state in TrainingState::ALL.into_iter().take(if format.moments { 3 } else { 1 }) {
        for (id, tensor) in layout.tensors.iter().enumerate() {
            values.resize(tensor.elements(), 0.0);
            checkpoint.read(state, (id, tensor), 0..tensor.elements(), &mut values)?;
            writer.write_state(state, id, &values)?;
        }
    }
    writer.finish()
}

/// Returns the failure to export where no checkpoint is intact.
fn no_intact_checkpoint(from: &Path, damaged: &DamagedCheckpoints) -> Failure {
    if damaged.is_empty() {
        return Failure::usage(format!(
            "--from {}: there is no checkpoint\n\
             Give the directory of a run's --checkpoint, or one of the step-… directories in it.",
            from.display()
        ));
    }
    Failure::usage(format!(
        "--from {}: no checkpoint is intact\n{}Restore one from a copy.",
        from.display(),
        resume::listed(damaged)
    ))
}
