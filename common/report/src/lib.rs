//! Measurements of a run next to predictions: the JSON report, the closing tables, the diagnosis of
//! a step's time with speedups, and remedies for memory.

mod account;
mod compared;
mod diagnosis;
mod hardware_rows;
mod kernel_shares;
mod kernels;
mod measured;
pub mod memory;
#[allow(clippy::module_inception)]
mod report;
mod rows;
#[cfg(test)]
mod samples;
mod speedups;
mod tables;

pub use account::Account;
pub use compared::Predicted;
pub use diagnosis::diagnosis;
pub use hardware_rows::GpuRow;
pub use kernel_shares::KernelShare;
pub use kernels::{KernelRow, LimitRow, UNTIMED};
pub use measured::{Measured, Peaks};
pub use report::{Report, SCHEMA, Trained};
pub use rows::{
    Clocks, EvaluationRow, LinkRow, MemoryRow, ModelRow, NeighbourRow, OperationTime, StepRow, Throughput,
    TimeRow, Times, TotalRow, TrafficRow, TransferRow,
};
pub use speedups::{Speedup, speedups};
pub use tables::closing;
