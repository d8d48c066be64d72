//! Tokens per second of every stage, and where the time goes:
//! `cargo bench -p tests --bench throughput`.
//!
//! Flags after `--`: `--models tiny,small`, `--stages zero0-ddp,zero1,zero2,zero3`, `--gpus 4`,
//! `--threads 1`, `--steps 20`, `--rounds 3`, and `--peer "NAME=COMMAND"` for another trainer that
//! prints a JSON line with `tokens_per_s`; rounds alternate between all of them, so that ratios
//! hold on a noisy machine. `--with "NAME=FLAGS"` adds every stage once more, with further flags:
//! `--with "bf16=--precision bf16"`; `--record` adds it recorded.

use clap::Parser;
use device::meter::Kind;
use events::say::grouped;
use prediction::Stage;
use report::{KernelShare, LimitRow};
use shell::table::{Format, Table};
use std::path::Path;
use std::process::Command;
use tests::{median, range, train_as};
use trainer::Report;

#[derive(Parser)]
struct Flags {
    #[arg(long, value_delimiter = ',', default_value = "tiny,small")]
    models: Vec<String>,
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Stage::ALL)]
    stages: Vec<Stage>,
    #[arg(long, default_value_t = 4)]
    gpus: usize,
    /// Threads of a rank on the CPU.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    #[arg(long, default_value_t = 12)]
    steps: u32,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// `NAME=COMMAND`; `{model}` in the command becomes the model's name.
    #[arg(long)]
    peer: Vec<String>,
    /// `NAME=FLAGS`: measure every stage with these flags, too.
    #[arg(long, allow_hyphen_values = true)]
    with: Vec<String>,
    /// Measure every stage recorded, too.
    #[arg(long)]
    record: bool,
    /// Cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let flags: Flags = shell::parse();
    let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    for model in &flags.models {
        measure(&flags, model, &dir.path().join("run"));
    }
}

/// One stage's or peer's rounds.
struct Row {
    name: String,
    tokens_per_second: Vec<f64>,
    report: Option<Report>,
}

/// What is measured: a stage and further flags, or a peer.
enum Contender {
    Stage(Stage, String),
    Peer(String),
}

fn contenders(flags: &Flags, recording: &Path) -> Vec<(String, Contender)> {
    let mut variants: Vec<(&str, String)> = flags.with.iter().map(|with| named(with)).collect();
    if flags.record {
        variants.push(("recorded", format!("--record {}", recording.display())));
    }
    let mut all = Vec::new();
    for &stage in &flags.stages {
        all.push((stage.label().to_string(), Contender::Stage(stage, String::new())));
        let variant = |(name, words): &(&str, String)| {
            (format!("{stage}, {name}"), Contender::Stage(stage, words.clone()))
        };
        all.extend(variants.iter().map(variant));
    }
    let peers = flags.peer.iter().map(|peer| named(peer));
    all.extend(peers.map(|(name, command)| (name.to_string(), Contender::Peer(command))));
    all
}

/// Returns the parts before and after the first `=`.
fn named(text: &str) -> (&str, String) {
    text.split_once('=').map_or((text, text.into()), |(name, rest)| (name, rest.into()))
}

fn measure(flags: &Flags, model: &str, recording: &Path) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut peaks = vec![peak(cores)];
    let contenders = contenders(flags, recording);
    let mut rows: Vec<Row> = contenders.iter().map(|(name, _)| empty(name)).collect();
    for _ in 0..flags.rounds {
        for (row, (_, contender)) in rows.iter_mut().zip(&contenders) {
            run(flags, model, contender, row);
        }
        peaks.push(peak(cores));
    }
    let best = median(&peaks);
    println!(
        "{model}, ranks: {}, threads of each: {}, {cores} cores; a large matrix product reaches {best:.0} \
         GFLOP/s; multiply-additions in registers, the processor's limit: {:.0}\n",
        flags.gpus,
        flags.threads,
        device::multiply_add_peak(cores, device::DType::F32)
    );
    println!("{}", speeds(&rows, best).render(Format::Terminal));
    println!("{}", shares(&rows).render(Format::Terminal));
    println!("{}", kernels(&rows).render(Format::Terminal));
}

