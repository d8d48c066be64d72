//! The time of a step in every stage.

use super::{Report, StageReport};
use crate::Timing;
use crate::numbers::plain;
use events::{Place, Route};
use prediction::{InvalidJob, Job, Stage};
use serde::Serialize;
use shell::table::Table;
use timeline::StepTime;
use timeline::calibration::{Kind, TypicalError};

/// The times of a step on one device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// The GPU.
    pub gpu: &'static str,
    /// The GPU's bytes.
    pub memory: u64,
    /// How element-wise operations are computed.
    pub software: &'static str,
    /// Bytes per second that a machine sends to others.
    pub network: f64,
    /// Whether the GPUs are in several machines.
    pub crosses_machines: bool,
    /// The GPUs of published runs, of its generation.
    pub published_on: &'static str,
    /// The number of these runs.
    pub published_runs: usize,
    /// The median size of the error of their estimates.
    pub median_error: f64,
    /// The largest size of the error.
    pub largest_error: f64,
    /// Whether these estimates use efficiencies that were fitted without the run's own source.
    pub is_held_out: bool,
    /// What offloaded states depend on; `None` if nothing is offloaded.
    pub offload: Option<OffloadRates>,
    /// One entry per stage.
    pub stages: Vec<StageTime>,
}

/// What times of offloaded states depend on, and how far estimates of published runs are off.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct OffloadRates {
    /// Elements per second that a machine's CPUs update; `None` if they update nothing.
    pub cpu_updates: Option<f64>,
    /// Whether that rate is fitted to published runs, and not given.
    pub is_fitted: bool,
    /// Bytes per second that a machine reads from its disks; `None` if nothing is stored there.
    pub disk_read: Option<f64>,
    /// Bytes per second that a machine writes to its disks; `None` if nothing is stored there.
    pub disk_write: Option<f64>,
    /// GPUs of a machine that has these rates.
    pub gpus_per_node: usize,
    /// The number of published runs with offloaded states, all in main memory.
    pub published_runs: usize,
    /// The largest size of their estimates' errors.
    pub largest_error: f64,
}

/// The time of a step in one stage, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StageTime {
    /// The stage.
    pub stage: Stage,
    /// Whether its peak is within the GPU's memory.
    pub fits: bool,
    /// Forward and backward.
    pub compute: f64,
    /// Recomputation in backward.
    pub recompute: f64,
    /// The part of its collectives that computation does not hide.
    pub exposed_communication: f64,
    /// All of its collectives.
    pub communication: f64,
    /// Waiting for offloaded states and activations: for transfers and for the CPU.
    pub exposed_offload: f64,
    /// The CPU's work.
    pub cpu: f64,
    /// Transfers, in the order of their routes: device to main memory and back, main memory to disk
    /// and back.
    pub transfers: [f64; Route::ALL.len()],
    /// The update on the device.
    pub update: f64,
    /// The whole step.
    pub step: f64,
    /// Tokens per second of all GPUs together.
    pub tokens_per_second: f64,
    /// The model's operations per second, as a share of the GPU's.
    pub model_flops_utilization: f64,
}

impl Times {
    /// Returns the times of a step of `base` in every stage of a report.
    ///
    /// # Errors
    /// [`InvalidJob`] if no run can have these numbers.
    pub(super) fn of(base: &Job, timing: &Timing, stages: &[StageReport]) -> Result<Self, InvalidJob> {
        let gpu = timing.cluster.gpu;
        let TypicalError { gpus, runs, median, largest, is_held_out } =
            TypicalError::of(Kind::On(gpu.generation));
        let time = |report: &StageReport| {
            let fits = report.total <= gpu.memory;
            StageTime::of(&base.with_stage(report.stage), timing, fits)
        };
        Ok(Times {
            gpu: gpu.label,
            memory: gpu.memory,
            software: timing.software.label(),
            network: timing.cluster.network,
            crosses_machines: base.world_size > timing.cluster.gpus_per_node,
            published_on: gpus,
            published_runs: runs,
            median_error: median,
            largest_error: largest,
            is_held_out,
            offload: base.placement.any().then(|| OffloadRates::of(base, timing)),
            stages: stages.iter().map(time).collect::<Result<_, _>>()?,
        })
    }
}

impl OffloadRates {
    fn of(job: &Job, timing: &Timing) -> Self {
        let TypicalError { runs, largest, .. } = TypicalError::of(Kind::Offloaded);
        let machine = timing.cluster.machine;
        let on_disk = |rate| job.placement.uses_disk().then_some(rate);
        OffloadRates {
            cpu_updates: (job.placement.optimizer != Place::Device).then(|| timing.costs(job).cpu_updates()),
            is_fitted: machine.cpu_rate.is_none(),
            disk_read: on_disk(machine.disk_read),
            disk_write: on_disk(machine.disk_write),
            gpus_per_node: timing.cluster.gpus_per_node,
            published_runs: runs,
            largest_error: largest,
        }
    }
}

