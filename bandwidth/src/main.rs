//! Bandwidth of the collectives: `cargo run --release -p bandwidth`.
//!
//! The ranks are threads; under torchrun, mpirun or srun, or with `--rank`, they are processes.
//! Algorithm bandwidth is buffer size over time. Bus bandwidth multiplies it by nccl-tests'
//! factors, which make it comparable between rank counts: 2(N−1)/N for all-reduce, (N−1)/N for
//! reduce-scatter and all-gather, 1 for broadcast. A call takes as long as its slowest rank; the
//! table shows the median call and the best. The results of every size are checked.

mod document;
mod engine;
mod launch;
mod measure;
mod model;
mod overhead;
mod plot;
mod row;

use clap::Parser;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use engine::Engine;
use events::Operation;
use launch::MeasuredRank;
use model::Model;
use row::Row;
use settings::Failure;
use settings::cli::seconds;
use shell::{ShellCommand, whole};
use std::error::Error;
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Duration;

/// The result of measuring: the error is a [`Failure`] of usage, or any other.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// Maximum number of ranks: sums of more ranks' numbers would not be exact; see [`measure`].
const MOST_RANKS: usize = 64;

/// Sizes of a buffer in KiB, up to 1 GiB.
const SIZES: RangeInclusive<u64> = 1..=1 << 20;

/// The operations that can be measured, and the effect of each.
const OPERATIONS: [(Operation, &str); 4] = [
    (Operation::AllReduce, "Every rank gets the sum"),
    (Operation::ReduceScatter, "Every rank gets a slice of the sum"),
    (Operation::AllGather, "Every rank gets all ranks' slices"),
    (Operation::Broadcast, "Every rank gets rank 0's buffer"),
];

fn operation() -> impl TypedValueParser<Value = Operation> {
    let words = OPERATIONS.map(|(operation, does)| PossibleValue::new(operation.label()).help(does));
    PossibleValuesParser::new(words).try_map(|word| {
        let known = OPERATIONS.into_iter().find(|(operation, _)| operation.label() == word);
        known.map(|(operation, _)| operation).ok_or("choose one of the operations")
    })
}

/// Measure the bandwidth of collectives.
#[derive(Debug, Parser)]
#[command(version = env!("VERSION"), args_conflicts_with_subcommands = true)]
pub(crate) struct Flags {
    /// Shell completions and manual pages; without it the program measures.
    #[command(subcommand)]
    shell: Option<ShellCommand>,
    /// Number of ranks. [default: 4 threads; in a job, its number of processes]
    #[arg(long, value_name = "N", value_parser = whole::<usize>(1..=MOST_RANKS as u64))]
    gpus: Option<usize>,
    /// What connects the ranks, separated by commas. [default: local,ring; in a job tcp, or mpi
    /// under mpirun]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINE,…")]
    engine: Vec<Engine>,
    /// Operations to measure, separated by commas.
    #[arg(long, value_parser = operation(), value_delimiter = ',', default_values_t = OPERATIONS.map(|(operation, _)| operation), value_name = "OPERATION,…")]
    operation: Vec<Operation>,
    /// Smallest buffer, in KiB.
    #[arg(long, default_value_t = 1, value_name = "KIB", value_parser = whole::<usize>(SIZES))]
    min: usize,
    /// Largest buffer, in KiB; 1048576 is 1 GiB.
    #[arg(long, default_value_t = 65_536, value_name = "KIB", value_parser = whole::<usize>(SIZES))]
    max: usize,
    /// Factor from one size to the next.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = whole::<usize>(2..=1 << 20))]
    factor: usize,
    /// This process's rank, if no launcher sets it; needs --gpus and --master.
    #[arg(long, value_name = "R", value_parser = whole::<usize>(0..=MOST_RANKS as u64 - 1))]
    rank: Option<usize>,
    /// Address at which rank 0 listens. [default: MASTER_ADDR and MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    master: Option<String>,
    /// Seconds that a rank waits for another.
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = seconds)]
    timeout: Duration,
    /// Print JSON in place of the table and the plots.
    #[arg(long)]
    json: bool,
}

impl Flags {
    /// Returns the buffer sizes in bytes, the largest last.
    fn sizes(&self) -> Vec<usize> {
        let steps = std::iter::successors(Some(self.min), |size| size.checked_mul(self.factor));
        steps.take_while(|size| *size < self.max).chain([self.max]).map(|kib| kib << 10).collect()
    }

    fn check(&self) -> Result<()> {
        if self.max < self.min {
            return Err(Failure::usage("--max: choose a size no smaller than --min").into());
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let flags: Flags = shell::parse();
    let done = match &flags.shell {
        Some(for_shell) => for_shell
            .text(shell::command::<Flags>())
            .map(|text| events::say!("{}", text.trim_end()))
            .map_err(Into::into),
        None => flags.check().and_then(|()| measure_all(&flags)),
    };
    match done {
        Ok(()) => events::say::code(),
        Err(error) => {
            events::complain!("error: {error}");
            ExitCode::from(error.downcast_ref().map_or(1, Failure::code))
        }
    }
}

fn measure_all(flags: &Flags) -> Result<()> {
    let rows = launch::run(flags, &|rank| measure_rank(rank, flags))?;
    // Processes other than rank 0's have nothing to print.
    if rows.is_empty() {
        return Ok(());
    }
    let models = model::models(&rows);
    if flags.json {
        events::say!("{}", document::json(&rows, &models).unwrap_or_default());
        return Ok(());
    }
    events::say!("\nEvery result was right.");
    for &operation in &flags.operation {
        let of: Vec<&Row> = rows.iter().filter(|row| row.operation == operation).collect();
        events::say!("{}", plot::plot(operation.label(), &of).trim_end_matches('\n'));
    }
    print_links(&models);
    Ok(())
}

/// Measures every operation and size on one rank. Rank 0 prints each row as soon as it is measured.
fn measure_rank(rank: &MeasuredRank, flags: &Flags) -> Result<Vec<Row>> {
    let print = rank.group.rank() == 0 && !flags.json;
    let mut rows = Vec::new();
    for &operation in &flags.operation {
        for size in flags.sizes() {
            let row = measure::measure(rank, operation, size)?;
            if print {
                events::say!("{row}");
            }
            rows.push(row);
        }
    }
    if rank.engine == Engine::Nccl && !flags.json {
        let lines = overhead::measure(rank, flags)?;
        lines.iter().filter(|_| print).for_each(|line| events::say!("{line}"));
    }
    Ok(rows)
}

/// Prints the links that explain the measurements; nothing without links.
fn print_links(models: &[Model]) {
    if models.is_empty() {
        return;
    }
    events::say!("\nTime of a call: α per round, β per byte that the busiest rank sends.");
    events::say!(
        "{:<8}{:>13}{:>14}{:>12}   as a flag of a run",
        "engine",
        "latency α",
        "bandwidth 1/β",
        "misses by"
    );
    models.iter().for_each(|model| events::say!("{model}"));
}
