//! Bandwidth of the collectives: `cargo run --release -p bandwidth`.
//!
//! The ranks are threads; under torchrun, mpirun or srun, or with `--rank`, they are processes.
//! Algorithm bandwidth is buffer size over time. Bus bandwidth multiplies it by nccl-tests'
//! factors, which make it comparable between rank counts: 2(N−1)/N for all-reduce, (N−1)/N for
//! reduce-scatter and all-gather, 1 for broadcast. A call takes as long as its slowest rank; the
//! table shows the median call and the best. The results of every size are checked.

mod document;
mod engine;
mod failure;
mod launch;
mod measure;
mod model;
mod overhead;
mod plot;
mod row;

use clap::{CommandFactory, Parser, ValueEnum};
use engine::Engine;
use events::Operation;
use failure::Failure;
use launch::MeasuredRank;
use model::Model;
use row::Row;
use shell::ShellCommand;
use std::process::ExitCode;

/// An operation that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Collective {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets a slice of the sum.
    ReduceScatter,
    /// Every rank gets all ranks' slices.
    AllGather,
    /// Every rank gets rank 0's buffer.
    Broadcast,
}

impl Collective {
    fn operation(self) -> Operation {
        match self {
            Collective::AllReduce => Operation::AllReduce,
            Collective::ReduceScatter => Operation::ReduceScatter,
            Collective::AllGather => Operation::AllGather,
            Collective::Broadcast => Operation::Broadcast,
        }
    }
}

/// Measure the bandwidth of collectives.
#[derive(Debug, Parser)]
#[command(version = env!("VERSION"), args_conflicts_with_subcommands = true)]
pub(crate) struct Flags {
    /// For shells; without it the program measures.
    #[command(subcommand)]
    shell: Option<ShellCommand>,
    /// Number of ranks. [default: 4 threads; in a job, its number of processes]
    #[arg(long, value_name = "N")]
    gpus: Option<usize>,
    /// What connects the ranks. [default: local and ring; in a job tcp, or mpi under mpirun]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINES")]
    engine: Vec<Engine>,
    /// Operations to measure.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Collective::value_variants().to_vec(), value_name = "OPERATIONS")]
    operation: Vec<Collective>,
    /// Smallest buffer, in KiB.
    #[arg(long, default_value_t = 1, value_name = "KIB")]
    min: usize,
    /// Largest buffer, in KiB; 1048576 is 1 GiB.
    #[arg(long, default_value_t = 65_536, value_name = "KIB")]
    max: usize,
    /// Factor from one size to the next.
    #[arg(long, default_value_t = 4, value_name = "N")]
    factor: usize,
    /// This process's rank, if no launcher sets it; needs --gpus and --master.
    #[arg(long, value_name = "R")]
    rank: Option<usize>,
    /// Address at which rank 0 listens. [default: MASTER_ADDR and MASTER_PORT]
    #[arg(long, value_name = "HOST:PORT")]
    master: Option<String>,
    /// Seconds that a rank waits for another.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    timeout: u64,
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

    fn check(&self) -> Result<(), Failure> {
        let usage = |what: &str| Err(Failure::Usage(what.into()));
        match () {
            () if self.min == 0 || self.max < self.min => {
                usage("--min must be at least 1 and --max no smaller")
            }
            () if self.max > 1 << 20 => usage("--max: at most 1048576 KiB, which is 1 GiB"),
            () if self.factor < 2 => usage("--factor must be at least 2"),
            () if self.timeout == 0 => usage("--timeout must be at least 1"),
            () if !(1..=64).contains(&self.gpus.unwrap_or(1)) => usage("--gpus: choose 1 to 64"),
            () => Ok(()),
        }
    }
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let done = match &flags.shell {
        Some(shell) => print_for_shell(shell),
        None => flags.check().and_then(|()| measure_all(&flags)),
    };
    match done {
        Ok(()) => events::say::code(),
        Err(failure) => {
            let (code, message) = match failure {
                Failure::Usage(message) => (2, message),
                Failure::Run(message) => (1, message),
            };
            events::complain!("error: {message}");
            ExitCode::from(code)
        }
    }
}

fn print_for_shell(shell: &ShellCommand) -> Result<(), Failure> {
    let text = shell.text(Flags::command())?;
    events::say!("{}", text.trim_end());
    Ok(())
}

fn measure_all(flags: &Flags) -> Result<(), Failure> {
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
    for collective in &flags.operation {
        let of: Vec<&Row> = rows.iter().filter(|row| row.operation == collective.operation()).collect();
        events::say!("{}", plot::plot(collective.operation().label(), &of).trim_end_matches('\n'));
    }
    print_links(&models);
    Ok(())
}

/// Measures every operation and size on one rank. Rank 0 prints each row as soon as it is there.
fn measure_rank(rank: &MeasuredRank, flags: &Flags) -> Result<Vec<Row>, Failure> {
    let print = rank.group.rank() == 0 && !flags.json;
    let mut rows = Vec::new();
    for collective in &flags.operation {
        for size in flags.sizes() {
            let row = measure::measure(rank, collective.operation(), size)?;
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

/// Prints the links that cost what was measured, if there are any.
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
