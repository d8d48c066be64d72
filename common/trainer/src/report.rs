//! The run report: what was predicted and what was measured, as JSON.

use crate::config::Config;
use crate::error::{Failure, Result};
use crate::labels::{self, Label};
use crate::link::LinkChoice;
use crate::precision;
use crate::run::Measured;
use crate::timing::Times;
use collectives::Traffic;
use events::{Class, Operation};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Version of the report's layout.
pub const SCHEMA: u32 = 2;

/// One optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRow {
    /// Its number, from 0.
    pub step: u32,
    /// Mean loss over the global batch before the update, in nats per token.
    pub loss: f64,
    /// Gradient norm before clipping, without the loss's scale; null in JSON if it overflowed.
    #[serde(deserialize_with = "labels::finite_or_null")]
    pub grad_norm: f64,
    /// Learning rate used.
    pub lr: f64,
    /// Tokens in the global batch.
    pub tokens: u64,
    /// Wall-clock seconds on the reporting rank.
    pub seconds: f64,
    /// What the loss was multiplied with before backward; null if it is not scaled.
    pub loss_scale: Option<f64>,
    /// Whether gradients overflowed, so that nothing was updated.
    pub skipped: bool,
}

/// A validation loss.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRow {
    /// After so many optimizer steps.
    pub step: u32,
    /// Mean validation loss in nats per token.
    pub loss: f64,
}

/// Peak memory of one class on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRow {
    /// The rank.
    pub rank: usize,
    /// The class.
    #[serde(deserialize_with = "labels::known")]
    pub class: Label,
    /// Predicted peak.
    pub predicted_bytes: u64,
    /// Measured peak.
    pub peak_bytes: u64,
}

/// Peak memory of all classes together on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalRow {
    /// The rank.
    pub rank: usize,
    /// Predicted peak.
    pub predicted_bytes: u64,
    /// Measured peak.
    pub peak_bytes: u64,
}

/// Payload sent by one rank for one operation over the run, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficRow {
    /// The rank.
    pub rank: usize,
    /// The operation.
    #[serde(deserialize_with = "labels::known")]
    pub operation: Label,
    /// Predicted payload.
    pub predicted_bytes: u64,
    /// Measured payload.
    pub bytes_sent: u64,
    /// Predicted number of collectives.
    pub predicted_calls: u64,
    /// Measured number of collectives.
    pub calls: u64,
}

impl TrafficRow {
    /// Whether payload and number of collectives are as predicted.
    pub fn is_as_predicted(&self) -> bool {
        (self.predicted_bytes, self.predicted_calls) == (self.bytes_sent, self.calls)
    }
}

/// Of what one rank sent over the run, what stayed in its group of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourRow {
    /// The rank.
    pub rank: usize,
    /// Predicted payload.
    pub predicted_bytes: u64,
    /// Measured payload.
    pub bytes_sent: u64,
}

/// Seconds that one rank spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeRow {
    /// The rank.
    pub rank: usize,
    /// Seconds of all its steps.
    pub seconds: f64,
    /// Seconds per phase, waiting included.
    pub phases: Times,
    /// Of them, seconds in waits for collectives.
    pub waits: Times,
    /// Of these, waiting for peers.
    pub for_peers: Times,
    /// Of these, waiting for a simulated link: communication that no computation hides.
    pub for_link: Times,
    /// Seconds in waits for collectives, by operation.
    pub operations: Vec<OperationTime>,
}

/// Seconds in one operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationTime {
    /// The operation.
    #[serde(deserialize_with = "labels::known")]
    pub operation: Label,
    /// Seconds: waiting for peers, moving data, waiting for a simulated link.
    pub seconds: f64,
    /// Of them, waiting for peers.
    pub peers_seconds: f64,
    /// Of them, waiting for a simulated link.
    pub link_seconds: f64,
}

/// A simulated link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRow {
    /// In words.
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
    /// What blocks compute again in backward: none, block or selective.
    #[serde(deserialize_with = "labels::known")]
    pub checkpoint_activations: Label,
    /// What is gathered, reduced and released as one: model, block, module, parameter or size:N.
    pub wrap: String,
    /// Number of units that this makes.
    pub units: usize,
}

/// How fast it went.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Tokens per second over all ranks, the first two steps left out.
    pub tokens_per_second: f64,
    /// Floating-point operations per token, forward and backward.
    pub flops_per_token: u64,
    /// What activation checkpointing adds to them by computing again.
    pub recomputed_flops_per_token: u64,
    /// The first times the second: recomputed operations teach the model nothing and do not count.
    pub model_flops_per_second: f64,
}

/// Everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The stage.
    #[serde(deserialize_with = "labels::known")]
    pub stage: Label,
    /// Number of ranks.
    pub world_size: usize,
    /// The device.
    pub device: String,
    /// FSDP's word for how far it shards: `full-shard`, `shard-grad-op`, `no-shard` or `hybrid-shard`; null where FSDP has
    /// none for the stage.
    #[serde(deserialize_with = "labels::known_or_null")]
    pub strategy: Option<Label>,
    /// Hybrid sharding: ranks that share one copy of the model states.
    pub shard_group_size: Option<usize>,
    /// Ranks that share a second copy of the parameters, if there is one.
    pub secondary_shard_size: Option<usize>,
    /// The simulated link between the ranks, if there is one.
    pub link: Option<LinkRow>,
    /// The model.
    pub model: ModelRow,
    /// The precision of parameters, activations and computation: `fp32`, `bf16` or `fp16`.
    #[serde(deserialize_with = "labels::known")]
    pub precision: Label,
    /// The precision of gradients until the step.
    #[serde(deserialize_with = "labels::known")]
    pub grad_dtype: Label,
    /// The precision of gradients on the wire.
    #[serde(deserialize_with = "labels::known")]
    pub reduce_dtype: Label,
    /// Bytes per gradient on the wire.
    pub communicated_bytes: u32,
    /// Steps that were skipped because gradients overflowed.
    pub skipped_steps: u32,
    /// One row per optimizer step.
    pub steps: Vec<StepRow>,
    /// Validation losses.
    pub evaluations: Vec<EvaluationRow>,
    /// Flat rows per rank and class.
    pub memory: Vec<MemoryRow>,
    /// Rows per rank.
    pub total_peak_bytes: Vec<TotalRow>,
    /// Flat rows per rank and operation.
    pub traffic: Vec<TrafficRow>,
    /// Rows per rank, where ranks have groups of neighbours.
    pub traffic_to_neighbours: Vec<NeighbourRow>,
    /// Rows per rank.
    pub time: Vec<TimeRow>,
    /// How fast it went.
    pub throughput: Throughput,
    /// Hash of the final f32 weights, little-endian, unpadded, in Hugging Face's order.
    pub weights_blake3: String,
}

/// Predicted figures to hold the measured ones against.
pub struct Predicted {
    /// Peak bytes by rank and class.
    pub memory: Vec<Vec<u64>>,
    /// Peak bytes by rank, all classes together.
    pub total: Vec<u64>,
    /// Payload and collectives by rank, over the steps that were run.
    pub traffic: Vec<planner::traffic::Traffic>,
    /// Of that, payload to neighbours by rank.
    pub to_neighbours: Vec<u64>,
}

impl Report {
    /// Puts predictions and measurements of all ranks side by side.
    pub fn new(
        (stage, strategy): (Label, Option<Label>),
        config: &Config,
        parameters: u64,
        units: usize,
        predicted: &Predicted,
        measured: &[Measured],
    ) -> Self {
        let steps = measured[0].steps.clone();
        let types = config.precision;
        Report {
            schema: SCHEMA,
            stage,
            world_size: config.world_size,
            device: config.device_words(),
            strategy,
            shard_group_size: config.mesh.shard_group(),
            secondary_shard_size: config.mesh.secondary(),
            link: config.link.as_ref().map(link_row),
            model: ModelRow {
                name: config.model.name.clone(),
                parameters,
                sequence_length: config.sequence_length,
                batch_size: config.batch_size,
                micro_batches: config.micro_batches,
                checkpoint_activations: config.checkpointing.label(),
                wrap: config.wrap.to_string(),
                units,
            },
            precision: precision::name(types.parameters),
            grad_dtype: precision::name(types.gradients),
            reduce_dtype: precision::name(types.reduce),
            communicated_bytes: types.reduce.size() as u32,
            skipped_steps: steps.iter().filter(|row| row.skipped).count() as u32,
            evaluations: measured[0]
                .evaluations
                .iter()
                .map(|&(step, loss)| EvaluationRow { step, loss })
                .collect(),
            memory: rows(measured, Class::ALL, |rank, class, m| MemoryRow {
                rank,
                class: class.label(),
                predicted_bytes: predicted.memory[rank][class.index()],
                peak_bytes: m.peaks[class.index()],
            }),
            total_peak_bytes: rows(measured, &[()], |rank, (), m| TotalRow {
                rank,
                predicted_bytes: predicted.total[rank],
                peak_bytes: m.total_peak,
            }),
            traffic: rows(measured, Operation::ALL, |rank, operation, m| TrafficRow {
                rank,
                operation: operation.label(),
                predicted_bytes: predicted.traffic[rank].bytes(operation),
                bytes_sent: m.traffic.sent(operation),
                predicted_calls: predicted.traffic[rank].calls(operation),
                calls: m.traffic.calls[operation.index()],
            }),
            traffic_to_neighbours: measured
                .iter()
                .enumerate()
                .filter_map(|(rank, m)| {
                    let predicted_bytes = predicted.to_neighbours[rank];
                    m.to_neighbours.map(|bytes_sent| NeighbourRow { rank, predicted_bytes, bytes_sent })
                })
                .collect(),
            time: rows(measured, &[()], |rank, (), m| TimeRow {
                rank,
                seconds: m.steps.iter().map(|step| step.seconds).sum(),
                phases: m.clocks.total,
                waits: m.clocks.waits,
                for_peers: m.clocks.for_peers,
                for_link: m.clocks.for_link,
                operations: operation_times(&m.traffic),
            }),
            throughput: throughput(&steps, config),
            steps,
            weights_blake3: measured[0].weights_blake3.clone().unwrap_or_default(),
        }
    }

