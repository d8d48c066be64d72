//! What every stage owes, and what is wrong with one that does not keep it, in words.
//!
//! It trains exactly as another does: the same losses, gradient norms and final weights, and in
//! every step and on every rank the same parameters. And it holds and sends what the planner said,
//! to the byte.

use crate::train_under;
use events::lock;
use planner::{Partition, Stage};
use settings::Config;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use trainer::{AnyStage, At, Report, Result, Witness};

/// Runs `stage` beside `reference`, which no fault is injected into, and holds it to the contract; what
/// the planner got wrong is left to [`Report::mispredictions`].
///
/// # Errors
/// The first thing that is wrong, in words.
pub fn trains_like(
    stage: AnyStage,
    config: &Config,
    reference: Stage,
) -> std::result::Result<Report, String> {
    let words = |failure: trainer::Failure| failure.to_string();
    let healthy = Config { faults: Vec::new(), ..config.clone() };
    let (right, parameters) = recorded(reference, healthy).map_err(words)?;
    let (job, _) = settings::prediction::predict(stage.plan, config).map_err(words)?;
    let audit = Arc::new(Audit {
        right: parameters,
        partition: Partition::of(&job),
        shards: job.shards() as usize,
        found: Mutex::default(),
    });
    let outcome = trainer::train_until(stage, config.clone(), Some(audit.clone()), Arc::default());
    if let Some(breach) = audit.first() {
        return Err(breach);
    }
    let own = outcome.map_err(words)?;
    match departure(&own, &right) {
        Some(problem) => Err(problem),
        None => Ok(own),
    }
}

/// Where `own` leaves what `right` has learned, in words.
pub fn departure(own: &Report, right: &Report) -> Option<String> {
    for (own, right) in own.steps.iter().zip(&right.steps) {
        if own.grad_norm != right.grad_norm && own.loss == right.loss {
            return Some(format!(
                "in step {} the gradient norm is {:.4}, and should be {:.4}: some gradients are not the sum over all ranks",
                own.step, own.grad_norm, right.grad_norm
            ));
        }
        if own.loss != right.loss {
            return Some(format!(
                "the loss of step {} is {:.4}, and should be {:.4}: ranks compute with other parameters after the step before",
                own.step, own.loss, right.loss
            ));
        }
    }
    let differ = own.steps.len() != right.steps.len() || own.weights_blake3 != right.weights_blake3;
    differ.then(|| "losses agree and the last weights do not: the last update is incomplete".into())
}

/// Full parameters by step and unit.
type Parameters = BTreeMap<(u32, usize), Vec<f32>>;

/// Keeps what rank 0 computes with.
#[derive(Default)]
struct Recorder(Mutex<Parameters>);

impl Witness for Recorder {
    fn computes_with(&self, at: At, unit: usize, _pass: events::Pass, values: &[f32]) {
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

/// Holds what every rank computes with against what it should be.
struct Audit {
    right: Parameters,
    partition: Partition,
    shards: usize,
    /// What is wrong, in the order in which a step comes to it.
    found: Mutex<BTreeMap<(u32, bool, usize, usize), String>>,
}

impl Witness for Audit {
    fn computes_with(&self, at: At, unit: usize, pass: events::Pass, values: &[f32]) {
        let Some(problem) = self.problem(at, unit, pass, values) else { return };
        let order = (at.step, pass == events::Pass::Backward, unit, at.rank);
        lock(&self.found).entry(order).or_insert(problem);
    }
}

impl Audit {
    fn first(&self) -> Option<String> {
        lock(&self.found).values().next().cloned()
    }

    /// What is wrong with what `at` computes with.
    fn problem(&self, at: At, unit: usize, pass: events::Pass, values: &[f32]) -> Option<String> {
        let right = self.right.get(&(at.step, unit))?;
        let before = at.step.checked_sub(1).and_then(|step| self.right.get(&(step, unit)));
        let elements = self.partition.units[unit].parameters as usize;
        let length = values.len() / self.shards;
        let name = &self.partition.units[unit].name;
        let here = format!("rank {}'s {pass} of step {} computes with", at.rank, at.step);
        for owner in 0..self.shards {
            let slice = owner * length..((owner + 1) * length).min(elements);
            let Some(values) = values.get(slice.clone()).filter(|v| *v != &right[slice.clone()]) else {
                continue;
            };
            let is_old = before.is_some_and(|before| *values == before[slice.clone()]);
            let last = at.step.saturating_sub(1);
            return Some(match (is_old, owner == at.rank) {
                (true, true) => format!(
                    "{here} the old parameters of {name} in the slice that it owns: rank {owner} has not updated it in step {last}"
                ),
                (true, false) => format!(
                    "{here} old parameters of {name} in the slice that rank {owner} owns: what that rank updated in step {last} was not gathered"
                ),
                (false, _) if before.is_none() => format!(
                    "{here} something else than the initial parameters of {name}, in the slice that rank {owner} owns"
                ),
                (false, _) => format!(
                    "{here} parameters of {name} that are neither old nor right, in the slice that rank {owner} owns: that rank updated it in step {last} before its gradients were the sum over all ranks and micro-batches"
                ),
            });
        }
        None
    }
}
