//! The checkpoint that a run resumes from: the newest one in which all blocks that ranks need are
//! intact. Any stage on any number of ranks resumes it.

mod agreement;
mod identity;

pub(crate) use agreement::{DamagedCheckpoints, Exchange, Unfit, alone, listed, newest_intact, unanimous};
pub(crate) use identity::identity;

use crate::states::HeldSlices;
use crate::witness::{At, Milestone, Witness};
use checkpoint::{CheckpointError, Checkpoints, ModelFiles, OpenCheckpoint, RunLock};
use events::header::Sharded;
use events::say::{counted, grouped};
use model::{Layout, Model, TensorId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::{Config, Failure, Result};
use sharding::{LossScale, LossScaler, LossScaling, Partition, TensorPart, TrainingState, WeightSource};
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

/// How far a run had come when it saved a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TrainingProgress {
    /// Steps that are done.
    pub steps: u32,
    /// Of them, those that updated the weights.
    pub updates: u32,
    /// Training tokens that they read, if the run that saved the checkpoint counted them.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// The state of the loss scaler, if the loss is scaled.
    pub loss_scale: Option<LossScale>,
}

/// Provenance of a checkpoint. Not compared when a run resumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    pub stage: String,
    /// The strategy, if the stage has several.
    pub strategy: Option<String>,
    pub ranks: usize,
    /// Where optimizer states and parameters were stored.
    pub places: [String; 2],
    /// The longest sequence that the model was made for, in tokens.
    pub max_positions: Option<usize>,
    /// The program's version.
    pub version: String,
}

/// The run that wants to resume.
pub(crate) struct Resuming<'a> {
    pub config: &'a Config,
    pub model: &'a Model,
    /// The settings that must match the checkpoint's. See [`mod@identity`].
    pub identity: &'a Value,
    pub partition: &'a Partition,
    /// The model states that the stage shards.
    pub sharded: Sharded,
    /// The ranks of this process.
    pub ranks: Range<usize>,
    /// Observes when ranks verify the checkpoint.
    pub witness: Option<&'a dyn Witness>,
}

/// An open checkpoint.
pub(crate) struct ResumeState {
    checkpoint: OpenCheckpoint,
    layout: Layout,
    provenance: Provenance,
    /// The training progress at the save.
    pub progress: TrainingProgress,
    /// Newer checkpoints, which are damaged.
    pub damaged: DamagedCheckpoints,
}

impl ResumeState {
    /// Opens the newest intact checkpoint among `checkpoints`; `None` if there is no checkpoint.
    /// Each process verifies the blocks that its ranks need; the processes agree by `exchange`.
    ///
    /// # Errors
    /// If the run may not resume it, or none is intact.
    pub(crate) fn choose(
        run: &Resuming<'_>,
        checkpoints: &Checkpoints,
        exchange: &Exchange<'_>,
    ) -> Result<Option<Arc<Self>>> {
        let listing = unanimous(listing(checkpoints), exchange)?;
        let seen = exchange(&listing)?;
        check_same_directory(checkpoints, &seen)?;
        // Rank 0's listing decides, so that all ranks try the same checkpoints.
        let names = seen[0].split_once('\n').map_or("", |(_, names)| names).split_whitespace();
        let open = |name: &str| ResumeState::open(run, checkpoints, name);
        match newest_intact(names, open, exchange)? {
            (Some(state), damaged) => {
                state.check_steps(run.config)?;
                Ok(Some(Arc::new(ResumeState { damaged, ..state })))
            }
            (None, damaged) if damaged.is_empty() => Ok(None),
            (None, damaged) => Err(Failure::usage(format!(
                "no checkpoint in {} is intact:\n{}Restore one from a copy, or give another directory to start from \
                 the beginning.",
                checkpoints.directory().display(),
                listed(&damaged)
            ))),
        }
    }

    /// Opens the checkpoint `name`, and verifies the blocks that the ranks of this process need.
    fn open(run: &Resuming<'_>, checkpoints: &Checkpoints, name: &str) -> std::result::Result<Self, Unfit> {
        let path = checkpoints.directory().join(name);
        let manifest = checkpoints.manifest(name)?;
        let meant = &run.config.output.resume_with;
        identity::check(&path, &manifest, run.identity, meant).map_err(Unfit::Refused)?;
        let unread = |error| Unfit::Damaged(format!("{}: {error}", path.display()));
        let progress: TrainingProgress = serde_json::from_value(manifest.progress.clone()).map_err(unread)?;
        let provenance = serde_json::from_value(manifest.record.clone()).map_err(unread)?;
        let layout = run.model.layout.clone();
        let checkpoint = checkpoints.open(name, manifest, &layout)?;
        let state = ResumeState { checkpoint, layout, provenance, progress, damaged: Vec::new() };
        state.verify(run)?;
        Ok(state)
    }

    /// Verifies all blocks that the ranks of this process read, each rank's on a thread of its own,
    /// or on this one if the system starts no more.
    fn verify(&self, run: &Resuming<'_>) -> checkpoint::Result<()> {
        std::thread::scope(|scope| {
            let start = |rank| {
                let verify = move || self.verify_rank(run, rank);
                std::thread::Builder::new().spawn_scoped(scope, verify).map_err(|_| verify())
            };
            let verifying: Vec<_> = run.ranks.clone().map(start).collect();
            let panicked = |_| {
                Err(CheckpointError::Damaged {
                    path: self.checkpoint.path().into(),
                    how: "reading it panicked".into(),
                })
            };
            verifying.into_iter().try_for_each(|rank| match rank {
                Ok(thread) => thread.join().unwrap_or_else(panicked),
                Err(verified) => verified,
            })
        })
    }

