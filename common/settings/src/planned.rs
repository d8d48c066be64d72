//! A run as a job whose needs can be predicted.

use crate::cli::GradSync;
use crate::config::Config;
use crate::error::{Failure, Result};
use prediction::{InvalidJob, Job, Placement, Prediction, Recipe, Saving};
use sharding::Precision;

/// Predicts a run of `stage`.
///
/// # Errors
/// A usage failure if these numbers have no prediction.
pub fn predict(stage: prediction::Stage, config: &Config) -> Result<(Job, Prediction)> {
    let job = job(stage, config);
    let prediction = prediction::predict(&job).map_err(|error| config.findings.attribute(invalid(&error)))?;
    Ok((job, prediction))
}

/// Returns a usage failure that names the flags behind `error`.
pub fn invalid(error: &InvalidJob) -> Failure {
    let flags = match error {
        InvalidJob::TooManyMicroBatches(_) => "--grad-accum: ",
        InvalidJob::TooManyRanks(_) => "--gpus: ",
        InvalidJob::TooLarge { .. } => "--batch-size, --seq-len, --grad-accum, --model: ",
        InvalidJob::Zero { .. } | InvalidJob::Group { .. } | InvalidJob::Placement { .. } => "",
    };
    Failure::usage(format!("{flags}{error}"))
}

/// Returns a run as a job. A rank that has no room in main memory for a copy of its
/// part of a checkpoint writes it piece by piece.
pub fn job(stage: prediction::Stage, config: &Config) -> Job {
    let copying = job_saving(stage, config, saving(config));
    let Some(limit) = config.memory.host_memory.filter(|_| copying.placement.saving == Saving::Copying)
    else {
        return copying;
    };
    let peak = |prediction: Prediction| prediction.ranks.iter().map(|rank| rank.host.total_peak).max();
    match prediction::predict(&copying).map(peak) {
        Ok(Some(peak)) if peak > limit => job_saving(stage, config, Saving::Streaming),
        _ => copying,
    }
}

/// Returns how checkpoints are saved if main memory has no limit. States on disk are written from
/// there, and nothing is copied for a save that training waits for.
fn saving(config: &Config) -> Saving {
    let on_disk = config.offload.placement().states_on_disk();
    match &config.output.checkpoint {
        None => Saving::Never,
        Some(_) if on_disk || config.output.checkpoint_wait => Saving::Streaming,
        Some(_) => Saving::Copying,
    }
}

fn job_saving(stage: prediction::Stage, config: &Config, saving: Saving) -> Job {
    let job = Job {
        batch_size: config.batch_size,
        tokens: config.sequence_length,
        micro_batches: config.micro_batches,
        checkpointing: config.memory.checkpoint_activations,
        wrap: config.wrap,
        strategy: config.strategy.unwrap_or_default(),
        shard_group: config.mesh.shard_group_size(),
        secondary_shards: config.mesh.secondary_group_size(),
        textbook_all_reduce: config.grad_sync == GradSync::AllReduce,
        recipe: recipe(config.precision),
        algorithm: config.algorithm,
        placement: Placement { saving, ..placement(config) },
        ..Job::new(config.model.clone(), stage, config.world_size)
    };
    config.communication.plan(job, config.precision)
}

/// Returns where states are stored, in the form of predictions.
pub fn placement(config: &Config) -> Placement {
    Placement {
        sub_group_size: config.communication.sub_group_size.map(|elements| elements as u64),
        gathers_states: config.hashed || config.output.save.is_some(),
        saving: saving(config),
        ..config.offload.placement()
    }
}

/// Returns the bytes per parameter.
pub fn recipe(precision: Precision) -> Recipe {
    let weights = precision.parameters.size() as u64;
    let gradients = precision.gradients.size() as u64;
    let base = if precision.has_masters() { Recipe::MIXED } else { Recipe::FP32 };
    Recipe { weights, gradients, ..base }
}
