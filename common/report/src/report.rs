//! The run report: predictions next to measurements, as JSON.

use crate::compared::{Compared, Predicted};
use crate::hardware_rows::GpuRow;
use crate::kernels::{KernelRow, LimitRow};
use crate::measured::Measured;
use crate::rows::{
    EvaluationRow, LinkRow, MemoryRow, ModelRow, NeighbourRow, StepRow, Throughput, TimeRow, TotalRow,
    TrafficRow, TransferRow, link_row, throughput,
};
use events::{Place, Route};
use prediction::{Algorithm, Placement, Stage, Strategy};
use serde::{Deserialize, Serialize};
use settings::float_type::PrecisionName;
use settings::{Communication, Config, Failure, GradSync, Result, labels, planned};
use std::path::Path;
use std::sync::Arc;
use storage::{Disk, Publication};

/// Version of the report's layout.
pub const SCHEMA: u32 = 2;

/// The report of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The stage.
    #[serde(with = "labels::label")]
    pub stage: Stage,
    /// Number of ranks.
    pub world_size: usize,
    /// The device.
    pub device: String,
    /// FSDP's name for how far it shards: `full-shard`, `shard-grad-op`, `no-shard` or
    /// `hybrid-shard`; null where FSDP has none for the stage.
    #[serde(with = "labels::label_or_null")]
    pub strategy: Option<Strategy>,
    /// Hybrid sharding: number of ranks that share one copy of the model states.
    pub shard_group_size: Option<usize>,
    /// Number of ranks that share a second copy of the parameters; `None` if there is none.
    pub secondary_shard_size: Option<usize>,
    /// How gradients are summed where the stage has a choice.
    #[serde(default)]
    pub grad_sync: Option<GradSync>,
    /// Buckets, overlap and prefetch.
    #[serde(default)]
    pub communication: Option<Communication>,
    /// Where model states and activations were stored; reports without this field kept all on the
    /// device.
    #[serde(default)]
    pub placement: Placement,
    /// How local collectives move data.
    #[serde(default)]
    pub algorithm: Option<Algorithm>,
    /// The simulated link between the ranks; `None` if there is none.
    pub link: Option<LinkRow>,
    /// The simulated link between device and main memory; `None` if there is none.
    #[serde(default)]
    pub host_link: Option<LinkRow>,
    /// The simulated link between main memory and disk; `None` if there is none.
    #[serde(default)]
    pub disk_link: Option<LinkRow>,
    /// The model.
    pub model: ModelRow,
    /// The precision of parameters, activations and computation: `fp32`, `bf16`, `fp16` or
    /// `autocast`.
    #[serde(with = "labels::label")]
    pub precision: PrecisionName,
    /// The precision of gradients until the step.
    #[serde(with = "labels::label")]
    pub grad_dtype: PrecisionName,
    /// The precision of gradients on the wire.
    #[serde(with = "labels::label")]
    pub reduce_dtype: PrecisionName,
    /// Bytes per gradient on the wire.
    pub communicated_bytes: u32,
    /// Steps that were skipped because gradients overflowed.
    pub skipped_steps: u32,
    /// One row per optimizer step.
    pub steps: Vec<StepRow>,
    /// Validation losses.
    pub evaluations: Vec<EvaluationRow>,
    /// Flat rows per rank, place and class.
    pub memory: Vec<MemoryRow>,
    /// Rows per rank, those of the device first.
    pub total_peak_bytes: Vec<TotalRow>,
    /// Flat rows per rank and route between places; empty if nothing is offloaded.
    #[serde(default)]
    pub transfers: Vec<TransferRow>,
    /// Rows per rank that computes on a GPU: memory that the ledger does not count. Empty on the
    /// CPU.
    #[serde(default)]
    pub gpu: Vec<GpuRow>,
    /// Flat rows per rank and kind of kernel; empty if kernels were not timed, or if a step or a
    /// validation of a run on a GPU was interrupted. On the CPU they always are timed.
    #[serde(default)]
    pub kernels: Vec<KernelRow>,
    /// The limit of the processor's registers; `None` if it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitRow>,
    /// Number of threads that compute for a rank.
    #[serde(default = "one")]
    pub threads: usize,
    /// Flat rows per rank and operation.
    pub traffic: Vec<TrafficRow>,
    /// Rows per rank; empty if ranks have no groups of neighbours.
    pub traffic_to_neighbours: Vec<NeighbourRow>,
    /// Rows per rank.
    pub time: Vec<TimeRow>,
    /// The speed of the run.
    pub throughput: Throughput,
    /// Hash of the final f32 weights, little-endian, unpadded, in Hugging Face's order; empty if it
    /// was not requested.
    pub weights_blake3: String,
    /// The reason why the last checkpoint was not saved; `None` if it was saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsaved: Option<String>,
    /// The error of a failed run; `None` if it did not fail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// What a run trained, as far as its configuration does not say.
