//! Tokens per second of our stages and of PyTorch, in alternating rounds.

use crate::Arguments;
use crate::peer::{Opponent, Peer};
use events::say::grouped;
use prediction::Stage;
use tests::{median, range, train_as};
use trainer::Report;

/// One contender's rounds.
struct Row {
    name: String,
    micro_batch: usize,
    tokens_per_second: Vec<f64>,
}

impl Row {
    fn new(name: impl Into<String>, micro_batch: usize) -> Self {
        Row { name: name.into(), micro_batch, tokens_per_second: Vec::new() }
    }
}

fn train(arguments: &Arguments, stage: Stage, micro_batch: usize, steps: u32) -> trainer::Result<Report> {
    train_as(stage, arguments.run(micro_batch, steps)?)
}

/// Returns our fastest micro-batch.
pub(crate) fn best(arguments: &Arguments) -> Result<usize, String> {
    sweep("this workspace", &arguments.micro_batches, |micro_batch| Ok(ours(arguments, micro_batch)))
}

/// Finds PyTorch's micro-batch, alternates rounds with ours at `best`, and prints the table.
pub(crate) fn compare(
    arguments: &Arguments,
    best: usize,
    peak: f64,
    peer: &mut Opponent,
) -> Result<(), String> {
    let sizes = &arguments.micro_batches;
    let mut rows: Vec<Row> = arguments.stages.iter().map(|stage| Row::new(stage.label(), best)).collect();
    let theirs = peer.ask(|peer| {
        let name = peer.name.clone();
        let micro_batch = sweep(&name, sizes, |micro_batch| theirs(peer, micro_batch))?;
        Ok(Row::new(name, micro_batch))
    });
    rows.extend(theirs);
    let mut flops_per_token = 0;
    for _ in 0..arguments.rounds {
        for (row, stage) in rows.iter_mut().zip(&arguments.stages) {
            let report =
                train(arguments, *stage, best, arguments.steps).map_err(|failure| failure.to_string())?;
            flops_per_token = report.throughput.flops_per_token;
            row.tokens_per_second.push(report.throughput.tokens_per_second);
        }
        for row in &mut rows[arguments.stages.len()..] {
            let speed = peer.ask(|peer| peer.train(row.micro_batch, arguments.steps));
            row.tokens_per_second.extend(speed.flatten());
        }
    }
    rows.retain(|row| !row.tokens_per_second.is_empty());
    print(arguments, &rows, flops_per_token, peak);
    Ok(())
}

/// Tokens per second, or the reason why a micro-batch does not run.
type Attempt = Result<f64, String>;

/// Runs our first stage.
fn ours(arguments: &Arguments, micro_batch: usize) -> Attempt {
    match train(arguments, arguments.stages[0], micro_batch, 2) {
        Ok(report) => Ok(report.throughput.tokens_per_second),
        Err(failure) if failure.to_string().contains(OUT_OF_MEMORY) => Err(OUT_OF_MEMORY.into()),
        Err(failure) => Err(failure.to_string()),
    }
}

/// Runs PyTorch, if it answers.
fn theirs(peer: &mut Peer, micro_batch: usize) -> Result<Attempt, String> {
    Ok(peer.train(micro_batch, 2)?.ok_or_else(|| OUT_OF_MEMORY.into()))
}

/// The reason that every contender reports when it runs out of memory.
const OUT_OF_MEMORY: &str = "out of memory";

/// Returns the fastest of the micro-batches that run. Stops at the first that does not.
fn sweep(
    who: &str,
    micro_batches: &[usize],
    mut measure: impl FnMut(usize) -> Result<Attempt, String>,
) -> Result<usize, String> {
    let mut best: Option<(f64, usize)> = None;
    let mut tried = Vec::new();
    for &micro_batch in micro_batches {
        match measure(micro_batch)? {
            Ok(speed) => {
                tried.push(format!("{micro_batch}: {}", whole(speed)));
                best = best.filter(|(fastest, _)| *fastest >= speed).or(Some((speed, micro_batch)));
            }
            Err(reason) => {
                tried.push(format!("{micro_batch}: {reason}"));
                break;
            }
        }
    }
    let tried = tried.join("; ");
    let (_, micro_batch) = best.ok_or_else(|| format!("{who}: no micro-batch runs: {tried}"))?;
    events::say!("Tokens/s of {who} by micro-batch: {tried}.\n");
    Ok(micro_batch)
}

fn whole(number: f64) -> String {
    grouped(number as u64)
}

fn print(arguments: &Arguments, rows: &[Row], flops_per_token: u64, peak: f64) {
    let Arguments { model, precision, seq_len, rounds, .. } = arguments;
    events::say!(
        "`{model}`, {precision}, T = {seq_len}, one rank. MFU: {} FLOPs per token (6 per parameter without the embedding, \
         12 · layers · width · T for attention, not halved for causality) of {peak} TFLOP/s.\n",
        grouped(flops_per_token)
    );
    let peer = rows.get(arguments.stages.len());
    let name = peer.map_or("PyTorch", |row| &row.name);
    events::say!("| | micro-batch | tokens/s, median of {rounds} | lowest | highest | MFU | to {name}'s |");
    events::say!("|---|--:|--:|--:|--:|--:|--:|");
    let peer = peer.map(|row| median(&row.tokens_per_second));
    for Row { name, micro_batch, tokens_per_second } in rows {
        let middle = median(tokens_per_second);
        let (lowest, highest) = range(tokens_per_second);
        let utilised = 100.0 * middle * flops_per_token as f64 / (peak * 1e12);
        let ratio = peer.map_or("not measured".into(), |peer| format!("{:.2} ×", middle / peer));
        events::say!(
            "| {name} | {micro_batch} | {} | {} | {} | {utilised:.1} % | {ratio} |",
            whole(middle),
            whole(lowest),
            whole(highest)
        );
    }
    events::say!();
}
