//! A run's finished optimizer steps and validations. A watcher that joins late receives them first,
//! together with the current state.

use crate::amount::bounded;
use crate::event::{Event, What};
use crate::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

/// A finished optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    /// The step, from 0.
    pub step: u32,
    /// Time at which the first rank finished it, in nanoseconds of the run.
    #[serde(deserialize_with = "bounded")]
    pub at: u64,
    /// Mean loss over the global batch in nats per token.
    pub loss: f64,
    /// Norm of the averaged gradient before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
    /// Tokens in the global batch.
    #[serde(deserialize_with = "bounded")]
    pub tokens: u64,
    /// Seconds on the rank that finished first.
    pub seconds: f64,
    /// The factor by which the loss was multiplied; `None` if it was not scaled.
    pub loss_scale: Option<f64>,
    /// Steps skipped so far because gradients overflowed.
    pub skipped: u32,
}

impl StepRecord {
    /// Returns the tokens of the global batch per second of the step.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }
}

/// Maximum number of steps that a [`History`] keeps, in addition to the latest. They take at most
/// 40 MB of a stream.
const MOST_STEPS: u32 = 1 << 19;

/// Finished steps and validations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Steps, ascending. Runs of up to half a million steps keep all of them; longer runs keep the
    /// first, every second (then every fourth, and so on) after it, and the latest.
    pub steps: Vec<StepRecord>,
    /// Validations, ascending: optimizer steps done before, mean loss.
    pub evaluations: Vec<(u32, f64)>,
}

impl History {
    /// Applies one event. Of the reports of a step or a validation, the first rank's counts.
    pub fn apply(&mut self, event: &Event) {
        match event.what {
            What::StepFinished { step, loss, grad_norm, lr, tokens, seconds }
                if self.steps.last().is_none_or(|last| last.step < step) =>
            {
                let (at, loss_scale) = (event.at, None);
                let skipped = self.steps.last().map_or(0, |last| last.skipped);
                let record =
                    StepRecord { step, at, loss, grad_norm, lr, tokens, seconds, loss_scale, skipped };
                self.thin_out(step);
                self.steps.push(record);
            }
            What::LossScale { step, scale, skipped } => {
                if let Some(record) = self.steps.last_mut().filter(|last| last.step == step) {
                    (record.loss_scale, record.skipped) = (Some(scale), skipped);
                }
            }
            What::Evaluated { step, loss } if self.evaluations.last().is_none_or(|last| last.0 < step) => {
                self.evaluations.push((step, loss));
            }
            _ => {}
        }
    }

    /// Returns the number of finished steps, including those that are no longer kept.
    pub fn finished(&self) -> u64 {
        let ends = self.steps.first().zip(self.steps.last());
        ends.map_or(0, |(first, last)| u64::from(last.step - first.step) + 1)
    }

    /// Drops the steps that are no longer kept once `next` is the latest.
    fn thin_out(&mut self, next: u32) {
        let (Some(first), Some(last)) = (self.steps.first(), self.steps.last()) else { return };
        let (first, last) = (first.step, last.step);
        let distance = |latest: u32| ((latest - first) / MOST_STEPS + 1).next_power_of_two();
        let kept = |step: u32| (step - first).is_multiple_of(distance(next));
        if distance(next) > distance(last) {
            self.steps.retain(|record| kept(record.step));
        } else if !kept(last) {
            self.steps.pop();
        }
    }
}

/// The current state of a run and its history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CatchUp {
    /// The number of events lost so far.
    #[serde(deserialize_with = "bounded")]
    pub dropped: u64,
    /// The current state of every rank.
    pub snapshot: Snapshot,
    /// The finished steps and validations.
    pub history: History,
}

impl CatchUp {
    /// Returns the state at the start of a run of `world_size` ranks over `units` units.
    pub fn new(world_size: u32, units: usize) -> Self {
        CatchUp { dropped: 0, snapshot: Snapshot::new(world_size, units), history: History::default() }
    }

    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        self.snapshot.apply(event);
        self.history.apply(event);
    }
}
