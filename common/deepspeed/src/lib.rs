//! DeepSpeed's and Accelerate's configuration files: `--config ds_config.json`.
//!
//! # Precedence
//!
//! From strongest to weakest: a flag given on the command line; a key in the file; the model's
//! preset and the flags' defaults. A key that the file leaves out is *not* filled in with
//! DeepSpeed's default: these defaults suit models of billions of parameters (with buckets of 5e8
//! elements a small model has one bucket, and overlaps nothing). The settings of an optimizer or a
//! scheduler that the file names are the exception: see `defaults`. Where a flag and a key
//! contradict each other, a warning names both and the one that counts.
//!
//! `auto` stands for the value that Transformers fills in: that of flags and preset, or a multiple
//! of the model's width. In DeepSpeed's files any other key that is `auto` counts as left out.
//!
//! The batch follows DeepSpeed's rule, see `batch`. One [table](table::keys) has the effect of
//! every key; it drives reading, errors, `--print-config`, the book's table and the tests. To
//! honour another key, give its row [`Fate::Honoured`](keys::Fate) with a setter and a getter.
//!
//! Accelerate's YAML uses the same table: its names stand for DeepSpeed's
//! ([`Fate::Means`](keys::Fate)); those of FSDP, for flags. Sections of Accelerate's that its
//! `distributed_type` does not read are not read here either, and keys that Accelerate rejects are
//! errors.

mod batch;
mod defaults;
mod entries;
mod file;
mod fsdp;
mod hjson;
pub mod keys;
mod markdown;
mod merge;
mod mesh;
mod misplaced;
mod nearest;
pub mod node;
mod parameters;
mod print;
mod read;
pub mod table;
mod yaml;

#[cfg(test)]
mod tests;

pub use markdown::markdown;
pub use print::{left_out, print};

use prediction::Stage;
use settings::cli::TrainArgs;
use settings::config::architecture;
use settings::{Config, Result};

/// A resolved configuration, and the stage that will run it.
pub struct Resolved<'a> {
    /// The run.
    pub config: &'a Config,
    /// The stage.
    pub stage: Stage,
}

/// Resolves `args` and the file that they name to a configuration.
///
/// # Errors
/// A usage failure that names the flag or the file's key, and what it accepts.
pub fn configure(args: TrainArgs) -> Result<Config> {
    let (args, findings) = merge::merge(args, |args| Ok(architecture(args)?.width))?;
    findings.refuse()?;
    let config = Config::new(args).map_err(|failure| findings.attribute(failure))?;
    Ok(Config { findings, ..config })
}
