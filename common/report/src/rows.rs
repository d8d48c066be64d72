//! The rows of a report.

use crate::kernels::UNTIMED;
use collectives::Traffic;
use events::{Class, Operation, Place, Route};
use model::Checkpointing;
use serde::{Deserialize, Serialize};
use settings::{Config, LinkChoice, labels};

/// One optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// The step's number, from 0.
    pub step: u32,
    /// Mean loss over the global batch before the update, in nats per token; null in JSON if it is
    /// not a number.
    #[serde(deserialize_with = "labels::nan_if_null")]
    pub loss: f64,
    /// Gradient norm before clipping, without the loss scale; null in JSON if it overflowed.
    #[serde(deserialize_with = "labels::finite_or_null")]
    pub grad_norm: f64,
    /// Learning rate used.
    pub lr: f64,
    /// Tokens in the global batch.
    pub tokens: u64,
    /// Wall-clock seconds on the reporting rank.
    pub seconds: f64,
    /// The factor by which the loss is multiplied before backward; null if it is not scaled.
    pub loss_scale: Option<f64>,
    /// True if gradients overflowed, so that the update was skipped.
    pub skipped: bool,
}

impl StepRow {
    /// Returns the tokens of the global batch per second of the step.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }
}

/// A validation loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRow {
    /// Optimizer steps done before it.
    pub step: u32,
    /// Mean validation loss in nats per token; null in JSON if it is not a number.
    #[serde(deserialize_with = "labels::nan_if_null")]
    pub loss: f64,
}

/// Peak memory of one class on one rank, in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRow {
    /// The rank.
    pub rank: usize,
    /// The place: `device`; with offload also `host` and `disk`.
    #[serde(default, with = "labels::label")]
    pub place: Place,
    /// The class.
    #[serde(with = "labels::label")]
    pub class: Class,
    /// Predicted peak.
    pub predicted_bytes: u64,
    /// Measured peak.
    pub peak_bytes: u64,
}

/// Peak memory of all classes together on one rank, in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalRow {
    /// The rank.
    pub rank: usize,
    /// The place, as in [`MemoryRow`].
    #[serde(default, with = "labels::label")]
    pub place: Place,
    /// Predicted peak.
    pub predicted_bytes: u64,
    /// Measured peak.
    pub peak_bytes: u64,
}

/// Payload that one rank sent for one operation over the run, and the number of collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficRow {
    /// The rank.
    pub rank: usize,
    /// The operation.
    #[serde(with = "labels::label")]
    pub operation: Operation,
    /// Predicted payload.
    pub predicted_bytes: u64,
    /// Measured payload.
    pub bytes_sent: u64,
    /// Predicted number of collectives.
    pub predicted_calls: u64,
    /// Measured number of collectives.
    pub calls: u64,
}

/// The transfers of one rank on one route between its places over the run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferRow {
    /// The rank.
    pub rank: usize,
    /// The route: `device→host`, `host→device`, `host→disk` or `disk→host`.
    #[serde(with = "labels::label")]
    pub route: Route,
    /// Predicted payload.
    pub predicted_bytes: u64,
    /// Measured payload.
    pub bytes: u64,
    /// Predicted number of transfers.
    pub predicted_calls: u64,
    /// Measured number of transfers.
    pub calls: u64,
    /// Seconds in which the rank was idle because it waited for them.
    pub waited_seconds: f64,
    /// The part of the measured payload that moved for validation.
    #[serde(default)]
    pub validation_bytes: u64,
    /// The part of these seconds in validation.
    #[serde(default)]
    pub validation_waited_seconds: f64,
    /// The part of the measured payload that moved in setup and for checkpoints.
    #[serde(default)]
    pub other_bytes: u64,
    /// The part of these seconds in setup and checkpoints.
    #[serde(default)]
    pub other_waited_seconds: f64,
}

impl TransferRow {
    /// Returns the bytes moved, and the seconds waited, in steps.
    pub(crate) fn of_steps(&self) -> (u64, f64) {
        (
            self.bytes.saturating_sub(self.validation_bytes + self.other_bytes),
            self.waited_seconds - self.validation_waited_seconds - self.other_waited_seconds,
        )
    }
}

/// Payload that one rank sent to its group of neighbours over the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourRow {
    /// The rank.
    pub rank: usize,
    /// Predicted payload.
    pub predicted_bytes: u64,
    /// Measured payload.
    pub bytes_sent: u64,
}

/// Seconds per phase of the training loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Fetching tokens.
    pub data: f64,
    /// Forward passes.
    pub forward: f64,
    /// Backward passes.
    pub backward: f64,
    /// The part of backward in which blocks recompute activations that forward has not kept.
    pub recompute: f64,
    /// Optimizer steps, including what an update does in the next forward, such as waiting for its
    /// all-gathers.
    pub step: f64,
    /// Validation.
    pub evaluate: f64,
}

/// Seconds per phase: in total, off the processor, and in waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// Total, waiting included.
    pub phases: Times,
    /// Part of `phases`, outside waits: the rank's thread did not run. It had no core, waited for
    /// other threads of the rank, or waited for its GPU.
    #[serde(default)]
    pub off_processor: Times,
    /// Issuing collectives and waiting for them, part of `phases`.
    pub waits: Times,
    /// Waits for peers, part of `waits`.
    pub for_peers: Times,
    /// Waits for a simulated link, part of `waits`: communication that no computation hides.
    pub for_link: Times,
    /// Waits for transfers between device, main memory and disk, part of `phases`.
    #[serde(default)]
    pub for_places: Times,
}

