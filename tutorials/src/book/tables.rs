//! Tables that the planner makes.

use planner::Recipe;
use planner::table::{Format, Table};
use trainer::{Failure, Result};

/// The Markdown that `planner ARGUMENTS` prints; for `recipes`, what they count.
pub(super) fn lines(arguments: &str) -> Result<Vec<String>> {
    if arguments == "recipes" {
        return Ok(recipes());
    }
    let words = arguments.split_whitespace().map(str::to_string).chain(["--markdown".into()]);
    let text = planner::cli::run(words).map_err(|e| Failure::run(format!("table: {arguments}: {e}")))?;
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    lines.insert(0, String::new());
    lines.push(String::new());
    Ok(lines)
}

/// Bytes per parameter in every recipe.
fn recipes() -> Vec<String> {
    let columns = ["weights", "gradients", "master weights", "momentum", "variance", "together"];
    let mut table = Table::numbers("--recipe", columns);
    for recipe in Recipe::ALL {
        let Recipe { weights, gradients, master, momentum, variance, .. } = recipe;
        table.row(recipe.name, [weights, gradients, master, momentum, variance, recipe.total()]);
    }
    let text = format!("\n{}\n", table.render(Format::Markdown).trim_end());
    text.split('\n').map(str::to_string).collect()
}