fn run(flags: &Flags, model: &str, contender: &Contender, row: &mut Row) {
    match contender {
        Contender::Peer(command) => row.tokens_per_second.push(run_peer(command, model)),
        Contender::Stage(stage, more) => {
            let Flags { gpus, threads, steps, .. } = flags;
            let words = format!(
                "--device cpu --threads {threads} --model {model} --gpus {gpus} --steps {steps} {more}"
            );
            let config = stages::config(&words).unwrap_or_else(|failure| panic!("{failure}"));
            let limit = LimitRow::measure(&config);
            let mut report = train_as(*stage, config).unwrap_or_else(|failure| panic!("{failure}"));
            report.limit = Some(limit);
            row.tokens_per_second.push(report.throughput.tokens_per_second);
            row.report = Some(report);
        }
    }
}

fn empty(name: &str) -> Row {
    Row { name: name.into(), tokens_per_second: Vec::new(), report: None }
}

fn run_peer(peer: &str, model: &str) -> f64 {
    let command = peer.replace("{model}", model);
    let output =
        Command::new("sh").args(["-c", &command]).output().unwrap_or_else(|e| panic!("{command}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let json = text.lines().rev().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let speed = json.and_then(|json| json["tokens_per_s"].as_f64());
    speed.unwrap_or_else(|| {
        panic!("{command}: no JSON line with tokens_per_s\n{}", String::from_utf8_lossy(&output.stderr))
    })
}

fn speeds(rows: &[Row], peak: f64) -> Table {
    let mut table =
        Table::numbers("tokens per second", ["median", "lowest", "highest", "GFLOP/s", "of peak"]);
    for row in rows {
        let speed = median(&row.tokens_per_second);
        let (low, high) = range(&row.tokens_per_second);
        let flops = row.report.as_ref().map(|report| speed * report.throughput.flops_per_token as f64 / 1e9);
        let show = |value: f64| grouped(value as u64);
        table.row(
            &row.name,
            [
                show(speed),
                show(low),
                show(high),
                flops.map_or("-".into(), |f| format!("{f:.0}")),
                flops.map_or("-".into(), |f| format!("{:.0} %", 100.0 * f / peak)),
            ],
        );
    }
    table
}

/// Where rank 0's time goes, in percent of its steps.
fn shares(rows: &[Row]) -> Table {
    let mut table = Table::numbers("rank 0's time", ["data", "forward", "backward", "step", "collectives"]);
    for (name, report) in rows.iter().filter_map(|row| Some((&row.name, row.report.as_ref()?))) {
        let time = &report.time[0];
        let phases = time.clocks.phases;
        let all = phases.data + phases.forward + phases.backward + phases.step;
        let collectives: f64 = time.operations.iter().map(|operation| operation.seconds).sum();
        let percent = |seconds: f64| format!("{:.1} %", 100.0 * seconds / all);
        table
            .row(name, [phases.data, phases.forward, phases.backward, phases.step, collectives].map(percent));
    }
    table
}

/// What a rank's kernels take in a step: products, attention, the rest, and what share of the
/// registers' limit, measured in the same round, products, attention and the whole step reach.
fn kernels(rows: &[Row]) -> Table {
    let columns = ["products", "limit", "attention", "limit", "rest", "step"];
    let mut table = Table::numbers("kernels, ms of a step", columns);
    for (name, report) in rows.iter().filter_map(|row| Some((&row.name, row.report.as_ref()?))) {
        let all = KernelShare::all(report);
        let of = |kind: Kind| all.iter().find(|share| share.kind == kind);
        let ms = |seconds: f64| format!("{:.1}", 1e3 * seconds);
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let arithmetic = [Kind::Matmul, Kind::Attention].map(of);
        let rest = all.iter().map(|share| share.seconds).sum::<f64>()
            - arithmetic.iter().flatten().map(|share| share.seconds).sum::<f64>();
        let cell = |share: Option<&KernelShare>| {
            share.map_or([String::new(), String::new()], |share| {
                [ms(share.seconds), share.of_limit.map(percent).unwrap_or_default()]
            })
        };
        let limit = report.limit.as_ref().map_or(f64::NAN, |limit| limit.products_gflops);
        let whole = report.throughput.model_flops_per_second / 1e9 / limit;
        let [[products, reached], [attention, near]] = arithmetic.map(cell);
        table.row(name, [products, reached, attention, near, ms(rest), percent(whole)]);
    }
    table
}

/// The speed of a product of large squares, in GFLOP/s.
fn peak(threads: usize) -> f64 {
    device::matmul_peak(threads).unwrap_or_else(|error| panic!("{error}"))
}