impl StageTime {
    fn of(job: &Job, timing: &Timing, fits: bool) -> Result<Self, InvalidJob> {
        let time = timing.step(job)?;
        let StepTime { compute, recompute, exposed, offload, update, communication, cpu, transfers } = time;
        let step = time.total();
        let own = (job.batch_size * job.tokens * job.micro_batches) as f64;
        let flops = own * job.config.flops_per_token(job.tokens) as f64;
        Ok(StageTime {
            stage: job.stage,
            fits,
            compute,
            recompute,
            exposed_communication: exposed,
            communication,
            exposed_offload: offload,
            cpu,
            transfers,
            update,
            step,
            tokens_per_second: own * job.world_size as f64 / step,
            model_flops_utilization: flops / step / timing.cluster.gpu.peak_flops,
        })
    }
}

impl Report {
    /// Returns the times of a step by stage; `None` if they were not asked for.
    pub(super) fn step_times(&self) -> Option<Table> {
        let times = self.times.as_ref()?;
        let of = |part: fn(&StageTime) -> f64| times.stages.iter().map(part);
        let longest = of(|stage| stage.step).fold(0.0, f64::max);
        let (unit, per_second, decimals) = match longest {
            ..0.01 => ("µs", 1e6, 0),
            ..1.0 => ("ms", 1e3, 1),
            _ => ("s", 1.0, 3),
        };
        let seconds = |seconds: f64| format!("{:.decimals$}", per_second * seconds);
        let mut table =
            Table::numbers(format!("step on {}, {unit}", times.gpu), self.of(|stage| stage.stage));
        table.row("forward and backward", of(|stage| stage.compute).map(seconds));
        if times.stages.iter().any(|stage| stage.recompute > 0.0) {
            table.row("recomputation", of(|stage| stage.recompute).map(seconds));
        }
        table.row("waiting for collectives", of(|stage| stage.exposed_communication).map(seconds));
        if times.offload.is_some() {
            table.row("waiting for offload", of(|stage| stage.exposed_offload).map(seconds));
        }
        if times.stages.iter().any(|stage| stage.update > 0.0) {
            table.row("update", of(|stage| stage.update).map(seconds));
        }
        table.row("= step", of(|stage| stage.step).map(seconds));
        table.row("collectives, hidden or not", of(|stage| stage.communication).map(seconds));
        if times.stages.iter().any(|stage| stage.cpu > 0.0) {
            table.row("CPU, hidden or not", of(|stage| stage.cpu).map(seconds));
        }
        for route in Route::ALL {
            let taken = || times.stages.iter().map(move |stage| stage.transfers[route.index()]);
            if taken().any(|taken| taken > 0.0) {
                table.row(format!("{route}, hidden or not"), taken().map(seconds));
            }
        }
        let tokens = |rate: f64| events::say::grouped(rate.round() as u64);
        let memory = format!("fits in {} GB", times.memory / 1_000_000_000);
        table.row(memory, times.stages.iter().map(|stage| if stage.fits { "yes" } else { "no" }));
        table.row("tokens per second", of(|stage| stage.tokens_per_second).map(tokens));
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        table.row("model FLOPs utilization", of(|stage| stage.model_flops_utilization).map(percent));
        Some(table)
    }
}

impl OffloadRates {
    fn notes(&self) -> String {
        let machine = match self.gpus_per_node {
            1 => "A machine of one GPU".into(),
            gpus => format!("A machine of {gpus} GPUs"),
        };
        let disks = match (self.disk_read, self.disk_write) {
            (Some(read), Some(write)) => {
                let [read, write] = [read, write].map(|rate| plain(rate / 1e9, 3));
                format!(
                    "{machine} reads {read} GB/s from disks and writes {write}: --disk-read,\n\
                     --disk-write. No published run stores states there.\n"
                )
            }
            _ => String::new(),
        };
        let Some(updates) = self.cpu_updates else { return disks };
        let billions = plain(updates / 1e9, 2);
        let fit = if self.is_fitted {
            let (runs, factor) = (self.published_runs, plain(1.0 + self.largest_error, 2));
            format!(
                "The rate is fitted to {runs} published runs of two sources. An\n\
                 estimate of either by a fit to the other is off by a factor of up to {factor}.\n"
            )
        } else {
            String::new()
        };
        format!(
            "{disks}\
             {machine} updates {billions} billion parameters per second on its CPUs, which also\n\
             add the gradients of ZeRO-2 and ZeRO-3: --cpu-rate.\n{fit}"
        )
    }
}

impl Times {
    /// Returns how far these times are to be trusted.
    pub(super) fn notes(&self) -> String {
        // Rounded up: so many are within it.
        let [median, largest] = [self.median_error, self.largest_error].map(|error| (100.0 * error).ceil());
        let fitted_to = if self.is_held_out { "the runs of other sources" } else { "these same runs" };
        let (runs, on) = (self.published_runs, self.published_on);
        let gigabits = plain(self.network * 8.0 / 1e9, 3);
        let network = format!("A machine sends {gigabits} Gbit/s to others.\n");
        let network = if self.crosses_machines { network } else { String::new() };
        let offload = self.offload.map(|rates| rates.notes()).unwrap_or_default();
        format!(
            "{network}{offload}\
             Times are estimates of 16-bit training, as if memory sufficed. Launches of kernels\n\
             are not counted, so small models take longer. Model FLOPs count masked scores, as\n\
             is usual, and no recomputation. Half of the estimates of {runs} published runs on\n\
             {on} are within {median} % of the measured time, and the worst is {largest} % off, with\n\
             efficiencies fitted to {fitted_to}: planner --published\n"
        )
    }
}
