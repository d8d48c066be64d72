//! What a run keeps of its training, and what another goes on from: whole tensors, so that the one
//! may have other ranks than the other, and be another stage.

use checkpoint::{CheckpointError, StateReader};
use model::{Layout, Model, TensorId};
use planner::table::{counted, grouped};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use settings::Config;
use settings::{Failure, Result};
use sharding::{LossScale, LossScaler, LossScaling, TrainingState, WeightSource};
use std::ops::Range;
use std::sync::Arc;

/// How far a run had come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// Steps that are done.
    pub steps: u32,
    /// Of them, those that updated something.
    pub updates: u32,
    /// Where the scale of the loss stands, if it is scaled.
    pub loss_scale: Option<LossScale>,
    /// Who trained.
    pub stage: String,
    /// On so many ranks.
    pub ranks: usize,
    /// With so many tokens in a step.
    pub tokens_per_step: u64,
    /// A Hugging Face `config.json`.
    pub architecture: Value,
}

/// What a run goes on from.
#[derive(Debug)]
pub(crate) struct ResumeState {
    reader: StateReader,
    layout: Layout,
    /// How far it has come.
    pub progress: Progress,
}

impl ResumeState {
    /// What is kept where `config` says, if anything is.
    ///
    /// # Errors
    /// If it is damaged, of another model, or if there is nothing left to do.
    pub(crate) fn open(config: &Config, model: &Model) -> Result<Option<Arc<Self>>> {
        let Some(checkpoint) = &config.checkpoint else { return Ok(None) };
        let wrong = |error: CheckpointError| Failure::usage(error.to_string());
        let Some(reader) = StateReader::open(&checkpoint.directory).map_err(wrong)? else { return Ok(None) };
        reader.check(&model.layout).map_err(wrong)?;
        let path = reader.path();
        let progress: Progress = serde_json::from_str(reader.progress()).map_err(|error| {
            Failure::usage(format!(
                "{}: what it says of its training is damaged: {error}\nGive another directory to start anew.",
                path.display()
            ))
        })?;
        if let Some(how) = other_architecture(&progress.architecture, &architecture(model)) {
            return Err(wrong(CheckpointError::OtherModel { path, how }));
        }
        if progress.steps >= config.steps {
            return Err(Failure::usage(format!(
                "{} steps are done already, as {} says, of {} (--steps): there is nothing left to do\n\
                 Go further with --steps {} (over which the learning rate decays), or give another directory to start anew.",
                grouped(progress.steps.into()),
                path.display(),
                grouped(config.steps.into()),
                progress.steps.saturating_mul(2),
            )));
        }
        Ok(Some(Arc::new(ResumeState { reader, layout: model.layout.clone(), progress })))
    }

    /// The lines that tell a run that goes on from one that begins.
    pub(crate) fn words(&self, config: &Config) -> String {
        let Progress { steps, stage, ranks, tokens_per_step, .. } = &self.progress;
        let batch = match config.tokens_per_step() == *tokens_per_step {
            true => String::new(),
            false => format!(", with {} tokens in a step", grouped(*tokens_per_step)),
        };
        let past = config.faults.iter().filter(|fault| fault.passed(*steps));
        let past = past.map(|fault| format!("--inject {fault} comes no more: that is over.\n"));
        format!(
            "Resuming after {}, the last of them {stage}'s on {}{batch}.\n{}",
            counted(*steps as usize, "step", "steps"),
            counted(*ranks, "rank", "ranks"),
            past.collect::<String>(),
        )
    }

    /// One state of all parameters.
    pub(crate) fn source(self: &Arc<Self>, state: TrainingState) -> Arc<dyn WeightSource> {
        Arc::new(OneState(self.clone(), state))
    }

    /// AdamW's momentum and variance.
    pub(crate) fn moments(self: &Arc<Self>) -> [Arc<dyn WeightSource>; 2] {
        [TrainingState::Momentum, TrainingState::Variance].map(|state| self.source(state))
    }

    /// The scale of the loss: where it stood, or a new one.
    pub(crate) fn scaler(kept: Option<&Self>, scaling: LossScaling) -> LossScaler {
        match kept.and_then(|kept| kept.progress.loss_scale) {
            Some(at) => LossScaler::resumed(scaling, at),
            None => LossScaler::new(scaling),
        }
    }
}

/// The model, as it is kept; without what does not matter to its weights.
pub(crate) fn architecture(model: &Model) -> Value {
    let mut config = model.config.to_hugging_face();
    if let Some(keys) = config.as_object_mut() {
        keys.remove("max_position_embeddings");
    }
    config
}

/// The first key that two architectures do not agree about.
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
        let OneState(kept, state) = self;
        kept.reader.read(*state, &kept.layout.tensors[tensor], range, into).map_err(|error| error.to_string())
    }
}