    /// Writes the report, whole or not at all.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let fail = |e: &dyn std::fmt::Display| {
            Failure::run(format!("cannot write --report {}: {e}", path.display()))
        };
        let json = serde_json::to_vec_pretty(self).map_err(|e| fail(&e))?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = path.file_name().ok_or_else(|| fail(&"it names no file"))?;
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|e| fail(&e))?;
        std::io::Write::write_all(&mut file, &json).map_err(|e| fail(&e))?;
        file.persist(folder.join(name)).map(drop).map_err(|e| fail(&e))
    }

    /// Reads a report that [`Report::write`] has written.
    ///
    /// # Errors
    /// A usage failure that names the file.
    pub fn read(path: &Path) -> Result<Self> {
        let fail = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
        let text = std::fs::read(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
        serde_json::from_slice(&text)
            .map_err(|e| fail(format!("not a report of this version: {e}\nWrite one with --report FILE.")))
    }

    /// Whether every prediction equals its measurement.
    pub fn predictions_hold(&self) -> bool {
        self.memory.iter().all(|row| row.predicted_bytes == row.peak_bytes)
            && self.total_peak_bytes.iter().all(|row| row.predicted_bytes == row.peak_bytes)
            && self.traffic.iter().all(TrafficRow::is_as_predicted)
            && self.traffic_to_neighbours.iter().all(|row| row.predicted_bytes == row.bytes_sent)
    }
}

fn rows<K: Copy, R>(measured: &[Measured], keys: &[K], row: impl Fn(usize, K, &Measured) -> R) -> Vec<R> {
    let row = &row;
    measured.iter().enumerate().flat_map(|(rank, m)| keys.iter().map(move |&key| row(rank, key, m))).collect()
}

fn link_row(choice: &LinkChoice) -> LinkRow {
    LinkRow {
        name: choice.words(),
        latency_seconds: choice.link.latency.as_secs_f64(),
        bytes_per_second: choice.link.bandwidth,
    }
}

fn operation_times(traffic: &Traffic) -> Vec<OperationTime> {
    let seconds = |counters: &[u64], operation: Operation| counters[operation.index()] as f64 * 1e-9;
    let row = |&operation: &Operation| OperationTime {
        operation: operation.label(),
        seconds: seconds(&traffic.nanoseconds, operation),
        peers_seconds: seconds(&traffic.for_peers, operation),
        link_seconds: seconds(&traffic.for_link, operation),
    };
    Operation::ALL.iter().map(row).collect()
}

fn throughput(steps: &[StepRow], config: &Config) -> Throughput {
    let Config { model, sequence_length, checkpointing, .. } = config;
    let flops_per_token = model.flops_per_token(*sequence_length);
    let counted = if steps.len() > 2 { &steps[2..] } else { steps };
    let (tokens, seconds) = counted.iter().fold((0, 0.0), |(t, s), row| (t + row.tokens, s + row.seconds));
    let tokens_per_second = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    Throughput {
        tokens_per_second,
        flops_per_token,
        recomputed_flops_per_token: model.recomputed_flops_per_token(*sequence_length, *checkpointing),
        model_flops_per_second: tokens_per_second * flops_per_token as f64,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::Parser;

    /// A report of one skipped step with `flags`, with made-up measurements.
    pub(crate) fn one_step(flags: &str) -> Report {
        let words = ["zero"].into_iter().chain(flags.split_whitespace());
        let config = Config::new(Cli::parse_from(words).train).unwrap();
        let step = StepRow {
            step: 0,
            loss: 0.1 + 0.2,
            grad_norm: f64::INFINITY,
            lr: 1e-3,
            tokens: config.tokens_per_step(),
            seconds: 0.3,
            loss_scale: Some(2.0),
            skipped: true,
        };
        let measured = Measured {
            steps: vec![step],
            evaluations: vec![(1, 2.5)],
            peaks: vec![3; Class::ALL.len()],
            total_peak: 21,
            traffic: Traffic::default(),
            to_neighbours: None,
            clocks: crate::timing::Clocks::default(),
            weights_blake3: Some("ab".into()),
        };
        let ranks = config.world_size;
        let predicted = Predicted {
            memory: vec![vec![3; Class::ALL.len()]; ranks],
            total: vec![21; ranks],
            traffic: vec![planner::traffic::Traffic::default(); ranks],
            to_neighbours: vec![0; ranks],
        };
        Report::new(("ZeRO-3", Some("full-shard")), &config, 918_656, 6, &predicted, &vec![measured; ranks])
    }

    #[test]
    fn a_report_reads_back_as_it_was() {
        let report = one_step("--link ethernet25g --precision bf16 --gpus 1");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        report.write(&path).unwrap();
        assert_eq!(Report::read(&path).unwrap(), report);
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap().replace("bf16", "fp17")).unwrap();
        assert!(Report::read(&path).unwrap_err().to_string().contains("fp17"));
    }
}
