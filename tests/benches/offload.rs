//! What offload costs, beside what hides it: `cargo test -p tests --bench offload -- --bench`.
//!
//! Three tables, each from rounds that alternate between all its rows, so that ratios hold on a noisy
//! machine: the update in main memory beside the update in place; steps over simulated ways beside
//! the longer of what is computed and what is moved; and steps with everything on the real disk.
//!
//! Flags after `--`: `--model small`, `--gpus 2`, `--steps 6`, `--rounds 7`, `--parts
//! update,host,disk,real`, and `--offload-dir DIR`.

use clap::{Parser, ValueEnum};
use events::Route;
use planner::Stage;
use planner::table::{Format, Table};
use std::path::PathBuf;
use tests::{median, train};
use trainer::Report;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Update,
    Host,
    Disk,
    Real,
}

#[derive(Parser)]
struct Flags {
    #[arg(long, default_value = "small")]
    model: String,
    #[arg(long, default_value_t = 2)]
    gpus: usize,
    #[arg(long, default_value_t = 6)]
    steps: u32,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Part::Update, Part::Host, Part::Disk, Part::Real])]
    parts: Vec<Part>,
    /// The directory of what rests on disk.
    #[arg(long)]
    offload_dir: Option<PathBuf>,
    /// Cargo passes it to benchmarks; tests leave it out, and nothing is measured.
    #[arg(long)]
    bench: bool,
}

/// Steps at the beginning that are not counted.
const UNTIMED: usize = 2;

/// Everything that ZeRO-3 can move there.
const IN_MAIN_MEMORY: &str = "--offload-optimizer cpu --offload-parameters cpu";
const ON_DISK: &str = "--offload-optimizer disk --offload-parameters disk";

fn main() {
    let flags = Flags::parse();
    if !flags.bench {
        return;
    }
    for part in &flags.parts {
        match part {
            Part::Update => update(&flags),
            Part::Host => {
                link(&flags, IN_MAIN_MEMORY, "--host-link", [Route::HostToDevice, Route::DeviceToHost])
            }
            Part::Disk => link(&flags, ON_DISK, "--disk-link", [Route::DiskToHost, Route::HostToDisk]),
            Part::Real => real(&flags),
        }
    }
}

/// One run of ZeRO-3.
fn run(flags: &Flags, more: &str) -> Report {
    let Flags { model, gpus, steps, offload_dir, .. } = flags;
    let directory = offload_dir.as_ref().filter(|_| more.contains(" disk"));
    let directory = directory.map_or(String::new(), |path| format!("--offload-dir {}", path.display()));
    let words = format!("--device cpu --model {model} --gpus {gpus} --steps {steps} {directory} {more}");
    train(Stage::Zero3, &words).unwrap_or_else(|failure| panic!("{failure}"))
}

/// The runs of each of `cases`, in rounds.
fn rounds(flags: &Flags, cases: &[String]) -> Vec<Vec<Report>> {
    let mut reports: Vec<Vec<Report>> = cases.iter().map(|_| Vec::new()).collect();
    for _ in 0..flags.rounds {
        for (case, reports) in cases.iter().zip(&mut reports) {
            reports.push(run(flags, case));
        }
    }
    reports
}

/// Seconds of a step: the median of the later ones.
fn step(report: &Report) -> f64 {
    median(&report.steps.iter().skip(UNTIMED).map(|row| row.seconds).collect::<Vec<_>>())
}

/// Seconds of the optimizer in a step, the mean over ranks and steps.
fn optimizer(report: &Report) -> f64 {
    let seconds = report.time.iter().map(|row| row.phases.step - row.waits.step).sum::<f64>();
    seconds / (report.time.len() * report.steps.len()) as f64
}

/// The median, with the least and the largest.
fn spread(values: &[f64]) -> String {
    let (least, most) = values.iter().fold((f64::MAX, 0f64), |(a, b), &v| (a.min(v), b.max(v)));
    format!("{:.2} ({least:.2} to {most:.2})", median(values))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", 1e3 * seconds)
}

fn ratios(reports: &[Report], base: &[Report], of: fn(&Report) -> f64) -> Vec<f64> {
    reports.iter().zip(base).map(|(report, base)| of(report) / of(base)).collect()
}

