//! What offload costs, beside what hides it: `cargo test -p tests --bench offload -- --bench`.
//!
//! Three tables, each from rounds that alternate between all its rows, so that ratios hold on a
//! noisy machine: the update in main memory beside the update in place; steps over simulated ways
//! beside two bounds; and steps with everything on the real disk. Takes less than four minutes.
//!
//! The simple bound of a step is the longer of what it computes and what the busier direction of a
//! way moves. It forgets what cannot hide, so the second bound adds up the longer of the two for
//! each part of a step. The update needs the norm of all gradients, and goes on in the next forward:
//! these two are one part. So is backward, whose last block computes after all shards have come. The
//! first shard comes while nothing computes, since the update has just changed it; and the gradients
//! of the last two units leave when nothing computes any more, since a reduction ends when the next
//! one begins. A step may take less than this bound, since the update's last writes go on in
//! backward.
//!
//! Flags after `--`: `--model small`, `--batch-size 2`, `--gpus 2`, `--steps 5`, `--rounds 3`,
//! `--parts update,host,disk,real`, `--precisions fp32,bf16` of the updates, `--with "FLAGS"` of all
//! runs, and `--offload-dir DIR`. The bounds are those of fp32.

use clap::{Parser, ValueEnum};
use events::Route;
use planner::Stage;
use planner::table::{Format, Table};
use settings::prediction::predict;
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
    /// Per rank.
    #[arg(long, default_value_t = 2)]
    batch_size: usize,
    #[arg(long, default_value_t = 2)]
    gpus: usize,
    #[arg(long, default_value_t = 5)]
    steps: u32,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// More flags of every run: `--batch-size 1 --with "--seq-len 32"`, since an update of a large
    /// model takes as long after a small batch.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    with: String,
    /// Precisions of the updates.
    #[arg(long, value_delimiter = ',', default_values_t = ["fp32", "bf16"].map(String::from))]
    precisions: Vec<String>,
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

/// What one run is asked for.
fn words(flags: &Flags, more: &str) -> String {
    let Flags { model, batch_size, gpus, steps, offload_dir, with, .. } = flags;
    let directory = offload_dir.as_ref().filter(|_| more.contains(" disk"));
    let directory = directory.map_or(String::new(), |path| format!("--offload-dir {}", path.display()));
    format!(
        "--device cpu --model {model} --batch-size {batch_size} --gpus {gpus} --steps {steps} {directory} {with} {more}"
    )
}

/// One run of ZeRO-3.
fn run(flags: &Flags, more: &str) -> Report {
    train(Stage::Zero3, &words(flags, more)).unwrap_or_else(|failure| panic!("{failure}"))
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
    let seconds = report.time.iter().map(|row| row.phases.step - row.waits.step - row.for_places.step);
    seconds.sum::<f64>() / (report.time.len() * report.steps.len()) as f64
}

/// Seconds that a rank waits for places in a step, the mean over ranks and steps.
fn for_places(report: &Report) -> f64 {
    let waits =
        report.time.iter().map(|row| row.for_places.forward + row.for_places.backward + row.for_places.step);
    waits.sum::<f64>() / (report.time.len() * report.steps.len()) as f64
}

