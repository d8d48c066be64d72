//! The devices that ranks compute on.

use crate::cli::{CollectivesChoice, DeviceChoice, TrainArgs};
use crate::error::{Failure, Result};
use crate::machine::cores;
use crate::size::human;
use collectives::nccl;
use device::cuda::kernels::PEERS;
use device::cuda::{Gpu, GpuInfo, Library, Operands, Options, list};
use device::{Device, DeviceError, Ledger};
use events::say::counted;
use prediction::Algorithm;
use sharding::Precision;
use std::sync::Arc;

/// The devices of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hardware {
    /// The CPU.
    Cpu(CpuReason),
    /// GPUs; rank r computes on GPU r modulo their number.
    Gpus {
        /// At least one. All compute in the run's precision.
        gpus: Vec<GpuInfo>,
        /// Products of f32 matrices round their operands to TF32.
        tf32: bool,
    },
}

/// The reason why ranks compute on the CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuReason {
    /// The flags ask for it.
    Asked,
    /// There is no driver.
    NoDriver,
    /// Another part that GPUs need is missing, or no GPU supports the run's types.
    Missing(String),
}

impl Hardware {
    /// Chooses the devices that `args` ask for, among those that are present.
    ///
    /// # Errors
    /// A usage failure that names what `--device cuda` lacks, or flags that exclude each other.
    pub fn choose(args: &TrainArgs, precision: Precision) -> Result<Self> {
        // With several processes, this has been checked before.
        if args.collectives == CollectivesChoice::Nccl && args.on_this_machine.is_none() {
            nccl::allow_sharing();
        }
        let hardware = match args.device {
            DeviceChoice::Cpu => Hardware::Cpu(CpuReason::Asked),
            DeviceChoice::Auto if !Library::Driver.load() => Hardware::Cpu(CpuReason::NoDriver),
            choice => match gpus_for(precision) {
                Ok(gpus) => Hardware::Gpus { gpus, tf32: args.tf32 },
                Err(obstacle) if choice == DeviceChoice::Cuda => return Err(obstacle.refusal()),
                Err(obstacle) => Hardware::Cpu(CpuReason::Missing(obstacle.to_string())),
            },
        };
        hardware.check(args)?;
        Ok(hardware)
    }

    fn check(&self, args: &TrainArgs) -> Result<()> {
        if let Hardware::Cpu(_) = self {
            let exact = "--tf32 is for GPUs: on the CPU products of f32 are exact to f32";
            return if args.tf32 { Err(Failure::usage(exact)) } else { Ok(()) };
        }
        if args.algorithm == Algorithm::Ring {
            return Err(Failure::usage(
                "--algorithm ring moves main memory only: leave it out, or run with --device cpu",
            ));
        }
        if args.gpus > PEERS && args.collectives != CollectivesChoice::Nccl {
            return Err(Failure::usage(format!(
                "{} ranks: at most {PEERS} on GPUs, as threads of one process (--gpus)\n\
                 Start a process for each GPU with --collectives nccl, or run with --device cpu.",
                args.gpus
            )));
        }
        Ok(())
    }

    /// Returns the version of NCCL that connects the ranks; `None` if `args` do not ask for NCCL.
    ///
    /// # Errors
    /// A usage failure with the obstacle.
    pub fn nccl(&self, args: &TrainArgs) -> Result<Option<nccl::Version>> {
        // On GPUs NCCL is chosen automatically, before a configuration file asks for the CPU.
        let by_itself = args.given.typed("collectives").is_none();
        if args.collectives != CollectivesChoice::Nccl || by_itself && matches!(self, Hardware::Cpu(_)) {
            return Ok(None);
        }
        let Hardware::Gpus { gpus, .. } = self else {
            return Err(Failure::usage(
                "--collectives nccl connects GPUs, and the ranks would compute on the CPU\n\
                 The subcommand doctor shows which GPUs are here; leave --collectives out to run without.",
            ));
        };
        if args.link.is_some() {
            return Err(Failure::usage(
                "--link simulates a link between ranks that share memory: NCCL has its own",
            ));
        }
        let version = nccl::version().map_err(|error| {
            Failure::usage(format!("--collectives nccl: {error}\nThe subcommand doctor shows what is here."))
        })?;
        let (ranks, one_each) = match args.on_this_machine {
            Some(processes) => (processes, one_each(gpus.len(), processes)),
            None => (args.gpus, args.gpus <= gpus.len()),
        };
        if !one_each {
            if !version.shares_gpus() {
                let sharing = format!("{ranks} ranks would share {}", counted(gpus.len(), "GPU", "GPUs"));
                return Err(Failure::usage(nccl::SharedGpu { sharing, version }.to_string()));
            }
            nccl::prepare_shared_gpus();
        }
        Ok(Some(version))
    }

    /// Keeps only the GPU on which the process with this number on the machine computes.
    pub fn of_process(self, number: usize) -> Self {
        match self {
            Hardware::Gpus { gpus, tf32 } if !gpus.is_empty() => {
                Hardware::Gpus { gpus: vec![gpus[number % gpus.len()].clone()], tf32 }
            }
            hardware => hardware,
        }
    }