#[derive(Clone, Copy, Debug)]
pub struct Trained {
    /// The stage.
    pub stage: Stage,
    /// The strategy, if the stage has several.
    pub strategy: Option<Strategy>,
    /// The number of the model's parameters.
    pub parameters: u64,
    /// The number of units into which the parameters are grouped.
    pub units: usize,
}

impl Report {
    /// Combines the predictions and the measurements of all ranks.
    pub fn new(
        Trained { stage, strategy, parameters, units }: Trained,
        config: &Config,
        predicted: &Predicted,
        measured: &[Measured],
    ) -> Self {
        let steps = measured[0].steps.clone();
        let placement = Placement { saving: predicted.saving, ..planned::placement(config) };
        // A copy of a checkpoint is in main memory, with or without offload.
        let beyond = placement.any() || config.output.checkpoint.is_some();
        let places: &[Place] = if beyond { &Place::ALL } else { &[Place::Device] };
        let routes: &[Route] = if placement.any() { &Route::ALL } else { &[] };
        let (types, compared) = (config.precision, Compared { predicted, measured });
        Report {
            schema: SCHEMA,
            stage,
            world_size: config.world_size,
            device: config.describe_device(),
            strategy,
            shard_group_size: config.mesh.shard_group_size(),
            secondary_shard_size: config.mesh.secondary_group_size(),
            grad_sync: Some(config.grad_sync),
            communication: Some(config.communication.clone()),
            placement,
            algorithm: Some(config.algorithm),
            link: config.link.as_ref().map(link_row),
            host_link: config.offload.host_link.as_ref().map(link_row),
            disk_link: config.offload.disk_link.as_ref().map(link_row),
            model: ModelRow::new(config, parameters, units),
            precision: settings::precision::named(types),
            grad_dtype: PrecisionName::of(types.gradients),
            reduce_dtype: PrecisionName::of(types.reduce),
            communicated_bytes: types.reduce.size() as u32,
            skipped_steps: steps.iter().filter(|row| row.skipped).count() as u32,
            evaluations: compared.evaluations(),
            memory: compared.memory(places),
            total_peak_bytes: compared.totals(places),
            transfers: compared.transfers(routes),
            gpu: measured.iter().filter_map(|m| m.gpu).collect(),
            kernels: measured.iter().flat_map(|m| m.kernels.clone()).collect(),
            limit: None,
            threads: config.threads,
            traffic: compared.traffic(),
            traffic_to_neighbours: compared.to_neighbours(),
            time: compared.times(),
            throughput: throughput(&steps, config),
            steps,
            weights_blake3: measured[0].weights_blake3.clone().unwrap_or_default(),
            unsaved: measured[0].unsaved.clone(),
            error: None,
        }
    }

    /// Returns the report for a run that failed with `error`, without the measurements that ranks
    /// take at the end.
    pub fn failed(self, error: String) -> Self {
        Report {
            error: Some(error),
            memory: Vec::new(),
            total_peak_bytes: Vec::new(),
            transfers: Vec::new(),
            traffic: Vec::new(),
            traffic_to_neighbours: Vec::new(),
            time: Vec::new(),
            ..self
        }
    }