    fn verify_rank(&self, run: &Resuming<'_>, rank: usize) -> checkpoint::Result<()> {
        if let Some(witness) = run.witness {
            witness.on_milestone(At { step: 0, rank }, Milestone::Resuming);
        }
        for unit in 0..run.partition.units.len() {
            let held = HeldSlices::of(run.partition, run.sharded, unit, rank % run.partition.shards);
            let wanted = [&held.parameters, &held.optimizer, &held.optimizer];
            let wanted = TrainingState::ALL.into_iter().zip(wanted);
            for (state, slice) in wanted {
                for TensorPart { tensor, elements, .. } in run.partition.parts(unit, slice) {
                    self.checkpoint.verify(state, tensor, &elements)?;
                }
            }
        }
        Ok(())
    }

    fn check_steps(&self, config: &Config) -> Result<()> {
        let done = self.progress.steps;
        if done < config.steps {
            return Ok(());
        }
        let more = done.saturating_mul(2);
        let accepted = identity::accepting(&config.output.resume_with, |key| key == "steps");
        Err(Failure::usage(format!(
            "the checkpoint {} has completed {} steps, and --steps is {}: there is nothing left to do\n\
             To train further, give --steps {more} --resume-with {accepted} (the learning rate then decays over {more} steps), \
             or another directory to start from the beginning. For the weights: export --from {} --to DIR.",
            self.checkpoint.path().display(),
            grouped(done.into()),
            grouped(config.steps.into()),
            self.checkpoint.path().display(),
        )))
    }

    /// Returns the lines that a resumed run prints first.
    pub(crate) fn words(&self, config: &Config) -> String {
        let (steps, Provenance { stage, ranks, .. }) = (self.progress.steps, &self.provenance);
        let damaged: String = self
            .damaged
            .iter()
            .map(|(_, how)| format!("warning: {how}; an older checkpoint is used.\n"))
            .collect();
        let past = config.faults.iter().filter(|fault| fault.passed(steps));
        let past =
            past.map(|fault| format!("--inject {fault} cannot fire: the run resumes at step {steps}.\n"));
        format!(
            "{damaged}Resuming after {}; the checkpoint was saved by {stage} on {}.\n{}",
            counted(steps as usize, "step", "steps"),
            counted(*ranks, "rank", "ranks"),
            past.collect::<String>(),
        )
    }

    /// Returns the model files that the checkpoint has kept.
    pub(crate) fn model_files(&self) -> &Arc<ModelFiles> {
        self.checkpoint.model_files()
    }

    /// Returns a source that reads one state of all parameters.
    pub(crate) fn source(self: &Arc<Self>, state: TrainingState) -> Arc<dyn WeightSource> {
        Arc::new(OneState(self.clone(), state))
    }

    /// Returns sources that read AdamW's momentum and variance.
    pub(crate) fn moments(self: &Arc<Self>) -> [Arc<dyn WeightSource>; 2] {
        [TrainingState::Momentum, TrainingState::Variance].map(|state| self.source(state))
    }

    /// Returns a loss scaler in the state that `resume` holds, or a new one.
    pub(crate) fn scaler(resume: Option<&Self>, scaling: LossScaling) -> LossScaler {
        match resume.and_then(|resume| resume.progress.loss_scale) {
            Some(at) => LossScaler::resumed(scaling, at),
            None => LossScaler::new(scaling),
        }
    }
}

/// Returns two lines: the run that holds the lock of `checkpoints`, empty if the lock is not there,
/// and the names of the checkpoints, newest first.
///
/// # Errors
/// If the directory or its lock cannot be read.
fn listing(checkpoints: &Checkpoints) -> Result<String> {
    let names = checkpoints.names().map_err(Failure::usage)?;
    let holder = match RunLock::holder(checkpoints.directory()) {
        Err(CheckpointError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => String::new(),
        holder => holder.map_err(Failure::run)?,
    };
    Ok(format!("{holder}\n{}", names.join(" ")))
}

/// Fails if a process does not see rank 0's lock in the directory. `seen` has each process's
/// [`listing`].
fn check_same_directory(checkpoints: &Checkpoints, seen: &[String]) -> Result<()> {
    let holder = |seen: &String| seen.split('\n').next().unwrap_or_default().to_string();
    if holder(&seen[0]).is_empty() {
        return Err(Failure::run(format!(
            "the file `lock` in {}, which keeps other runs out, was removed or emptied while this run started\n\
             Do not touch it: the lock of a killed run does not block the next one. Run again.",
            checkpoints.directory().display()
        )));
    }
    match seen.iter().position(|one| holder(one) != holder(&seen[0])) {
        None => Ok(()),
        Some(rank) => Err(Failure::usage(format!(
            "--checkpoint {} is not the same directory on all machines: rank {rank} does not see what rank 0 wrote \
             there.\nGive a directory on a file system that all of them share.",
            checkpoints.directory().display()
        ))),
    }
}

/// Reads one state of all parameters from a checkpoint.
struct OneState(Arc<ResumeState>, TrainingState);

impl WeightSource for OneState {
    fn read(
        &self,
        tensor: TensorId,
        range: Range<usize>,
        into: &mut [f32],
    ) -> std::result::Result<(), String> {
        let OneState(resume, state) = self;
        let named = (tensor, &resume.layout.tensors[tensor]);
        resume.checkpoint.read(*state, named, range, into).map_err(|error| error.to_string())
    }
}
