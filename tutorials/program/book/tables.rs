//! Tables that the planner makes.

use crate::learn::lab;
use planner::closed::sweeps_table;
use planner::table::{Format, Table, grouped};
use planner::{Job, Partition, Recipe, Stage};
use trainer::{Failure, Result};

/// The Markdown that `planner ARGUMENTS` prints; for `recipes`, what they count; for `sweeps`, the price list; for
/// `deepspeed`, the keys of its configurations; for `units FLAGS`, the units of a run.
pub(super) fn lines(arguments: &str) -> Result<Vec<String>> {
    match arguments {
        "recipes" => return Ok(spaced(&recipes())),
        "sweeps" => return Ok(spaced(&sweeps_table(&[1, 2, 4, 8]))),
        "deepspeed" => return Ok(around(&trainer::deepspeed::markdown())),
        _ => {}
    }
    if let Some(flags) = arguments.strip_prefix("units ") {
        return Ok(spaced(&units(flags)?));
    }
    let words = ["planner"].into_iter().chain(arguments.split_whitespace()).chain(["--markdown"]);
    let text = planner::cli::run(words).map_err(|e| Failure::run(format!("table: {arguments}: {e}")))?;
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.insert(0, String::new());
    lines.push(String::new());
    Ok(lines)
}

/// Bytes per parameter in every recipe.
fn recipes() -> Table {
    let columns = ["weights", "gradients", "master weights", "momentum", "variance", "together"];
    let mut table = Table::numbers("--recipe", columns);
    for recipe in Recipe::ALL {
        let Recipe { weights, gradients, master, momentum, variance, .. } = recipe;
        table.row(recipe.name, [weights, gradients, master, momentum, variance, recipe.total()]);
    }
    table
}

/// A table between empty lines, as Markdown wants it.
fn spaced(table: &Table) -> Vec<String> {
    around(&table.render(Format::Markdown))
}

fn around(text: &str) -> Vec<String> {
    format!("\n{}\n", text.trim_end()).split('\n').map(str::to_string).collect()
}

/// Parameters of every unit of the run with `flags`, without and with padding.
fn units(flags: &str) -> Result<Table> {
    let config = lab::config(flags)?;
    let job = Job { wrap: config.wrap, ..Job::new(config.model, Stage::Zero3, config.world_size) };
    let mut table = Table::numbers("unit", ["parameters", "with padding"]);
    for unit in Partition::of(&job).units {
        table.row(unit.name.clone(), [grouped(unit.parameters), grouped(unit.padded)]);
    }
    Ok(table)
}
