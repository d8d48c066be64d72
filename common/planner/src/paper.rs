//! Table 1 of the ZeRO paper, computed.

use prediction::Stage;
use prediction::recipe::Recipe;
use shell::table::Table;

/// Model sizes of the paper's table 1.
pub const PARAMETERS: [u64; 3] = [7_500_000_000, 128_000_000_000, 1_000_000_000_000];
/// Numbers of GPUs of the paper's table 1.
pub const GPUS: [usize; 6] = [1, 4, 16, 64, 256, 1024];

/// Returns the table of model states per GPU in GB (mixed precision, K = 12), to three digits as
/// the paper prints them: for each size of model, the three stages over the number of GPUs.
pub fn table_1() -> Table {
    let mut table = Table::numbers("GPUs", GPUS);
    for parameters in PARAMETERS {
        for stage in Stage::SHARDED {
            let name = format!("{} B, {stage}", parameters as f64 / 1e9);
            table.row(name, GPUS.map(|gpus| three_digits(Recipe::MIXED.gigabytes(parameters, gpus, stage))));
        }
    }
    table
}

fn three_digits(value: f64) -> String {
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    let scale = 10f64.powi(decimals as i32);
    format!("{:.decimals$}", (value * scale).round() / scale)
}
