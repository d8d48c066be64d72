//! Offload: model states and activations that are stored in main memory or on disk (Ren et al.,
//! "ZeRO-Offload", 2021; Rajbhandari et al., "ZeRO-Infinity", 2021), and the flags for it.

mod directory;

use crate::error::{Failure, Result};
use crate::given::Given;
use crate::link::{self, LinkChoice};
use crate::size::whole;
use clap::Args;
use events::Place;
use model::Checkpointing;
pub use prediction::placement::MOST_BUFFERS;
use prediction::placement::{NOWHERE, Placement, place_parser, place_word};
use std::path::PathBuf;

/// Where states are stored, and the links between the places.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Offload")]
pub struct OffloadArgs {
    /// Where master weights, momentum and variance are stored: in main memory (cpu) or on disk. The
    /// CPU updates them there.
    #[arg(id = "offload_optimizer", long = "offload-optimizer", default_value = NOWHERE, value_parser = place_parser(), value_name = "WHERE")]
    pub optimizer: Place,
    /// ZeRO-3: where a rank's shards of parameters are stored between gathers.
    #[arg(id = "offload_parameters", long = "offload-parameters", default_value = NOWHERE, value_parser = place_parser(), value_name = "WHERE")]
    pub parameters: Place,
    /// Where the inputs of blocks are stored from forward to backward; needs
    /// --checkpoint-activations block.
    #[arg(id = "offload_activations", long = "offload-activations", default_value = NOWHERE, value_parser = place_parser(), value_name = "WHERE")]
    pub activations: Place,
    /// Directory for the files of states on disk; it is created if it does not exist. [default: the
    /// system's for temporary files or the current one, whichever is not in main memory]
    #[arg(id = "offload_dir", long = "offload-dir", value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Number of staging buffers of each kind for states and parameters, from 1 to 16. [default: 3;
    /// for an update of optimizer states on disk the number of its pieces minus 3, at least 3 and
    /// at most 6]
    #[arg(id = "offload_buffers", long = "offload-buffers", value_name = "N", value_parser = whole::<usize>(1..=MOST_BUFFERS))]
    pub buffers: Option<usize>,
    /// Simulate the link between device and main memory, on the CPU: pcie3, pcie4, pcie5,
    /// nvlink-c2c, or figures such as 10us,12GB/s.
    #[arg(long, value_parser = link::parse_host, value_name = "NAME|LATENCY,BANDWIDTH")]
    pub host_link: Option<LinkChoice>,
    /// Simulate the link between main memory and disk, on the CPU, with figures such as
    /// 100us,3GB/s.
    #[arg(long, value_parser = link::parse_disk, value_name = "LATENCY,BANDWIDTH")]
    pub disk_link: Option<LinkChoice>,
}

impl OffloadArgs {
    /// Returns these settings if they are compatible with the `given` flags, with `checkpointing`,
    /// and with the ranks' devices. They include a directory only if anything is stored on disk.
    /// Creates nothing: see [`OffloadArgs::probe`].
    pub(crate) fn checked(self, given: &Given, checkpointing: Checkpointing, on_gpus: bool) -> Result<Self> {
        self.check(given, checkpointing)?;
        self.check_links(on_gpus)?;
        let directory = match (self.placement().uses_disk(), self.directory) {
            (false, _) => None,
            (true, None) => Some(directory::usual()?),
            (true, given) => given,
        };
        Ok(OffloadArgs { directory, ..self })
    }

    /// Returns where states are stored, and through how many buffers they pass, in the form of
    /// predictions.
    pub fn placement(&self) -> Placement {
        Placement {
            optimizer: self.optimizer,
            parameters: self.parameters,
            activations: self.activations,
            buffers: self.buffers.map(|count| count as u64),
            ..Placement::default()
        }
    }

    /// True if the directory is the default one.
    pub fn has_usual_directory(&self) -> bool {
        self.directory.is_some() && self.directory == directory::usual().ok()
    }

    /// Returns a warning if the directory for states on disk is in main memory; else `None`.
    pub(crate) fn directory_warning(&self) -> Option<String> {
        let directory = self.directory.as_deref().filter(|path| directory::is_in_memory(path))?;
        Some(format!(
            "{} is in main memory: states on disk take room there that no prediction counts",
            directory.display()
        ))
    }

    /// Creates the directory for states on disk if it does not exist, and checks that files can be
    /// written there.
    ///
    /// # Errors
    /// A usage failure that names the directory.
    pub fn probe(&self) -> Result<()> {
        self.directory.as_deref().map_or(Ok(()), directory::probe)
    }

    fn check(&self, given: &Given, checkpointing: Checkpointing) -> Result<()> {
        if self.activations != Place::Device && checkpointing != Checkpointing::Block {
            return Err(Failure::usage(format!(
                "--offload-activations {} moves the one tensor that a checkpointed block keeps for backward, its input\n\
                 Add --checkpoint-activations block.",
                place_word(self.activations)
            )));
        }
        if let Some(directory) = given.typed("offload_dir").filter(|_| !self.placement().uses_disk()) {
            return Err(Failure::usage(format!(
                "--offload-dir {directory}: nothing is stored on disk\n\
                 Add --offload-optimizer disk, --offload-activations disk or, where parameters are sharded, \
                 --offload-parameters disk."
            )));
        }
        if let Some(count) = given.typed("offload_buffers").filter(|_| !self.placement().any_states()) {
            return Err(Failure::usage(format!(
                "--offload-buffers {count}: neither optimizer states nor parameters are offloaded\n\
                 Add --offload-optimizer cpu or, where parameters are sharded, --offload-parameters cpu; or disk in \
                 place of cpu."
            )));
        }
        Ok(())
    }

    fn check_links(&self, on_gpus: bool) -> Result<()> {
        let links = [
            ("--host-link", &self.host_link, "device and main memory", self.placement().any(), "cpu or disk"),
            ("--disk-link", &self.disk_link, "main memory and disk", self.placement().uses_disk(), "disk"),
        ];
        for (flag, _, between, used, place) in links.into_iter().filter(|(_, link, ..)| link.is_some()) {
            if on_gpus {
                return Err(Failure::usage(format!(
                    "{flag} simulates the link between {between}, and ranks on GPUs have a real one\n\
                     Leave it out, or run with --device cpu."
                )));
            }
            if !used {
                return Err(Failure::usage(format!(
                    "{flag}: nothing is transferred between {between}\n\
                     Add --offload-optimizer {place}, --offload-activations {place} or, where parameters are sharded, \
                     --offload-parameters {place}.\nOr leave {flag} out."
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
