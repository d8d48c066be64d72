//! The book's tables, by name.

use super::{activations, bus, claims, disk, fsdp, hops, reshard, translation};
use crate::learn::runs::Runs;
use events::say::grouped;
use planner::paper::table_1;
use planner::sweeps;
use prediction::{Job, Partition, Recipe, Stage};
use shell::table::{Format, Table};
use std::path::Path;
use trainer::{Failure, Result};

/// Returns the Markdown that `planner ARGUMENTS` prints, or one of the book's tables.
///
/// Computed from formulas: `recipes` (bytes per parameter), `sizes` (7B in each recipe), `paper`
/// (the ZeRO paper's table), `activations` (the tensors that a block keeps), `break-even` (tokens
/// that hide an offloaded optimizer), `infinity` and `bandwidths` (the bandwidth that a disk must
/// deliver), `files` (of a checkpoint), `reshard block` and `reshard model` (the data that another
/// number of ranks reads), `sweeps` (the price list), or `units FLAGS` (the units of a run).
/// Measured by `runs`: `claims`, `bus`, `disk` and `stages`. Read from files under `root`:
/// `translation`, `fsdp`, and `hops RECORDING`. `deepspeed` lists the keys of its configurations.
pub(super) fn text(arguments: &str, root: &Path, runs: &Runs) -> Result<String> {
    let table = match arguments {
        "recipes" => recipes(),
        "sizes" => sizes(),
        "paper" => table_1(),
        "files" => reshard::files()?,
        "reshard block" => reshard::block()?,
        "reshard model" => reshard::whole()?,
        "sweeps" => sweeps::table(&[1, 2, 4, 8]),
        "activations" => return activations::text(),
        "break-even" => return bus::break_even(),
        "infinity" => return Ok(disk::paper()),
        "bandwidths" => return disk::counted(),
        "claims" => return claims::text(runs),
        "bus" => return bus::measured(runs),
        "disk" => return disk::measured(runs),
        "stages" => return super::stages::text(runs),
        "translation" => return translation::text(root),
        "fsdp" => return fsdp::text(root),
        "deepspeed" => return Ok(deepspeed::markdown()),
        _ => match arguments.split_once(' ') {
            Some(("units", flags)) => units(flags)?,
            Some(("hops", recorded)) => return hops::text(root, recorded),
            _ => return planned(arguments),
        },
    };
    Ok(table.render(Format::Markdown))
}

/// Returns the table that `planner ARGUMENTS` prints.
fn planned(arguments: &str) -> Result<String> {
    let words = ["planner"].into_iter().chain(arguments.split_whitespace()).chain(["--markdown"]);
    planner::cli::run(words).map_err(|e| Failure::run(format!("table: {arguments}: {e}")))
}

/// Returns a table of the bytes per parameter in every recipe.
fn recipes() -> Table {
    let columns = ["weights", "gradients", "master weights", "momentum", "variance", "together"];
    let mut table = Table::numbers("--recipe", columns);
    for recipe in Recipe::ALL {
        let Recipe { weights, gradients, master, momentum, variance, .. } = recipe;
        table.row(recipe.name, [weights, gradients, master, momentum, variance, recipe.total()]);
    }
    table
}

/// Returns a table of the model states of 7 billion parameters in every recipe, on 4 and on 8 GPUs.
fn sizes() -> Table {
    let mut table = Table::numbers("7e9 parameters", Stage::ALL);
    for (recipe, gpus) in Recipe::ALL.into_iter().flat_map(|recipe| [(recipe, 4), (recipe, 8)]) {
        let unit = recipe.unit;
        let cell = |stage| {
            let bytes = recipe.model_states(&[7_000_000_000], gpus, stage).total();
            format!("{:.2} {}", bytes as f64 / unit.bytes(), unit.label())
        };
        table.row(format!("{}, {gpus} GPUs", recipe.name), Stage::ALL.map(cell));
    }
    table
}

/// Returns a table of the parameters of every unit of the run with `flags`, without and with
/// padding.
fn units(flags: &str) -> Result<Table> {
    let config = stages::config(flags)?;
    let job = Job { wrap: config.wrap, ..Job::new(config.model, Stage::Zero3, config.world_size) };
    let mut table = Table::numbers("unit", ["parameters", "with padding"]);
    for unit in Partition::of(&job).units {
        table.row(unit.name.clone(), [grouped(unit.parameters), grouped(unit.padded)]);
    }
    Ok(table)
}