/// The update in main memory beside the update in place.
fn update(flags: &Flags) {
    let title = format!("the update of {}, {} ranks", flags.model, flags.gpus);
    let mut table = Table::numbers(title, ["in place", "in main memory", "ratio (least to most)"]);
    for precision in ["fp32", "bf16"] {
        let base = format!("--precision {precision}");
        let away = ["--offload-optimizer cpu", IN_MAIN_MEMORY].map(|away| format!("{base} {away}"));
        let reports = rounds(flags, &[vec![base], away.to_vec()].concat());
        for (away, words) in reports[1..].iter().zip(["optimizer", "optimizer, parameters"]) {
            let time =
                |reports: &[Report]| milliseconds(median(&reports.iter().map(optimizer).collect::<Vec<_>>()));
            let ratio = spread(&ratios(away, &reports[0], optimizer));
            table.row(format!("{precision}, {words}"), [time(&reports[0]), time(away), ratio]);
        }
    }
    println!("{}", table.render(Format::Terminal));
}

/// Bytes that a rank moves on `route` in a step.
fn moved(report: &Report, route: Route) -> f64 {
    let row = report.transfers.iter().find(|row| row.rank == 0 && row.route == route.label());
    row.map_or(0.0, |row| row.bytes as f64 / report.steps.len() as f64)
}

/// Steps over simulated ways of several rates, chosen so that the busier direction takes a share of
/// the time that the step computes, beside the longer of the two.
fn link(flags: &Flags, away: &str, flag: &str, routes: [Route; 2]) {
    let (plain, first) = (run(flags, ""), run(flags, away));
    let bytes = routes.map(|route| moved(&first, route)).into_iter().fold(0.0, f64::max);
    let shares = [0.1, 0.25, 0.5, 1.0, 2.0, 4.0];
    let rates = shares.map(|share| bytes / (share * step(&plain)));
    let case = |rate: &f64| format!("{away} {flag} 10us,{:.0}B/s", rate);
    let cases: Vec<String> = [String::new()].into_iter().chain(rates.iter().map(case)).collect();
    let reports = rounds(flags, &cases);
    let title = format!("{} with {away}", flags.model);
    let columns = ["bytes ÷ rate", "computed", "step", "to the longer", "waited"];
    let mut table = Table::numbers(title, columns);
    let computed = median(&reports[0].iter().map(step).collect::<Vec<_>>());
    for (reports, rate) in reports[1..].iter().zip(rates) {
        let took: Vec<f64> = reports.iter().map(step).collect();
        let longer = computed.max(bytes / rate);
        let waited = |report: &Report| {
            let waited: f64 = report.transfers.iter().map(|row| row.waited_seconds).sum();
            waited / (report.world_size * report.steps.len()) as f64
        };
        let waited = median(&reports.iter().map(waited).collect::<Vec<_>>());
        let ratio = spread(&took.iter().map(|took| took / longer).collect::<Vec<_>>());
        let cells = [bytes / rate, computed, median(&took)].map(milliseconds);
        let [moves, computed, took] = cells;
        table.row(format!("{:.0} MB/s", rate / 1e6), [moves, computed, took, ratio, milliseconds(waited)]);
    }
    println!("{}", table.render(Format::Terminal));
}

/// Steps with everything on the real disk, and in main memory, beside steps with nothing there.
fn real(flags: &Flags) {
    let cases = ["", IN_MAIN_MEMORY, ON_DISK].map(String::from);
    let reports = rounds(flags, &cases);
    let title = format!("{}, {} ranks, no simulated way", flags.model, flags.gpus);
    let mut table = Table::numbers(title, ["step", "ratio (least to most)", "read", "written"]);
    let plain = &reports[0];
    for (reports, words) in reports.iter().zip(["all on the device", "in main memory", "on disk"]) {
        let ratio = spread(&ratios(reports, plain, step));
        let took = milliseconds(median(&reports.iter().map(step).collect::<Vec<_>>()));
        let bytes = |route| format!("{:.0} MB", moved(&reports[0], route) / 1e6);
        table.row(words, [took, ratio, bytes(Route::DiskToHost), bytes(Route::HostToDisk)]);
    }
    println!("{}", table.render(Format::Terminal));
}
