//! The checkpoint that a run resumes from. It holds whole tensors, so that any stage on any number
//! of ranks can resume.

use checkpoint::{CheckpointError, StateReader};
use model::{Layout, Model, TensorId};
use planner::table::{counted, grouped};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::{Config, Failure, Result};
use sharding::{LossScale, LossScaler, LossScaling, TrainingState, WeightSource};
use std::ops::Range;
use std::sync::Arc;

/// How far a run had come when it saved a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Steps that are done.
    pub steps: u32,
    /// Of them, those that updated the weights.
    pub updates: u32,
    /// The state of the loss scaler, if the loss is scaled.
    pub loss_scale: Option<LossScale>,
    /// The stage that trained last.
    pub stage: String,
    /// Its number of ranks.
    pub ranks: usize,
    /// Its tokens per step.
    pub tokens_per_step: u64,
    /// The model, as a Hugging Face `config.json`.
    pub architecture: Value,
}

/// An open checkpoint.
#[derive(Debug)]
pub(crate) struct ResumeState {
    reader: StateReader,
    layout: Layout,
    /// How far training had come.
    pub progress: Progress,
}

impl ResumeState {
    /// Opens the checkpoint that `config` names, if there is one.
    ///
    /// # Errors
    /// If it is damaged or of another model, or if its run has done all steps already.
    pub(crate) fn open(config: &Config, model: &Model) -> Result<Option<Arc<Self>>> {
        let Some(checkpoint) = &config.checkpoint else { return Ok(None) };
        let wrong = |error: CheckpointError| Failure::usage(error.to_string());
        let Some(reader) = StateReader::open(&checkpoint.directory).map_err(wrong)? else { return Ok(None) };
        reader.check(&model.layout).map_err(wrong)?;
        let path = reader.path();
        let progress: Progress = serde_json::from_str(reader.progress()).map_err(|error| {
            Failure::usage(format!(
                "{}: the record of its training is damaged: {error}\nGive another directory to start from the beginning.",
                path.display()
            ))
        })?;
        if let Some(how) = other_architecture(&progress.architecture, &architecture(model)) {
            return Err(wrong(CheckpointError::OtherModel { path, how }));
        }
        if progress.steps >= config.steps {
            return Err(Failure::usage(format!(
                "{} of {} steps (--steps) are done already, says {}: there is nothing left to do\n\
                 Go further with --steps {} (over which the learning rate decays), or give another directory to start from the beginning.",
                grouped(progress.steps.into()),
                grouped(config.steps.into()),
                path.display(),
                progress.steps.saturating_mul(2),
            )));
        }
        Ok(Some(Arc::new(ResumeState { reader, layout: model.layout.clone(), progress })))
    }

    /// Returns the lines that a resumed run prints before the others.
    pub(crate) fn words(&self, config: &Config) -> String {
        let Progress { steps, stage, ranks, tokens_per_step, .. } = &self.progress;
        let batch = match config.tokens_per_step() == *tokens_per_step {
            true => String::new(),
            false => format!(", with {} tokens in a step", grouped(*tokens_per_step)),
        };
        let past = config.faults.iter().filter(|fault| fault.passed(*steps));
        let past = past.map(|fault| format!("--inject {fault} has no effect: that step is done.\n"));
        format!(
            "Resuming after {}, the last of them {stage}'s on {}{batch}.\n{}",
            counted(*steps as usize, "step", "steps"),
            counted(*ranks, "rank", "ranks"),
            past.collect::<String>(),
        )
    }

    /// A source that reads one state of all parameters.
    pub(crate) fn source(self: &Arc<Self>, state: TrainingState) -> Arc<dyn WeightSource> {
        Arc::new(OneState(self.clone(), state))
    }

    /// Sources that read AdamW's momentum and variance.
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

/// Returns the model as checkpoints record it, without what does not change its weights.
pub(crate) fn architecture(model: &Model) -> Value {
    let mut config = model.config.to_hugging_face();
    if let Some(keys) = config.as_object_mut() {
        keys.remove("max_position_embeddings");
    }
    config
}

/// Returns the first key in which two architectures differ, in words.
fn other_architecture(kept: &Value, now: &Value) -> Option<String> {
    let key = now.as_object()?.keys().find(|key| kept[key.as_str()] != now[key.as_str()])?;
    Some(format!("its {key} is {}, this one's {}", kept[key.as_str()], now[key.as_str()]))
}

struct OneState(Arc<ResumeState>, TrainingState);

impl WeightSource for OneState {
    fn read(
        &self,
        tensor: TensorId,
        range: Range<usize>,
        into: &mut [f32],
    ) -> std::result::Result<(), String> {
        let OneState(resume, state) = self;
        resume
            .reader
            .read(*state, &resume.layout.tensors[tensor], range, into)
            .map_err(|error| error.to_string())
    }
}
