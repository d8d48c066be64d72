//! DeepSpeed's and Accelerate's configuration files: `--config ds_config.json`.
//!
//! # What counts
//!
//! From strongest to weakest: a flag given on the command line; a key in the file; the model's preset and the flags'
//! defaults. A key that the file leaves out is *not* filled in with DeepSpeed's default: those suit models of billions
//! of parameters (with buckets of 5e8 elements a small model has one bucket, and overlaps nothing). Where two of them
//! contradict each other, a warning names both and says which one counts.
//!
//! `auto` stands for what Transformers would put there: flags and preset, or a multiple of the model's width.
//!
//! The batch follows DeepSpeed's rule, see [`batch`]. One [table](table::keys) says of every key what becomes of it; it
//! drives reading, errors, `--print-config`, the book's table and the tests. To honour one more key, give its row
//! [`Fate::Honoured`](keys::Fate) with a setter and a getter.
//!
//! Accelerate's YAML goes the same way: its names stand for DeepSpeed's ([`Fate::Means`](keys::Fate)), or for flags where it
//! speaks of FSDP.

mod batch;
pub mod keys;
mod markdown;
mod merge;
mod nearest;
pub mod node;
mod print;
mod read;
pub mod table;
mod yaml;

#[cfg(test)]
mod tests;

pub use markdown::markdown;
pub use print::{left_out, print};

use planner::Stage;
use settings::cli::TrainArgs;
use settings::config::architecture;
use settings::{Config, Result};

/// A finished configuration, and the stage that will run it.
pub struct Resolved<'a> {
    /// The run.
    pub config: &'a Config,
    /// The stage.
    pub stage: Stage,
}

/// The configuration that `args` and the file that they name give.
///
/// # Errors
/// A usage failure that names the flag or the file's key, and what it accepts.
pub fn configure(args: TrainArgs) -> Result<Config> {
    let (args, findings) = merge::merge(args, |args| Ok(architecture(args)?.width))?;
    let config = Config::new(args).map_err(|failure| findings.attribute(failure))?;
    Ok(Config { findings, ..config })
}
