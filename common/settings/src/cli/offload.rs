//! The flags of what rests beyond the device.

use crate::link::{self, LinkChoice};
use crate::size::whole;
use clap::Args;
use events::Place;
use planner::placement::{NOWHERE, place_parser};
use std::path::PathBuf;

/// Most staging buffers of each kind.
pub const MOST_BUFFERS: u64 = 16;

/// Flags about what rests beyond the device.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Offload")]
pub struct OffloadArgs {
    /// Where master weights, momentum and variance rest: in main memory (cpu) or on disk. The CPU
    /// updates them there.
    #[arg(long, default_value = NOWHERE, value_parser = place_parser(), value_name = "WHERE")]
    pub offload_optimizer: Place,
    /// ZeRO-3: where a rank's shards of parameters rest between gathers.
    #[arg(long, default_value = NOWHERE, value_parser = place_parser(), value_name = "WHERE")]
    pub offload_parameters: Place,
    /// Where the inputs of blocks rest from forward to backward; needs --checkpoint-activations
    /// block.
    #[arg(long, default_value = NOWHERE, value_parser = place_parser(), value_name = "WHERE")]
    pub offload_activations: Place,
    /// Directory for the files of what rests on disk; it is created if need be. [default: the
    /// system's for temporary files or the current one, whichever is not in main memory]
    #[arg(long, value_name = "DIR")]
    pub offload_dir: Option<PathBuf>,
    /// Staging buffers of each kind through which states and parameters travel, from 1 to 16.
    /// [default: 3; for optimizer states on disk all but 3 of their pieces, from 3 to 6]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MOST_BUFFERS))]
    pub offload_buffers: Option<usize>,
    /// Simulate the way between device and main memory, on the CPU: pcie3, pcie4, pcie5,
    /// nvlink-c2c, or figures such as 10us,12GB/s.
    #[arg(long, value_parser = link::parse_host, value_name = "NAME|LATENCY,BANDWIDTH")]
    pub host_link: Option<LinkChoice>,
    /// Simulate the way between main memory and disk, on the CPU, with figures such as 100us,3GB/s.
    #[arg(long, value_parser = link::parse_disk, value_name = "LATENCY,BANDWIDTH")]
    pub disk_link: Option<LinkChoice>,
}
