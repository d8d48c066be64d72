//! Rows of the report about GPU memory that the ledger does not count.

use device::Device;
use events::say::grouped;
use serde::{Deserialize, Serialize};
use settings::size::human;
use shell::table::{Format, Table};

/// GPU memory that a rank took from the driver, next to the bytes that its buffers requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRow {
    /// The rank.
    pub rank: usize,
    /// The GPU's number.
    pub gpu: usize,
    /// The ledger's peak: the bytes that buffers requested.
    pub requested_bytes: u64,
    /// Peak of the bytes that the rank took from the driver.
    pub taken_bytes: u64,
    /// The part of `taken_bytes` outside buffers: workspaces of libraries, partial results, tables.
    pub workspace_bytes: u64,
    /// Bytes in use on the whole GPU after the last step, as the driver counts them.
    pub in_use_bytes: u64,
    /// The part of `in_use_bytes` that the ranks of this process took.
    pub of_ranks_bytes: u64,
    /// The part of `in_use_bytes` that NCCL took when it created its communicators: the world's and
    /// those split from it, of all ranks on the GPU, including other processes. 0 without NCCL.
    #[serde(default)]
    pub nccl_bytes: u64,
    /// Kernels, copies and fills queued over the run.
    pub launches: u64,
    /// Number of times that the host waited for the rank's streams.
    pub waits: u64,
}

impl GpuRow {
    /// Returns the row of `rank`; `None` if it does not compute on a GPU.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn of(rank: usize, device: &Device) -> device::Result<Option<Self>> {
        let Some(runtime) = device.gpu() else { return Ok(None) };
        let usage = runtime.usage()?;
        Ok(Some(GpuRow {
            rank,
            gpu: runtime.gpu().info().ordinal,
            requested_bytes: device.ledger().peak_total(events::Place::Device),
            taken_bytes: usage.taken,
            workspace_bytes: usage.workspaces,
            in_use_bytes: usage.in_use,
            of_ranks_bytes: usage.of_ranks,
            nccl_bytes: usage.communicators,
            launches: usage.queued,
            waits: usage.waits,
        }))
    }

    /// Returns the bytes taken for buffers in excess of their requests at their peak: rounding, and
    /// freed blocks that wait for a request of their size.
    pub fn kept_bytes(&self) -> u64 {
        self.taken_bytes.saturating_sub(self.workspace_bytes + self.requested_bytes)
    }

    /// Returns the bytes in use on the GPU that belong to neither a rank nor a communicator:
    /// contexts, code, other programs.
    pub fn beside_bytes(&self) -> u64 {
        self.in_use_bytes.saturating_sub(self.of_ranks_bytes + self.nccl_bytes)
    }
}

/// Renders the table of the memory that the driver gave, for the rank that took most; nothing on
/// the CPU.
pub(crate) fn taken(rows: &[GpuRow]) -> String {
    let Some(row) = rows.iter().rev().max_by_key(|row| row.taken_bytes) else { return String::new() };
    let mut table = Table::numbers(format!("taken on GPU {}, rank {}", row.gpu, row.rank), ["bytes", ""]);
    let mut add = |name: &str, bytes: u64| table.row(name, [grouped(bytes), human(bytes)]);
    add("requested at any one time", row.requested_bytes);
    add("rounding, blocks kept", row.kept_bytes());
    add("workspaces", row.workspace_bytes);
    add("= from the driver", row.taken_bytes);
    if row.nccl_bytes > 0 {
        add("NCCL, of all ranks there", row.nccl_bytes);
    }
    add("contexts, code, others", row.beside_bytes());
    format!("\n{}", table.render(Format::Terminal))
}