    /// Writes the report atomically.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.write_on(&Arc::new(Disk::new(1)), path)
    }

    /// Writes the report on `disk`, atomically.
    ///
    /// # Errors
    /// As [`Report::write`].
    pub fn write_on(&self, disk: &Arc<Disk>, path: &Path) -> Result<()> {
        let json = serde_json::to_vec_pretty(self).map_err(|e| unwritable(path, &e))?;
        has_folder(path)?;
        Publication::write(disk, path, json).map_err(|error| unwritable(path, &error.cause))
    }

    /// Checks that a report can be created at `path`, so that a long run does not fail at its end.
    ///
    /// # Errors
    /// If the path does not name a file, or a file cannot be created in its folder.
    pub fn probe(path: &Path) -> Result<()> {
        has_folder(path)?;
        let file = Publication::create(&Arc::new(Disk::new(1)), path);
        file.and_then(Publication::discard).map_err(|error| unwritable(path, &error.cause))
    }

    /// Reads a report that [`Report::write`] has written.
    ///
    /// # Errors
    /// A usage failure that names the file.
    pub fn read(path: &Path) -> Result<Self> {
        let fail = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
        let text = storage::read_regular(path).map_err(|e| fail(format!("cannot be read: {e}")))?;
        let other =
            |why: String| fail(format!("not a report of this version: {why}\nWrite one with --report FILE."));
        let report: Self = serde_json::from_slice(&text).map_err(|error| other(error.to_string()))?;
        if report.schema != SCHEMA {
            return Err(other(format!("its layout is {}, this program's {SCHEMA}", report.schema)));
        }
        Ok(report)
    }

    /// Returns the largest measured peak of a rank in `place`, in bytes; `None` if the report has
    /// no rows of `place`.
    pub fn peak(&self, place: Place) -> Option<u64> {
        let rows = self.total_peak_bytes.iter().filter(|row| row.place == place);
        rows.map(|row| row.peak_bytes).max()
    }

    /// Returns the bytes that a rank moved on `route` in a step, and the seconds that it waited for
    /// them: the means of all ranks and steps.
    pub(crate) fn moved_and_waited(&self, route: Route) -> (f64, f64) {
        let rows = self.transfers.iter().filter(|row| row.route == route).map(TransferRow::of_steps);
        let (bytes, seconds) = rows.fold((0, 0.0), |(b, s), (bytes, seconds)| (b + bytes, s + seconds));
        let each = (self.world_size * self.steps.len()).max(1) as f64;
        (bytes as f64 / each, seconds / each)
    }

    /// Returns every wrong prediction, in words; empty if all predictions hold.
    pub fn mispredictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut compare = |rank: usize, what: String, predicted: u64, measured: u64| {
            if predicted != measured {
                let stage = self.stage;
                wrong.push(format!(
                    "{stage}, rank {rank}, {what}: predicted {predicted}, measured {measured}"
                ));
            }
        };
        for row in &self.memory {
            let what = format!("{} in {}, bytes", row.class.label(), row.place.label());
            compare(row.rank, what, row.predicted_bytes, row.peak_bytes);
        }
        for row in &self.total_peak_bytes {
            let what = format!("total in {}, bytes", row.place.label());
            compare(row.rank, what, row.predicted_bytes, row.peak_bytes);
        }
        for row in &self.traffic {
            let operation = row.operation.label();
            compare(row.rank, format!("{operation}, bytes"), row.predicted_bytes, row.bytes_sent);
            compare(row.rank, format!("{operation}, calls"), row.predicted_calls, row.calls);
        }
        for row in &self.traffic_to_neighbours {
            compare(row.rank, "sent to neighbours, bytes".into(), row.predicted_bytes, row.bytes_sent);
        }
        for row in &self.transfers {
            let route = row.route.label();
            compare(row.rank, format!("{route}, bytes"), row.predicted_bytes, row.bytes);
            compare(row.rank, format!("{route}, transfers"), row.predicted_calls, row.calls);
        }
        wrong
    }

    /// True if every prediction equals its measurement.
    pub fn predictions_hold(&self) -> bool {
        self.mispredictions().is_empty()
    }
}

/// Refuses a path whose folder does not exist.
fn has_folder(path: &Path) -> Result<()> {
    match storage::parent(path) {
        folder if folder.is_dir() => Ok(()),
        folder => Err(unwritable(path, &format!("there is no folder {}", folder.display()))),
    }
}

fn unwritable(path: &Path, why: &dyn std::fmt::Display) -> Failure {
    Failure::run(format!("cannot write --report {}: {why}", path.display()))
}

/// Returns the number of threads of a rank in reports that lack it.
fn one() -> usize {
    1
}

#[cfg(test)]
mod tests;
