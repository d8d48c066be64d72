//! How often a step moves all gradients or parameters, in a table.

use prediction::Stage;
use prediction::closed::Sweeps;
use shell::table::Table;

/// Returns a table of the elements that a rank sends per step in every stage, in units of Ψ(N−1)/N,
/// for several numbers of micro-batches.
pub fn table(micro_batches: &[u64]) -> Table {
    let columns = micro_batches.iter().map(|count| format!("M = {count}"));
    let mut table = Table::numbers("× Ψ(N−1)/N", columns);
    let mut row = |name: String, stage, textbook| {
        table.row(name, micro_batches.iter().map(|&count| Sweeps::of(stage, count, textbook).total()));
    };
    for stage in Stage::ALL {
        row(stage.to_string(), stage, false);
        if stage == Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE {
            row(format!("{stage}, all-reduce"), stage, true);
        }
    }
    table
}
