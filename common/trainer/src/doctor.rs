//! Reports which of the libraries and devices that GPU runs need are present, and where to get the
//! missing ones.

use collectives::nccl;
use device::cuda::kernels::PEERS;
use device::cuda::{GpuInfo, Library, list};
use settings::hardware::{Hardware, gpus};
use settings::launcher;
use settings::machine::{self, MainMemory, SwapSpace, cores};
use settings::size::human;
use settings::{Failure, Result};
use shell::table::{Format, Table};

/// Prints what this machine has. Given a number of ranks, fails unless they would run on its GPUs.
///
/// # Errors
/// A failed run that says what is missing.
pub(crate) fn examine(gpus: Option<usize>) -> Result<()> {
    nccl::allow_sharing_among_processes();
    events::say!(
        "{}\n{}{}{}",
        libraries().render(Format::Terminal),
        devices(),
        between_gpus(),
        launcher_and_memory()
    );
    match gpus {
        Some(ranks) => check_ranks(ranks),
        None => Ok(()),
    }
}

fn libraries() -> Table {
    let mut table = Table::prose(["library", "version", "file, or where it comes from"]);
    for library in Library::ALL.into_iter().chain([Library::Nccl]) {
        let version =
            library.version().unwrap_or_else(|| if library.load() { "?" } else { "missing" }.into());
        let place = match library.path() {
            Some(path) if library.load() => path.display().to_string(),
            _ => library.remedy().into(),
        };
        table.row(library.label(), [version, place]);
    }
    table
}

fn devices() -> String {
    match list() {
        Ok(gpus) if gpus.is_empty() => "The driver reports no GPU.\n".into(),
        Ok(gpus) => gpus.iter().map(|gpu| format!("{}\n", words(gpu))).collect(),
        Err(error) => format!("Cannot query GPUs: {error}.\n"),
    }
}

/// Describes what could connect ranks on GPUs.
fn between_gpus() -> String {
    match nccl::version() {
        Ok(version) if version.shares_gpus() => {
            format!("NCCL {version} connects GPUs, also across processes; ranks may share a GPU.\n")
        }
        Ok(version) => format!(
            "NCCL {version} connects GPUs, also across processes, with one rank per GPU; sharing a GPU needs NCCL 2.30.\n"
        ),
        Err(error) => format!("No NCCL: ranks on GPUs are threads of one process ({error}).\n"),
    }
}

fn words(gpu: &GpuInfo) -> String {
    let (major, minor) = gpu.capability;
    let bf16 = match gpu.check() {
        Err(_) => "too old: 7.5 is the oldest supported",
        Ok(()) if gpu.has_bf16() => "bf16",
        Ok(()) => "no bf16",
    };
    format!(
        "GPU {}: {}, {} of memory, compute capability {major}.{minor}, {bf16}",
        gpu.ordinal,
        gpu.name,
        human(gpu.memory)
    )
}

/// Describes the CPU, main memory, and the variables that a launcher has set.
fn launcher_and_memory() -> String {
    let set = launcher::names().filter_map(|name| Some(format!("{name}={}", std::env::var(name).ok()?)));
    let set: Vec<String> = set.collect();
    let launcher = match set.as_slice() {
        [] => "No launcher's variables are set: all ranks run in one process.".into(),
        set => format!("A launcher's variables are set: {}.", set.join(" ")),
    };
    format!("CPU: {} cores.\n{}{launcher}\n", cores(), memory())
}

/// Describes the main memory that ranks share here.
fn memory() -> String {
    match machine::memory(SwapSpace::Included) {
        None => String::new(),
        Some(MainMemory { bytes, limit: None }) => {
            format!("Main memory, with swap space: {}.\n", human(bytes))
        }
        Some(MainMemory { bytes, limit: Some(file) }) => {
            format!("Main memory, with swap space: {} allows {}.\n", file.display(), human(bytes))
        }
    }
}

/// Checks that `ranks` ranks would run on the GPUs: opens the GPUs that they would use, and
/// compiles their kernels.
fn check_ranks(ranks: usize) -> Result<()> {
    let refused =
        |reason: String| Failure::run(format!("{ranks} ranks would not run on GPUs here: {reason}"));
    if ranks > PEERS {
        return Err(refused(format!("at most {PEERS} do, as threads of one process")));
    }
    let gpus = gpus().map_err(|error| refused(error.to_string()))?;
    let hardware = Hardware::Gpus { gpus, tf32: false };
    for gpu in hardware.open(ranks, None).map_err(|failure| refused(failure.to_string()))? {
        let (free, total) = gpu.memory().map_err(|error| refused(error.to_string()))?;
        let number = gpu.info().ordinal;
        events::say!("GPU {number} opened, its kernels compiled: {} of {} free.", human(free), human(total));
    }
    events::say!("{}.", hardware.line(ranks, 1, None));
    Ok(())
}
