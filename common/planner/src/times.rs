//! Times of steps: the flags that ask for them, and the recording of a predicted run.

use clap::Args;
use events::{Place, Recorder, RecordingError};
use prediction::{InvalidJob, Job, Placement, Stage, predict};
use std::path::PathBuf;
use timeline::{
    Calibration, Cluster, Costs, GPUS, Gpu, Machine, PredictedRun, Software, StepTime, estimate,
    is_recordable, play,
};

/// The flags about times.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimeArgs {
    /// Predict the time of a step in 16 bits on this GPU: a100, a100-40gb, h100, h200, rtx4090 or
    /// rtx-pro-6000 (with --model)
    #[arg(long, value_name = "GPU", value_parser = parse_gpu)]
    pub(crate) on: Option<Gpu>,
    /// Gbit/s that a machine sends to others [default, per GPU: a100 200, h100 and h200 400;
    /// rtx4090 12.5, rtx-pro-6000 50]
    #[arg(long, value_name = "GBIT", requires = "on", value_parser = parse_gigabits)]
    network: Option<f64>,
    /// With offload: GB/s that a machine's CPUs read and write while they update states [default,
    /// of a usual machine with as many GPUs: 5.1 per GPU with PCIe 4.0, 7.6 with PCIe 5.0]
    #[arg(long, value_name = "GB/S", requires = "on", value_parser = parse_gigabytes)]
    cpu_rate: Option<f64>,
    /// With offload: GB/s that a machine reads from its disks [default: 1.25 per GPU with PCIe 4.0,
    /// 6 with PCIe 5.0]
    #[arg(long, value_name = "GB/S", requires = "on", value_parser = parse_gigabytes)]
    disk_read: Option<f64>,
    /// With offload: GB/s that a machine writes to its disks [default: 0.625 per GPU with PCIe 4.0,
    /// 3.25 with PCIe 5.0]
    #[arg(long, value_name = "GB/S", requires = "on", value_parser = parse_gigabytes)]
    disk_write: Option<f64>,
    /// How element-wise operations are computed: fused (compiled), or eager, one kernel each
    #[arg(long, value_name = "HOW", requires = "on", default_value = "fused", value_parser = parse_software)]
    software: Software,
    /// Record the predicted run to a file, for viz to replay
    #[arg(long, value_name = "FILE", requires = "on")]
    record: Option<PathBuf>,
    /// The stage that is recorded
    #[arg(long, value_name = "STAGE", requires = "record", default_value = "zero3")]
    stage: Stage,
    /// The number of steps that are recorded; the first may wait for no update, and the last one
    /// ends its own
    #[arg(long, value_name = "N", requires = "record", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    steps: u32,
}

/// A device on which steps are timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The machines.
    pub cluster: Cluster,
    /// How elements are computed.
    pub software: Software,
}

impl TimeArgs {
    /// True if a rate is given of CPUs or disks that nothing in `placement` uses.
    pub(crate) fn names_unused(&self, placement: &Placement) -> bool {
        let disks = self.disk_read.or(self.disk_write);
        self.cpu_rate.is_some() && placement.optimizer == Place::Device
            || disks.is_some() && !placement.uses_disk()
    }

    /// Returns the device on which steps are timed, in machines of `gpus_per_node`.
    pub(crate) fn timing(&self, gpus_per_node: usize) -> Option<Timing> {
        let usual = Cluster::of(self.on?, gpus_per_node);
        let network = self.network.map_or(usual.network, |gigabits| gigabits * 1e9 / 8.0);
        let [cpu_rate, disk_read, disk_write] =
            [self.cpu_rate, self.disk_read, self.disk_write].map(|rate| Some(rate? * 1e9));
        let machine = Machine {
            cpu_rate,
            disk_read: disk_read.unwrap_or(usual.machine.disk_read),
            disk_write: disk_write.unwrap_or(usual.machine.disk_write),
            ..usual.machine
        };
        Some(Timing { cluster: Cluster { network, machine, ..usual }, software: self.software })
    }

    /// Returns the predicted run of `job` that the flags ask to record, if they ask for one.
    ///
    /// # Errors
    /// Why it cannot be recorded, in words.
    pub(crate) fn recording(&self, job: &Job, timing: &Timing) -> Result<Option<Recording>, String> {
        let Some(path) = &self.record else { return Ok(None) };
        let job = job.with_stage(self.stage);
        let words = |problem: InvalidJob| problem.to_string();
        if !is_recordable(&job, self.steps).map_err(words)? {
            return Err(TOO_LARGE.into());
        }
        let prediction = predict(&job).map_err(words)?;
        let run = play(&job, &prediction, &timing.costs(&job), self.steps).map_err(words)?;
        Ok(Some(Recording { path: path.clone(), run }))
    }
}

const TOO_LARGE: &str = "--record: the run is too large to record: a recording has at most 1,024 GPUs and 20 million \
                         events; take fewer --gpus, --grad-accum or --steps";

/// A predicted run, and the file that is to hold it.
pub(crate) struct Recording {
    path: PathBuf,
    pub(crate) run: PredictedRun,
}

impl Recording {
    /// Writes the file.
    ///
    /// # Errors
    /// [`RecordingError`] names the file.
    pub(crate) fn write(self) -> Result<(), RecordingError> {
        let mut recorder = Recorder::create(&self.path, &self.run.header)?;
        recorder.push(0, &self.run.events)?;
        recorder.finish()?;
        Ok(())
    }

    /// Returns how to watch it.
    pub(crate) fn notice(&self) -> String {
        let fits = match self.run.header.capacity {
            Some(_) => "",
            None => "The recorded run needs more memory than the GPU has.\n",
        };
        format!("\n{fits}To watch it: cargo run -p viz -- replay {}\n", self.path.display())
    }
}

impl Timing {
    /// Returns what the actions of `job` cost.
    pub(crate) fn costs(&self, job: &Job) -> Costs {
        Costs::new(job, self.cluster, self.software, Calibration::ALL_RUNS.of(&self.cluster.gpu))
    }

    /// Returns the time of a step of `job`.
    ///
    /// # Errors
    /// [`InvalidJob`] if no run can have these numbers.
    pub(crate) fn step(&self, job: &Job) -> Result<StepTime, InvalidJob> {
        estimate(job, &self.costs(job))
    }
}

fn parse_gpu(text: &str) -> Result<Gpu, String> {
    let names = || GPUS.map(|gpu| gpu.name).join(", ");
    let found = GPUS.into_iter().find(|gpu| gpu.name.eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("choose one of {}", names()))
}

fn parse_software(text: &str) -> Result<Software, String> {
    text.parse()
}

fn parse_gigabits(text: &str) -> Result<f64, String> {
    rate(text).ok_or_else(|| "give a number of Gbit/s from 0.001 to 1000000, such as 400".into())
}

fn parse_gigabytes(text: &str) -> Result<f64, String> {
    rate(text).ok_or_else(|| "give a number of GB/s from 0.001 to 1000000, such as 10".into())
}

fn rate(text: &str) -> Option<f64> {
    text.parse().ok().filter(|rate| (0.001..=1e6).contains(rate))
}
