//! Text between empty lines, as Markdown requires around tables.

use planner::table::{Format, Table};

/// Returns a table between empty lines.
pub(super) fn spaced(table: &Table) -> Vec<String> {
    around(&table.render(Format::Markdown))
}

/// Returns the lines of `text` between empty ones.
pub(super) fn around(text: &str) -> Vec<String> {
    format!("\n{}\n", text.trim_end()).split('\n').map(str::to_string).collect()
}
