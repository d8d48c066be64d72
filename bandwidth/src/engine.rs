//! The engines that connect ranks.

use clap::ValueEnum;
use collectives::local::Algorithm;
use settings::labels;

/// The engine that connects the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Engine {
    /// Threads that share memory.
    Local,
    /// Threads that share memory, neighbour to neighbour.
    Ring,
    /// TCP: between processes, or threads of one.
    Tcp,
    /// MPI: between the processes of an MPI job.
    Mpi,
    /// NCCL: between GPUs, of threads or of processes.
    Nccl,
}

impl Engine {
    /// Returns the algorithm by which the engine moves data.
    pub(crate) fn algorithm(self) -> Algorithm {
        if self == Engine::Ring { Algorithm::Ring } else { Algorithm::Direct }
    }

    /// Returns its name in tables.
    pub(crate) fn label(self) -> String {
        labels::word(&self)
    }
}
