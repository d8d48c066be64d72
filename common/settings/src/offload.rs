//! Offload: model states and activations that rest beyond the device (Ren et al., "ZeRO-Offload",
//! 2021; Rajbhandari et al., "ZeRO-Infinity", 2021): what the flags mean for a run.

mod directory;

use crate::cli::{TrainArgs, place_word};
use crate::error::{Failure, Result};
use crate::hardware::Hardware;
use crate::link::LinkChoice;
use events::Place;
use model::Checkpointing;
use std::path::PathBuf;

/// What rests where, and the ways between the places.
#[derive(Clone, Debug, PartialEq)]
pub struct Offload {
    /// Where master weights, momentum and variance rest.
    pub optimizer: Place,
    /// Where shards of parameters rest.
    pub parameters: Place,
    /// Where the inputs of blocks rest from forward to backward.
    pub activations: Place,
    /// Staging buffers of each kind, if a flag or a file says how many.
    pub buffers: Option<usize>,
    /// The directory for what rests on disk; none if nothing does.
    pub directory: Option<PathBuf>,
    /// Main memory of each rank, in bytes.
    pub host_memory: Option<u64>,
    /// The simulated way between device and main memory, if any.
    pub host_link: Option<LinkChoice>,
    /// The simulated way between main memory and disk, if any.
    pub disk_link: Option<LinkChoice>,
}

impl Offload {
    /// Checks what `args` ask for, of ranks on `hardware`. Creates nothing: see [`Offload::probe`].
    pub(crate) fn new(args: &TrainArgs, hardware: &Hardware) -> Result<Self> {
        let flags = &args.offload;
        let mut offload = Offload {
            optimizer: flags.offload_optimizer,
            parameters: flags.offload_parameters,
            activations: flags.offload_activations,
            buffers: flags.offload_buffers,
            directory: None,
            host_memory: args.memory.host_memory,
            host_link: flags.host_link.clone(),
            disk_link: flags.disk_link.clone(),
        };
        offload.check(args)?;
        offload.check_links(hardware)?;
        if offload.uses_disk() {
            let given = flags.offload_dir.clone();
            offload.directory = Some(given.map_or_else(directory::usual, Ok)?);
        }
        Ok(offload)
    }

    /// True if anything rests beyond the device.
    pub fn any(&self) -> bool {
        self.places().iter().any(|(_, place)| *place != Place::Device)
    }

    /// True if optimizer states or parameters rest beyond the device.
    pub fn any_states(&self) -> bool {
        self.optimizer != Place::Device || self.parameters != Place::Device
    }

    /// True if anything rests on disk.
    pub fn uses_disk(&self) -> bool {
        self.places().iter().any(|(_, place)| *place == Place::Disk)
    }

    /// Returns the flags that say where something rests, with the place.
    pub fn places(&self) -> [(&'static str, Place); 3] {
        [
            ("--offload-optimizer", self.optimizer),
            ("--offload-parameters", self.parameters),
            ("--offload-activations", self.activations),
        ]
    }

    /// Creates the directory for what rests on disk, if there is none, and checks that files can be
    /// written there.
    ///
    /// # Errors
    /// A usage failure that names the directory.
    pub fn probe(&self) -> Result<()> {
        self.directory.as_deref().map_or(Ok(()), directory::probe)
    }

    fn check(&self, args: &TrainArgs) -> Result<()> {
        if self.activations != Place::Device && args.memory.checkpoint_activations != Checkpointing::Block {
            return Err(Failure::usage(format!(
                "--offload-activations {} moves the one tensor that a checkpointed block keeps for backward, its input\n\
                 Add --checkpoint-activations block.",
                place_word(self.activations)
            )));
        }
        if let Some(directory) = args.given.typed("offload_dir").filter(|_| !self.uses_disk()) {
            return Err(Failure::usage(format!(
                "--offload-dir {directory}: nothing rests on disk\n\
                 Add --offload-optimizer disk, --offload-parameters disk or --offload-activations disk."
            )));
        }
        if let Some(count) = args.given.typed("offload_buffers").filter(|_| !self.any_states()) {
            return Err(Failure::usage(format!(
                "--offload-buffers {count}: neither optimizer states nor parameters travel\n\
                 Add --offload-optimizer cpu or --offload-parameters cpu, or disk in place of cpu."
            )));
        }
        Ok(())
    }

    fn check_links(&self, hardware: &Hardware) -> Result<()> {
        let travels = "Add --offload-optimizer, --offload-parameters or --offload-activations";
        let links = [
            ("--host-link", &self.host_link, "device and main memory", self.any(), "cpu or disk"),
            ("--disk-link", &self.disk_link, "main memory and disk", self.uses_disk(), "disk"),
        ];
        for (flag, _, between, used, place) in links.into_iter().filter(|(_, link, ..)| link.is_some()) {
            if matches!(hardware, Hardware::Gpus { .. }) {
                return Err(Failure::usage(format!(
                    "{flag} simulates the way between {between}, and ranks on GPUs have a real one\n\
                     Leave it out, or run with --device cpu."
                )));
            }
            if !used {
                return Err(Failure::usage(format!(
                    "{flag}: nothing travels between {between}\n{travels} {place}, or leave {flag} out."
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