/// The median of what `of` returns of each report.
fn typical(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    median(&reports.iter().map(of).collect::<Vec<_>>())
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

/// The update in main memory beside the update in place, both in their step: what a rank fetches for
/// the next forward, it fetches into one buffer.
fn update(flags: &Flags) {
    let title = format!("the update of {}, {} ranks", flags.model, flags.gpus);
    let mut table = Table::numbers(title, ["in place", "in main memory", "ratio (least to most)"]);
    for precision in &flags.precisions {
        let base = format!("--precision {precision}");
        let both = format!("{IN_MAIN_MEMORY} --offload-buffers 1");
        let away = ["--offload-optimizer cpu", &both].map(|away| format!("{base} {away}"));
        let reports = rounds(flags, &[vec![base], away.to_vec()].concat());
        for (away, words) in reports[1..].iter().zip(["optimizer", "optimizer, parameters"]) {
            let time = |reports: &[Report]| milliseconds(typical(reports, optimizer));
            let ratio = spread(&ratios(away, &reports[0], optimizer));
            table.row(format!("{precision}, {words}"), [time(&reports[0]), time(away), ratio]);
        }
    }
    println!("{}", table.render(Format::Terminal));
}

/// Bytes that a rank has moved on `route` in a step.
fn moved(report: &Report, route: Route) -> f64 {
    let row = report.transfers.iter().find(|row| row.rank == 0 && row.route == route.label());
    row.map_or(0.0, |row| row.bytes as f64 / report.steps.len() as f64)
}

/// Bytes that a rank moves in a step, in the busier direction of a way.
struct Moves {
    all: f64,
    forward: f64,
    backward: f64,
    /// After the norm.
    update: f64,
    /// The largest shard.
    shard: f64,
    /// Gradients that leave at the end of backward.
    last: f64,
}

/// Seconds of a step without a simulated way.
struct Computed {
    forward: f64,
    backward: f64,
    update: f64,
    /// Of the model.
    blocks: f64,
}

impl Computed {
    fn of(flags: &Flags, reports: &[Report]) -> Self {
        let update = typical(reports, optimizer);
        let share = typical(reports, |report| {
            let [forward, backward] = report.time.iter().fold([0.0; 2], |[forward, backward], row| {
                let (phases, waits) = (&row.phases, &row.for_places);
                [forward + phases.forward - waits.forward, backward + phases.backward - waits.backward]
            });
            forward / (forward + backward)
        });
        let passes = typical(reports, |report| step(report) - for_places(report)) - update;
        let layers = tests::config(&words(flags, "")).map_or(1, |config| config.model.layers);
        let [forward, backward] = [share * passes, (1.0 - share) * passes];
        Computed { forward, backward, update, blocks: layers as f64 }
    }
}

impl Moves {
    fn of(flags: &Flags, more: &str, routes: &[Route]) -> Self {
        let config = tests::config(&words(flags, more)).unwrap_or_else(|failure| panic!("{failure}"));
        let (_, predicted) = predict(Stage::Zero3, &config).unwrap_or_else(|failure| panic!("{failure}"));
        let rank = predicted.ranks[0];
        // A skipped step moves what does not wait for the norm.
        let bytes = |route: &Route| {
            let [step, passes] = [rank.transfers.step, rank.transfers.skipped_step]
                .map(|transfers| transfers.bytes(*route) as f64);
            [step, passes, step - passes]
        };
        let bytes: Vec<[f64; 3]> = routes.iter().map(bytes).collect();
        let most = |part: usize| bytes.iter().map(|bytes| bytes[part]).fold(0.0, f64::max);
        let shards = predicted.units.iter().map(|unit| (4 * unit.padded) as f64 / flags.gpus as f64);
        let (all, shard) =
            shards.fold((0.0, 0f64), |(all, largest), shard| (all + shard, largest.max(shard)));
        let last = if routes.contains(&Route::DeviceToHost) { 2.0 * shard } else { 0.0 };
        // From disk an update hands forward its shards.
        let handed = routes.iter().any(|route| rank.transfers.reread.bytes(*route) > 0);
        let forward = if handed { 0.0 } else { all };
        Moves { all: most(0), forward, backward: most(1) - forward, update: most(2), shard, last }
    }

    /// Returns the seconds that the update and forward, backward, and the last gradients take at
    /// least.
    fn bounds(&self, computed: &Computed, rate: f64) -> [f64; 3] {
        let Computed { forward, backward, update, blocks } = *computed;
        let first = self.shard.min(self.forward) / rate;
        let to_forward = (self.forward + self.update) / rate + forward / blocks;
        let backward = backward.max(self.backward / rate + backward / blocks);
        [(update + forward + first).max(to_forward), backward, self.last / rate]
    }
}

/// Steps over simulated ways of several rates, chosen so that the busier direction takes a share of
/// the time that the step computes, beside both bounds.
fn link(flags: &Flags, away: &str, flag: &str, routes: [Route; 2]) {
    let moves = Moves::of(flags, away, &routes);
    let plain = run(flags, "");
    let rates = [0.25, 0.5, 1.0, 2.0].map(|share| moves.all / (share * step(&plain)));
    let case = |rate: &f64| format!("{away} {flag} 10us,{:.0}B/s", rate);
    let cases: Vec<String> =
        [String::new(), away.to_string()].into_iter().chain(rates.iter().map(case)).collect();
    let reports = rounds(flags, &cases);
    let (plain, computed) = (typical(&reports[0], step), Computed::of(flags, &reports[1]));
    let columns = [
        "moves",
        "step",
        "simple bound",
        "ratio",
        "update, forward",
        "backward",
        "last gradients",
        "bound",
        "ratio (least to most)",
    ];
    let mut table = Table::numbers(flag.trim_start_matches("--"), columns);
    for (reports, rate) in reports[2..].iter().zip(rates) {
        let took: Vec<f64> = reports.iter().map(step).collect();
        let simple = plain.max(moves.all / rate);
        let parts = moves.bounds(&computed, rate);
        let bound: f64 = parts.iter().sum();
        let ratio = spread(&took.iter().map(|took| took / bound).collect::<Vec<_>>());
        let to_simple = format!("{:.2}", median(&took) / simple);
        let [forward, backward, last] = parts.map(milliseconds);
        let [moves, took, simple, bound] = [moves.all / rate, median(&took), simple, bound].map(milliseconds);
        let row = [moves, took, simple, to_simple, forward, backward, last, bound, ratio];
        table.row(format!("{:.0} MB/s", rate / 1e6), row);
    }
    println!("{} with {away}, two bounds of a step\n{}", flags.model, table.render(Format::Terminal));
    let [plain, forward, backward, update] =
        [plain, computed.forward, computed.backward, computed.update].map(milliseconds);
    let [before, after] =
        [moves.forward + moves.backward, moves.update].map(|bytes| format!("{:.0} MB", bytes / 1e6));
    println!(
        "Without offload a step takes {plain}; with it and no simulated way forward {forward}, backward {backward}, the update {update}."
    );
    println!("A rank moves {before} in the busier direction before the norm, and {after} after it.\n");
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
        let took = milliseconds(typical(reports, step));
        let bytes = |route| format!("{:.0} MB", moved(&reports[0], route) / 1e6);
        table.row(words, [took, ratio, bytes(Route::DiskToHost), bytes(Route::HostToDisk)]);
    }
    println!("{}", table.render(Format::Terminal));
}
