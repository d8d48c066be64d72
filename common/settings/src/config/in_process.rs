//! The configuration of one process of a job.

use super::Config;
use crate::error::{Failure, Result};
use crate::process::Process;

impl Config {
    /// Returns the configuration of this process: outputs and the screen stay with rank 0.
    ///
    /// # Errors
    /// A usage failure if a file asks for another number of ranks than there are processes.
    pub fn in_process(mut self, process: Option<Process>) -> Result<Self> {
        let Some(Process { placement, .. }) = &process else { return Ok(self) };
        self.hardware = self.hardware.of_process(placement.local_rank.unwrap_or(placement.rank));
        if self.world_size != placement.world_size {
            return Err(Failure::usage(format!(
                "{}: num_processes {}, but {} started {} processes, one rank each",
                self.findings.file, self.world_size, placement.launcher, placement.world_size
            )));
        }
        if placement.rank > 0 {
            (self.screen, self.record, self.report, self.save) = (None, None, None, None);
        }
        self.process = process;
        Ok(self)
    }

    /// True if this process prints and writes for all ranks.
    pub fn leads(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.placement.rank == 0)
    }
}
