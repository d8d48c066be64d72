//! Tokens per second of our stages and of PyTorch, in alternating rounds.

use crate::Arguments;
use crate::peer::Opponent;
use planner::Stage;
use planner::table::grouped;
use stages::config;
use tests::{median, train_as};
use trainer::Report;
use trainer::config::Config;

/// Steps of a round that are not timed: memory is taken, plans are made, machine code is loaded.
pub(crate) const WARMUP: u32 = 2;

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

/// A run of ours. Nobody looks at its weights: they are neither gathered nor hashed.
pub(crate) fn setup(arguments: &Arguments, micro_batch: usize, steps: u32) -> trainer::Result<Config> {
    let Arguments { model, precision, seq_len, with, .. } = arguments;
    let flags = format!(
        "--model {model} --gpus 1 --device cuda --precision {precision} --seq-len {seq_len} --batch-size {micro_batch} \
         --steps {} --headless {with}",
        WARMUP + steps
    );
    Ok(Config { hashed: false, ..config(&flags)? })
}

fn train(arguments: &Arguments, stage: Stage, micro_batch: usize, steps: u32) -> trainer::Result<Report> {
    train_as(stage, setup(arguments, micro_batch, steps)?)
}

/// Sweeps micro-batches, alternates rounds, prints the table; our micro-batch.
pub(crate) fn compare(arguments: &Arguments, peer: &mut Opponent) -> Result<usize, String> {
    let best = sweep("this workspace", &arguments.micro_batches, |micro_batch| ours(arguments, micro_batch))?;
    let mut rows: Vec<Row> = arguments.stages.iter().map(|stage| Row::new(stage.label(), best)).collect();
    let theirs =
        peer.ask(|peer| sweep("PyTorch", &arguments.micro_batches, |micro_batch| peer.train(micro_batch, 2)));
    rows.extend(theirs.map(|micro_batch| Row::new("PyTorch FSDP2", micro_batch)));
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
    print(arguments, &rows, flops_per_token);
    Ok(best)
}

/// Tokens per second of our first stage; `None` if memory does not do.
fn ours(arguments: &Arguments, micro_batch: usize) -> Result<Option<f64>, String> {
    match train(arguments, arguments.stages[0], micro_batch, 2) {
        Ok(report) => Ok(Some(report.throughput.tokens_per_second)),
        Err(failure) if failure.to_string().contains("out of memory") => Ok(None),
        Err(failure) => Err(failure.to_string()),
    }
}

/// The fastest micro-batch, of those for which memory does; they are tried until one is too large.
fn sweep(
    who: &str,
    micro_batches: &[usize],
    mut measure: impl FnMut(usize) -> Result<Option<f64>, String>,
) -> Result<usize, String> {
    let mut best: Option<(f64, usize)> = None;
    let mut tried = Vec::new();
    for &micro_batch in micro_batches {
        let speed = measure(micro_batch)?;
        tried.push(format!("{micro_batch}: {}", speed.map_or("out of memory".into(), whole)));
        match speed {
            None => break,
            Some(speed) if best.is_none_or(|(fastest, _)| speed > fastest) => {
                best = Some((speed, micro_batch))
            }
            Some(_) => {}
        }
    }
    events::say!("Tokens/s of {who} by micro-batch: {}.\n", tried.join("; "));
    best.map(|(_, micro_batch)| micro_batch).ok_or_else(|| format!("{who}: no micro-batch fits"))
}

fn whole(number: f64) -> String {
    grouped(number as u64)
}

fn print(arguments: &Arguments, rows: &[Row], flops_per_token: u64) {
    let Arguments { model, precision, seq_len, rounds, peak, .. } = arguments;
    events::say!(
        "`{model}`, {precision}, T = {seq_len}, one rank. MFU: {} FLOPs per token (6 per parameter without the embedding, \
         12 · layers · width · T for attention, not halved for causality) of {peak} TFLOP/s.\n",
        grouped(flops_per_token)
    );
    events::say!("| | micro-batch | tokens/s, median of {rounds} | lowest | highest | MFU | to PyTorch's |");
    events::say!("|---|--:|--:|--:|--:|--:|--:|");
    let peer = rows.get(arguments.stages.len()).map(|row| median(&row.tokens_per_second));
    for Row { name, micro_batch, tokens_per_second } in rows {
        let middle = median(tokens_per_second);
        let lowest = tokens_per_second.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = tokens_per_second.iter().copied().fold(0.0, f64::max);
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