    /// True if the ranks compute on GPUs.
    pub fn is_gpu(&self) -> bool {
        matches!(self, Hardware::Gpus { .. })
    }

    /// Describes the first GPU; `None` on the CPU.
    pub fn first_gpu(&self) -> Option<String> {
        match self {
            Hardware::Cpu(_) => None,
            Hardware::Gpus { gpus, .. } => gpus.first().map(named),
        }
    }

    /// Returns the part of the hardware that must be the same in all processes.
    pub fn kind(&self) -> Self {
        match self {
            Hardware::Cpu(_) => Hardware::Cpu(CpuReason::Asked),
            Hardware::Gpus { tf32, .. } => Hardware::Gpus { gpus: Vec::new(), tf32: *tf32 },
        }
    }

    /// Returns the GFLOP/s that the data sheets promise for the GPUs of `ranks` ranks; `None` on
    /// the CPU, and if a data sheet is not known. If the ranks are processes, each is assumed to
    /// have a GPU like this process's.
    pub(crate) fn peak_gflops(&self, ranks: usize, are_processes: bool, precision: Precision) -> Option<f64> {
        let Hardware::Gpus { gpus, tf32 } = self else { return None };
        let operands = match (precision.multiplies_16_bits(), tf32) {
            (true, _) => Operands::SixteenBit,
            (false, true) => Operands::Tf32,
            (false, false) => Operands::F32,
        };
        let used = if are_processes { ranks } else { ranks.min(gpus.len()) };
        let peaks = gpus.iter().cycle().take(used).map(|gpu| gpu.peak(operands));
        Some(1e3 * peaks.sum::<Option<f64>>()?)
    }

    /// Returns the device's name, for reports.
    pub fn name(&self) -> &str {
        match self {
            Hardware::Cpu(_) => "CPU",
            Hardware::Gpus { gpus, .. } => gpus.first().map_or("GPU", |gpu| &gpu.name),
        }
    }

    /// Returns the line, without a full stop, that says what `ranks` ranks compute on.
    pub fn line(&self, ranks: usize, threads: usize, nccl: Option<nccl::Version>) -> String {
        match self {
            Hardware::Cpu(_) => {
                let threads = self::threads(threads);
                format!("{} are threads on this machine's {} CPU cores, {threads}", self.the_ranks(), cores())
            }
            Hardware::Gpus { gpus, .. } => on_gpus(gpus, ranks, nccl),
        }
    }

    /// Returns the beginning of a sentence about the ranks. It says why they use no GPU, unless the
    /// flags ask for that.
    pub fn the_ranks(&self) -> String {
        match self {
            Hardware::Gpus { .. } | Hardware::Cpu(CpuReason::Asked) => "The ranks".into(),
            Hardware::Cpu(CpuReason::NoDriver) => "No CUDA GPU here: the ranks".into(),
            Hardware::Cpu(CpuReason::Missing(what)) => format!("No CUDA GPU is used: {what}.\nThe ranks"),
        }
    }

    /// Opens the GPUs of `ranks` ranks; none on the CPU. Unless NCCL connects them, GPUs copy among
    /// themselves and must reach each other's memory.
    ///
    /// # Errors
    /// A failed run with the driver's or the compiler's message.
    pub fn open(&self, ranks: usize, nccl: Option<nccl::Version>) -> Result<Vec<Arc<Gpu>>> {
        let Hardware::Gpus { gpus, .. } = self else { return Ok(Vec::new()) };
        let open = || {
            let opened: Vec<_> =
                gpus.iter().take(ranks).map(|gpu| Gpu::open(gpu.ordinal)).collect::<device::Result<_>>()?;
            if nccl.is_none() {
                Gpu::connect(&opened)?;
            }
            Ok(opened)
        };
        open().map_err(|error: DeviceError| {
            Failure::run(format!(
                "{error}\nThe subcommand doctor shows what is present; --device cpu runs without a GPU."
            ))
        })
    }

    /// Returns the device of rank `rank`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn device(
        &self,
        opened: &[Arc<Gpu>],
        rank: usize,
        ledger: Ledger,
        threads: usize,
    ) -> device::Result<Device> {
        match self {
            Hardware::Gpus { tf32, .. } if !opened.is_empty() => {
                let options = Options { tf32: *tf32, threads, ..Options::default() };
                Device::cuda(ledger, opened[rank % opened.len()].clone(), options)
            }
            _ => Ok(Device::cpu(ledger, threads)),
        }
    }
}

/// Describes the threads per rank.
pub fn threads(count: usize) -> String {
    if count == 1 { "1 thread each".into() } else { format!("{count} threads each") }
}

/// Returns the GPUs that the kernels support. Fails if a library that they need is missing.
pub fn gpus() -> device::Result<Vec<GpuInfo>> {
    let gpus = list()?;
    Library::ALL.iter().try_for_each(|library| library.require())?;
    let able: Vec<GpuInfo> = gpus.iter().filter(|gpu| gpu.check().is_ok()).cloned().collect();
    if able.is_empty() {
        gpus.iter().try_for_each(GpuInfo::check)?;
        return Err(DeviceError::Cuda {
            call: "cuDeviceGetCount",
            reason: "the driver reports no GPU".into(),
        });
    }
    Ok(able)
}

