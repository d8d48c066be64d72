//! Publishes a save that all ranks have written, or removes one that failed.

use super::work::{Work, words};
use super::{Save, SaveOutcome, SavePhase, Saver};
use crate::plan::Plan;
use crate::rank_error::{Result, other};
use crate::resume::Provenance;
use checkpoint::{FileRecord, Manifest};
use serde_json::Value;

impl Saver {
    /// On rank 0, begins to remove the files of a save that failed with `error`.
    pub(super) fn start_removing(&self, save: Save, error: String) -> SavePhase {
        let outcome = SaveOutcome { steps: save.steps, result: Err(error) };
        let (checkpoints, partial) = (self.checkpoints.clone(), save.partial);
        let remove = move || drop(checkpoints.disk().remove_directory(&partial));
        let work = self.manifest.is_some().then(|| Work::start(remove));
        SavePhase::Removing(outcome, work)
    }

    /// On rank 0, begins to publish a save of which all ranks have written their `files`.
    pub(super) fn start_publishing(&self, save: Save, files: Vec<FileRecord>) -> SavePhase {
        let Some(manifest) = self.manifest.clone() else { return SavePhase::Publishing(save, None) };
        let manifest = Manifest { progress: save.progress.clone(), files, ..manifest };
        let (lock, checkpoints) = (self.lock.clone(), self.checkpoints.clone());
        let (partial, steps, keep, damaged) =
            (save.partial.clone(), save.steps, self.keep, self.damaged.clone());
        let model_files = self.model_files.clone();
        let publish = move || {
            let published = lock.iter().try_for_each(|lock| lock.check());
            let published = published.and_then(|()| {
                let model_files = checkpoints.write_model_files(&partial, &model_files)?;
                checkpoints.publish(&partial, steps, &Manifest { model_files, ..manifest })
            });
            // Files that cannot be removed now are removed by the next save, or by the next run.
            match published {
                Ok(ref name) => drop(checkpoints.prune(name, keep, &damaged)),
                Err(_) => drop(checkpoints.disk().remove_directory(&partial)),
            }
            published.map(drop).map_err(words)
        };
        let work = Work::start(publish);
        if work.is_lost() {
            drop(self.checkpoints.disk().remove_directory(&save.partial));
        }
        SavePhase::Publishing(save, Some(work))
    }
}

/// Returns the part of the manifest that all checkpoints of `plan`'s run have in common.
pub(super) fn manifest(plan: &Plan) -> Result<Manifest> {
    Ok(Manifest {
        progress: Value::Null,
        identity: plan.identity.clone(),
        record: serde_json::to_value(provenance(plan)).map_err(other)?,
        block_bytes: checkpoint::BLOCK as u64,
        files: Vec::new(),
        model_files: Vec::new(),
    })
}

fn provenance(plan: &Plan) -> Provenance {
    let (offload, model) = (&plan.config.offload, &plan.model.config);
    Provenance {
        stage: plan.stage.id.label().into(),
        strategy: plan.strategy().map(|strategy| strategy.label().into()),
        ranks: plan.config.world_size,
        places: [offload.optimizer, offload.parameters].map(|place| prediction::place_word(place).into()),
        max_positions: Some(model.max_positions.max(model.sequence_length)),
        version: env!("CARGO_PKG_VERSION").into(),
    }
}