/// Seconds that one rank spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeRow {
    /// The rank.
    pub rank: usize,
    /// Seconds of all its steps.
    pub seconds: f64,
    /// Seconds per phase.
    #[serde(flatten)]
    pub clocks: Clocks,
    /// Seconds in collectives, by operation.
    pub operations: Vec<OperationTime>,
}

/// Seconds in one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationTime {
    /// The operation.
    #[serde(with = "labels::label")]
    pub operation: Operation,
    /// Seconds: issuing, waiting for peers, moving data, waiting for a simulated link.
    pub seconds: f64,
    /// Seconds waiting for peers, part of `seconds`.
    pub peers_seconds: f64,
    /// Seconds waiting for a simulated link, part of `seconds`.
    pub link_seconds: f64,
}

/// A simulated link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRow {
    /// Its description in words.
    pub name: String,
    /// Seconds per round.
    pub latency_seconds: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
}

/// The model, in numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelRow {
    /// Its name.
    pub name: String,
    /// Parameters (Ψ).
    pub parameters: u64,
    /// Tokens per sequence.
    pub sequence_length: usize,
    /// Sequences per micro-batch and rank.
    pub batch_size: usize,
    /// Micro-batches per step.
    pub micro_batches: usize,
    /// The activations that blocks recompute in backward: none, block or selective.
    #[serde(with = "labels::label")]
    pub checkpoint_activations: Checkpointing,
    /// The unit that is gathered, reduced and released as one: model, block, module, parameter or
    /// size:N.
    pub wrap: String,
    /// The number of units that result.
    pub units: usize,
    /// Its numbers, as a Hugging Face `config.json`.
    #[serde(default)]
    pub architecture: Option<serde_json::Value>,
}

impl ModelRow {
    /// Returns the model of `config`, with this many parameters and units.
    pub(crate) fn new(config: &Config, parameters: u64, units: usize) -> Self {
        ModelRow {
            name: config.model.name.clone(),
            parameters,
            sequence_length: config.sequence_length,
            batch_size: config.batch_size,
            micro_batches: config.micro_batches,
            checkpoint_activations: config.memory.checkpoint_activations,
            wrap: config.wrap.to_string(),
            units,
            architecture: Some(config.model.to_hugging_face()),
        }
    }
}

/// The speed of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Tokens per second over all ranks, without the first two steps.
    pub tokens_per_second: f64,
    /// Floating-point operations per token, forward and backward.
    pub flops_per_token: u64,
    /// Operations per token that activation checkpointing adds.
    pub recomputed_flops_per_token: u64,
    /// Product of tokens per second and operations per token; recomputed operations do not count.
    pub model_flops_per_second: f64,
}

pub(crate) fn link_row(choice: &LinkChoice) -> LinkRow {
    LinkRow {
        name: choice.describe(),
        latency_seconds: choice.link.latency.as_secs_f64(),
        bytes_per_second: choice.link.bandwidth,
    }
}

pub(crate) fn operation_times(traffic: &Traffic) -> Vec<OperationTime> {
    let seconds = |counters: &[u64], operation: Operation| counters[operation.index()] as f64 * 1e-9;
    let row = |&operation: &Operation| OperationTime {
        operation,
        seconds: seconds(&traffic.nanoseconds, operation),
        peers_seconds: seconds(&traffic.for_peers, operation),
        link_seconds: seconds(&traffic.for_link, operation),
    };
    Operation::ALL.iter().map(row).collect()
}

pub(crate) fn throughput(steps: &[StepRow], config: &Config) -> Throughput {
    let Config { model, sequence_length, memory, .. } = config;
    let flops_per_token = model.flops_per_token(*sequence_length);
    let counted = if steps.len() > UNTIMED { &steps[UNTIMED..] } else { steps };
    let (tokens, seconds) = counted.iter().fold((0, 0.0), |(t, s), row| (t + row.tokens, s + row.seconds));
    let tokens_per_second = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    Throughput {
        tokens_per_second,
        flops_per_token,
        recomputed_flops_per_token: model
            .recomputed_flops_per_token(*sequence_length, memory.checkpoint_activations),
        model_flops_per_second: tokens_per_second * flops_per_token as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::config;

    fn step(step: u32, seconds: f64) -> StepRow {
        let (loss, grad_norm, lr, tokens, loss_scale, skipped) = (1.0, 1.0, 1.0, 1000, None, false);
        StepRow { step, loss, grad_norm, lr, tokens, seconds, loss_scale, skipped }
    }

    #[test]
    fn speed_leaves_the_first_two_steps_out_unless_there_are_no_others() {
        let config = config("--gpus 2 --checkpoint-activations block");
        let speed = |steps: &[StepRow]| throughput(steps, &config).tokens_per_second;
        assert_eq!(speed(&[step(0, 100.0), step(1, 50.0), step(2, 2.0), step(3, 2.0)]), 500.0);
        assert_eq!(speed(&[step(0, 3.0), step(1, 1.0)]), 500.0);
        assert_eq!(speed(&[]), 0.0);
        let row = throughput(&[step(0, 2.0)], &config);
        assert!(row.recomputed_flops_per_token > 0, "blocks are computed again");
        assert_eq!(row.model_flops_per_second, 500.0 * config.model.flops_per_token(128) as f64);
    }
}
