//! The contract of every stage, and messages that say how a stage violates it.
//!
//! A stage trains exactly as any other: with the same losses, gradient norms and final weights, and
//! with the same parameters in every step and on every rank. It holds and sends the bytes that the
//! planner predicts, exactly.

use crate::train_under;
use events::lock;
use prediction::{Partition, Stage};
use settings::Config;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use trainer::{At, Report, Result, StageFactory, Witness};

/// Runs `stage` and compares it with `reference`, into which no fault is injected. The planner's
/// predictions are not checked here: see [`Report::mispredictions`].
///
/// # Errors
/// A message about the first violation of the contract.
pub fn trains_like(
    stage: StageFactory,
    config: &Config,
    reference: Stage,
) -> std::result::Result<Report, String> {
    let words = |failure: trainer::Failure| failure.to_string();
    let healthy = Config { faults: Vec::new(), ..config.clone() };
    let (expected, parameters) = recorded(reference, healthy).map_err(words)?;
    let (job, _) = settings::planned::predict(stage.id, config).map_err(words)?;
    let audit = Arc::new(Audit {
        expected: parameters,
        partition: Partition::of(&job),
        shards: job.shards() as usize,
        found: Mutex::default(),
    });
    let outcome = trainer::train_until(stage, config.clone(), Some(audit.clone()), Arc::default());
    if let Some(breach) = audit.first() {
        return Err(breach);
    }
    let actual = outcome.map_err(words)?;
    match first_difference(&actual, &expected) {
        Some(problem) => Err(problem),
        None => Ok(actual),
    }
}

/// Returns a message about the first difference between `actual` and `expected`; `None` if the runs
/// agree.
pub fn first_difference(actual: &Report, expected: &Report) -> Option<String> {
    for (actual, expected) in actual.steps.iter().zip(&expected.steps) {
        if actual.grad_norm != expected.grad_norm && actual.loss == expected.loss {
            return Some(format!(
                "in step {} the gradient norm is {:.4}, but should be {:.4}: some gradients are not the sum over all ranks",
                actual.step, actual.grad_norm, expected.grad_norm
            ));
        }
        if actual.loss != expected.loss {
            return Some(format!(
                "the loss of step {} is {:.4}, but should be {:.4}: after the previous step, ranks compute with the wrong parameters",
                actual.step, actual.loss, expected.loss
            ));
        }
    }
    let differ =
        actual.steps.len() != expected.steps.len() || actual.weights_blake3 != expected.weights_blake3;
    differ.then(|| "losses agree but the final weights do not: the last update is incomplete".into())
}

/// Full parameters by step and unit.
type Parameters = BTreeMap<(u32, usize), Vec<f32>>;

/// Records the parameters with which rank 0 computes.
#[derive(Default)]
struct Recorder(Mutex<Parameters>);

impl Witness for Recorder {
    fn on_parameters(&self, at: At, unit: usize, _pass: events::Pass, values: &[f32]) {
        if at.rank == 0 {
            let mut kept = lock(&self.0);
            kept.entry((at.step, unit)).or_insert_with(|| values.to_vec());
        }
    }
}

fn recorded(stage: Stage, config: Config) -> Result<(Report, Parameters)> {
    let recorder = Arc::new(Recorder::default());
    let report = train_under(stage, config, recorder.clone())?;
    let kept = std::mem::take(&mut *lock(&recorder.0));
    Ok((report, kept))
}

/// Compares the parameters with which every rank computes with the expected ones.
struct Audit {
    expected: Parameters,
    partition: Partition,
    shards: usize,
    /// The differences found, in the order in which a step reaches them.
    found: Mutex<BTreeMap<(u32, bool, usize, usize), String>>,
}

impl Witness for Audit {
    fn on_parameters(&self, at: At, unit: usize, pass: events::Pass, values: &[f32]) {
        let Some(problem) = self.problem(at, unit, pass, values) else { return };
        let order = (at.step, pass == events::Pass::Backward, unit, at.rank);
        lock(&self.found).entry(order).or_insert(problem);
    }
}

impl Audit {
    fn first(&self) -> Option<String> {
        lock(&self.found).values().next().cloned()
    }

    /// Returns a message if `at` computes with wrong parameters.
    fn problem(&self, at: At, unit: usize, pass: events::Pass, values: &[f32]) -> Option<String> {
        let expected = self.expected.get(&(at.step, unit))?;
        let before = at.step.checked_sub(1).and_then(|step| self.expected.get(&(step, unit)));
        let elements = self.partition.units[unit].parameters as usize;
        let length = values.len() / self.shards;
        let name = &self.partition.units[unit].name;
        let here = format!("rank {}'s {pass} of step {} computes with", at.rank, at.step);
        for owner in 0..self.shards {
            let slice = owner * length..((owner + 1) * length).min(elements);
            let Some(values) = values.get(slice.clone()).filter(|v| *v != &expected[slice.clone()]) else {
                continue;
            };
            let is_old = before.is_some_and(|before| *values == before[slice.clone()]);
            let last = at.step.saturating_sub(1);
            return Some(match (is_old, owner == at.rank) {
                (true, true) => format!(
                    "{here} the old parameters of {name} in the slice that it owns: rank {owner} has not updated it in step {last}"
                ),
                (true, false) => format!(
                    "{here} old parameters of {name} in the slice owned by rank {owner}: what that rank updated in step {last} was not gathered"
                ),
                (false, _) if before.is_none() => {
                    format!("{here} wrong initial parameters of {name} in the slice owned by rank {owner}")
                }
                (false, _) => format!(
                    "{here} parameters of {name} that match neither this step nor the previous one, in the slice owned by rank {owner}: that rank updated it in step {last} before its gradients were the sum over all ranks and micro-batches"
                ),
            });
        }
        None
    }
}
