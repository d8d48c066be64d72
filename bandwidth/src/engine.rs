//! What connects the ranks.

use clap::ValueEnum;
use collectives::local::Algorithm;
use settings::labels;

/// What connects the ranks.
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
    /// Returns how a simulation of it moves data.
    pub(crate) fn algorithm(self) -> Algorithm {
        if self == Engine::Ring { Algorithm::Ring } else { Algorithm::Direct }
    }

    /// Its name in tables.
    pub(crate) fn label(self) -> String {
        labels::word(&self)
    }
}