/// The reason why ranks cannot compute on GPUs.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Obstacle {
    /// A part that GPUs need is missing, or they are too old.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The run computes in bf16, which no GPU supports.
    #[error("{} has no bf16 (compute capability {}.{}; it came with 8.0)", .0.name, .0.capability.0, .0.capability.1)]
    NoBf16(GpuInfo),
}

impl Obstacle {
    /// Returns the error of a run that insists on GPUs.
    fn refusal(&self) -> Failure {
        Failure::usage(match self {
            Obstacle::Device(error) => format!(
                "--device cuda: {error}\n\
                 The subcommand doctor lists what CUDA needs and what is present.\n\
                 Run on the CPU with --device cpu: ranks are threads then."
            ),
            Obstacle::NoBf16(_) => format!("{self}\nChoose --precision fp16, or --device cpu."),
        })
    }
}

/// Returns those of [`gpus`] that compute in `precision`. Other GPUs are not used.
///
/// # Errors
/// The obstacle, if there is no such GPU.
pub fn gpus_for(precision: Precision) -> std::result::Result<Vec<GpuInfo>, Obstacle> {
    let (able, mut without): (Vec<_>, Vec<_>) =
        gpus()?.into_iter().partition(|gpu| gpu.has_bf16() || !precision.has_bf16());
    if able.is_empty() { Err(Obstacle::NoBf16(without.swap_remove(0))) } else { Ok(able) }
}

/// True if each of a machine's `processes` has a GPU of its own. This process sees `seen` GPUs; a
/// launcher may show each process only its own. NCCL's setup detects GPUs that are really shared.
pub fn one_each(seen: usize, processes: usize) -> bool {
    let of_the_machine = || std::fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, |gpus| gpus.count());
    have_one_each(seen, processes, of_the_machine)
}

fn have_one_each(seen: usize, processes: usize, of_the_machine: impl Fn() -> usize) -> bool {
    processes <= seen || seen == 1 && processes <= of_the_machine()
}

fn on_gpus(gpus: &[GpuInfo], ranks: usize, nccl: Option<nccl::Version>) -> String {
    let used = gpus.len().min(ranks);
    let first = named(&gpus[0]);
    let connected =
        |copies: &str| nccl.map_or(copies.into(), |version| format!("NCCL {version} connects them"));
    match (used, ranks) {
        (1, 1) => format!("One rank on {first}"),
        (1, _) => {
            format!("All {ranks} ranks share {first}: {}", connected("collectives copy within its memory"))
        }
        _ if used == ranks => {
            format!(
                "One rank per GPU on {used} GPUs, {first} first: {}",
                connected("collectives copy between them")
            )
        }
        _ => format!(
            "{ranks} ranks share {used} GPUs, {first} first: {}",
            connected("collectives copy within and between them")
        ),
    }
}

/// `GPU 0, NAME (80.0 GB)`.
fn named(gpu: &GpuInfo) -> String {
    format!("GPU {}, {} ({})", gpu.ordinal, gpu.name, human(gpu.memory))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(count: usize) -> Vec<GpuInfo> {
        let gpu = |ordinal| GpuInfo {
            ordinal,
            name: "A GPU".into(),
            capability: (9, 0),
            multiprocessors: 132,
            memory: 8_000_000_000,
            uuid: [0; 16],
        };
        (0..count).map(gpu).collect()
    }

    #[test]
    fn a_gpu_that_is_seen_alone_is_a_processs_own_where_there_are_enough() {
        let one_each = |seen, machine| have_one_each(seen, 4, || machine);
        assert!(one_each(4, 0) && one_each(1, 4) && one_each(8, 8));
        assert!(!one_each(1, 1) && !one_each(1, 0) && !one_each(2, 8));
    }

    #[test]
    fn the_first_lines_say_who_shares_what() {
        let words = |count, ranks| on_gpus(&gpus(count), ranks, None);
        assert!(words(1, 4).starts_with("All 4 ranks share GPU 0, A GPU (8.00 GB): collectives copy"));
        assert!(words(8, 4).starts_with("One rank per GPU on 4 GPUs"));
        assert!(words(2, 4).starts_with("4 ranks share 2 GPUs"));
    }

    #[test]
    fn the_first_lines_say_so_where_no_gpu_is_used() {
        let words = |why| Hardware::Cpu(why).line(4, 1, None);
        assert!(words(CpuReason::Asked).starts_with("The ranks are threads on this machine's "));
        assert!(
            words(CpuReason::NoDriver)
                .starts_with("No CUDA GPU here: the ranks are threads on this machine's ")
        );
        let lacks = words(CpuReason::Missing("libnvrtc was not found".into()));
        assert!(lacks.starts_with("No CUDA GPU is used: libnvrtc was not found.\nThe ranks are threads"));
    }
}
