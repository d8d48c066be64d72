//! What offload costs, beside what hides it: `cargo test -p tests --bench offload -- --bench`.
//!
//! Three tables, each from rounds that alternate between all its rows, so that ratios hold on a
//! noisy machine: the update in main memory beside the update in place; steps over simulated links
//! beside a bound and an estimate; and steps with everything on the real disk. Takes less than four
//! minutes.
//!
//! The bound of a step is the longer of what it computes and what the busier direction of a way
//! moves. It forgets what is hard to hide, so the estimate adds up the longer of the two for each
//! part of a step; bytes may also move earlier or later than in their part. The update needs the
//! norm of all gradients, and goes on in the next forward: these two are one part, whose last block
//! computes after all states have come; backward is the other, and its last block computes after
//! all shards have come. What the last pieces of an update write may leave in backward, as many as
//! have buffers; all others must have left before. The gradients of the last unit leave when
//! nothing computes any more, and its shard, which their update changes first, comes while only the
//! rest of the update computes. The real disk has no ways of its own for reads and writes, nor for
//! each rank: there all bytes of all ranks take the time that the disk took, in the same rounds,
//! for reads and writes of as many bytes at once.
//!
//! Flags after `--`: `--model small`, `--batch-size 2`, `--gpus 2`, `--steps 5`, `--rounds 3`,
//! `--parts update,host,disk,real`, `--precisions fp32,bf16` of the updates, `--with "FLAGS"` of
//! all runs, and `--offload-dir DIR`. All but the updates are fp32.

use block::Block;
use clap::{Parser, ValueEnum};
use events::Route;
use prediction::Stage;
use report::Clocks;
use settings::planned::predict;
use shell::table::{Format, Table};
use std::path::{Path, PathBuf};
use std::time::Instant;
use storage::{Disk, Ticket};
use tests::{median, range, train};
use trainer::Report;

#[path = "../../common/storage/tests/block/mod.rs"]
mod block;

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

/// With fewer buffers than is usual, backward leaves a disk more idle: less is read in one, and
/// written in the next.
const FEWER_BUFFERS: usize = 3;

fn main() {
    let flags: Flags = shell::parse();
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
    let seconds = report.time.iter().map(|row| {
        let Clocks { phases, waits, for_places, .. } = &row.clocks;
        phases.step - waits.step - for_places.step
    });
    seconds.sum::<f64>() / (report.time.len() * report.steps.len()) as f64
}

/// Seconds that a rank waits for places in a step, the mean over ranks and steps.
fn for_places(report: &Report) -> f64 {
    let places = report.time.iter().map(|row| &row.clocks.for_places);
    let waits = places.map(|waits| waits.forward + waits.backward + waits.step);
    waits.sum::<f64>() / (report.time.len() * report.steps.len()) as f64
}

/// The median of what `of` returns of each report.
fn typical(reports: &[Report], of: impl Fn(&Report) -> f64) -> f64 {
    median(&reports.iter().map(of).collect::<Vec<_>>())
}

/// The median, with the least and the largest.
fn spread(values: &[f64]) -> String {
    let (least, most) = range(values);
    format!("{:.2} ({least:.2} to {most:.2})", median(values))
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.1} ms", 1e3 * seconds)
}

fn ratios(reports: &[Report], base: &[Report], of: fn(&Report) -> f64) -> Vec<f64> {
    reports.iter().zip(base).map(|(report, base)| of(report) / of(base)).collect()
}

/// The update in main memory beside the update in place, both in their step: what a rank fetches
/// for the next forward, it fetches into one buffer.
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
    let row = report.transfers.iter().find(|row| row.rank == 0 && row.route == route);
    row.map_or(0.0, |row| row.bytes as f64 / report.steps.len() as f64)
}

/// Bytes that a rank moves in a step.
struct Moves {
    /// In the busier direction.
    all: f64,
    /// In each direction until the update is over, forward included.
    forward: [f64; 2],
    /// In each direction in backward, while something computes.
    backward: [f64; 2],
    /// To the device before anything computes.
    first: f64,
    /// Gradients that leave at the end of backward.
    last: f64,
}

/// Seconds of a step without a simulated link.
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
                let (phases, waits) = (&row.clocks.phases, &row.clocks.for_places);
                [forward + phases.forward - waits.forward, backward + phases.backward - waits.backward]
            });
            forward / (forward + backward)
        });
        let passes = typical(reports, |report| step(report) - for_places(report)) - update;
        let layers = tests::config(&words(flags, "")).map_or(1, |config| config.model.layers);
        let [forward, backward] = [share * passes, (1.0 - share) * passes];
        Computed { forward, backward, update, blocks: layers as f64 }
    }

    /// Returns the seconds that the parts of a step take at least if so many seconds of transfers
    /// go on beside forward and backward, and so many beside nothing, before and after both.
    fn beside(&self, to_forward: f64, to_backward: f64, [first, last]: [f64; 2]) -> [f64; 3] {
        let Computed { forward, backward, update, blocks } = *self;
        let begins = first + update / blocks;
        [
            (forward + update.max(begins)).max(to_forward + (forward + update) / blocks),
            backward.max(to_backward + backward / blocks),
            last,
        ]
    }
}

impl Moves {
    fn of(flags: &Flags, more: &str, routes: [Route; 2]) -> Self {
        let config = tests::config(&words(flags, more)).unwrap_or_else(|failure| panic!("{failure}"));
        let (job, predicted) = predict(Stage::Zero3, &config).unwrap_or_else(|failure| panic!("{failure}"));
        let transfers = predicted.ranks[0].transfers;
        // Each unit is one piece.
        let shards: Vec<f64> =
            predicted.units.iter().map(|unit| (4 * unit.padded) as f64 / flags.gpus as f64).collect();
        let largest = shards.iter().copied().fold(0.0, f64::max);
        // From disk an update hands forward its shards.
        let fetches = Route::ALL.iter().all(|route| transfers.reread.bytes(*route) == 0);
        let of = |route: Route| {
            let [step, passes] =
                [transfers.step, transfers.skipped_step].map(|moved| moved.bytes(route) as f64);
            // A skipped step moves what does not wait for the norm.
            let buffers = job.placement.update_buffers(shards.len() as u64);
            let (update, last) = (step - passes, shards.iter().rev().take(buffers as usize));
            match route {
                Route::HostToDevice if fetches => [shards.iter().sum(), passes - shards.iter().sum::<f64>()],
                Route::DeviceToHost => [0.0, passes - largest],
                Route::HostToDisk => {
                    // Three states in f32 and the parameters.
                    let late = 4.0 * last.sum::<f64>();
                    [update - late, late]
                }
                _ => [update, passes],
            }
        };
        let [there, back] = routes.map(of);
        let busier = |bytes: [f64; 2]| bytes.into_iter().fold(0.0, f64::max);
        Moves {
            all: busier(routes.map(|route| transfers.step.bytes(route) as f64)),
            forward: [there[0], back[0]],
            backward: [there[1], back[1]],
            first: if routes.contains(&Route::HostToDevice) { largest } else { 0.0 },
            last: if routes.contains(&Route::DeviceToHost) { largest } else { 0.0 },
        }
    }

    /// Returns the estimated seconds of the update and forward, of backward, and of the last
    /// gradients, on ways of `rate`.
    fn estimate(&self, computed: &Computed, rate: f64) -> [f64; 3] {
        let [to, from] = self.backward.map(|bytes| bytes / rate);
        let forward = self.forward[0].max(self.forward[1]) / rate;
        // Gradients begin to leave when a block has computed, too.
        computed.beside(forward, to.max(from), [self.first / rate, self.last / rate])
    }
}

/// Steps over simulated links of several rates, chosen so that the busier direction takes a share
/// of the time that the step computes, beside a bound and an estimate.
fn link(flags: &Flags, away: &str, flag: &str, routes: [Route; 2]) {
    let moves = Moves::of(flags, away, routes);
    let plain = run(flags, "");
    let rates = [0.25, 0.5, 1.0, 2.0].map(|share| moves.all / (share * step(&plain)));
    let case = |rate: &f64| format!("{away} {flag} 10us,{:.0}B/s", rate);
    let cases: Vec<String> =
        [String::new(), away.to_string()].into_iter().chain(rates.iter().map(case)).collect();
    let reports = rounds(flags, &cases);
    // Ratios compare runs of one round.
    let plain: Vec<f64> = reports[0].iter().map(step).collect();
    let computed: Vec<Computed> = reports[1].chunks(1).map(|report| Computed::of(flags, report)).collect();
    let columns = [
        "moves",
        "step",
        "bound",
        "ratio (least to most)",
        "update, forward",
        "backward",
        "last gradients",
        "estimate",
        "ratio (least to most)",
    ];
    let mut table = Table::numbers(flag.trim_start_matches("--"), columns);
    for (reports, rate) in reports[2..].iter().zip(rates) {
        let took: Vec<f64> = reports.iter().map(step).collect();
        let parts: Vec<[f64; 3]> = computed.iter().map(|computed| moves.estimate(computed, rate)).collect();
        let part = |part: usize| median(&parts.iter().map(|parts| parts[part]).collect::<Vec<_>>());
        let bounds: Vec<f64> = plain.iter().map(|plain| plain.max(moves.all / rate)).collect();
        let estimates = parts.iter().zip(&bounds).map(|(parts, bound)| bound.max(parts.iter().sum()));
        let estimates: Vec<f64> = estimates.collect();
        let to = |bounds: &[f64]| {
            spread(&took.iter().zip(bounds).map(|(took, bound)| took / bound).collect::<Vec<_>>())
        };
        let [moves, took, forward, backward, last] =
            [moves.all / rate, median(&took), part(0), part(1), part(2)].map(milliseconds);
        let [(bound, to_bound), (estimate, to_estimate)] =
            [bounds, estimates].map(|bounds| (milliseconds(median(&bounds)), to(&bounds)));
        let row = [moves, took, bound, to_bound, forward, backward, last, estimate, to_estimate];
        table.row(format!("{:.0} MB/s", rate / 1e6), row);
    }
    println!(
        "{} with {away}, a bound and an estimate of a step\n{}",
        flags.model,
        table.render(Format::Terminal)
    );
    let computed = Computed::of(flags, &reports[1]);
    let [plain, forward, backward, update] =
        [median(&plain), computed.forward, computed.backward, computed.update].map(milliseconds);
    println!(
        "Without offload a step takes {plain}; with it and no simulated way forward {forward}, backward {backward}, the update {update}."
    );
    let [to, from] = [0, 1].map(|way| {
        let [forward, backward] = [moves.forward[way], moves.backward[way]].map(|bytes| bytes / 1e6);
        format!("{forward:.0} MB until the update is over and {backward:.0} MB in backward")
    });
    println!("A rank moves in one direction {to}, in the other {from}.\n");
}

/// Steps with everything on the real disk, and in main memory, beside steps with nothing there, and
/// an estimate.
fn real(flags: &Flags) {
    let fewer_buffers = format!("{ON_DISK} --offload-buffers {FEWER_BUFFERS}");
    let cases = ["", IN_MAIN_MEMORY, ON_DISK, &fewer_buffers].map(String::from);
    let config = tests::config(&words(flags, ON_DISK)).unwrap_or_else(|failure| panic!("{failure}"));
    let directory = config.offload.directory.unwrap_or_else(|| panic!("a directory for {ON_DISK}"));
    let (mut reports, mut rates) = (cases.clone().map(|_| Vec::new()), Vec::new());
    for _ in 0..flags.rounds {
        for (case, reports) in cases.iter().zip(&mut reports) {
            reports.push(run(flags, case));
        }
        rates.push(disk_rate(&directory, flags.gpus));
    }
    let title = format!("{}, {} ranks, no simulated way", flags.model, flags.gpus);
    let mut table = Table::numbers(title, ["step", "ratio (least to most)", "read", "written"]);
    let plain = &reports[0];
    let through = format!("on disk, {FEWER_BUFFERS} buffers");
    for (reports, words) in reports.iter().zip(["all on the device", "in main memory", "on disk", &through]) {
        let ratio = spread(&ratios(reports, plain, step));
        let took = milliseconds(typical(reports, step));
        let bytes = |route| format!("{:.0} MB", moved(&reports[0], route) / 1e6);
        table.row(words, [took, ratio, bytes(Route::DiskToHost), bytes(Route::HostToDisk)]);
    }
    println!("{}", table.render(Format::Terminal));
    let estimate = |case: &str| {
        let moves = Moves::of(flags, case, [Route::DiskToHost, Route::HostToDisk]);
        let [forward, backward] = [moves.forward, moves.backward]
            .map(|bytes| bytes.iter().sum::<f64>() * flags.gpus as f64 / median(&rates));
        let parts = Computed::of(flags, &reports[1]).beside(forward, backward, [0.0; 2]);
        let sum = parts.iter().sum::<f64>();
        format!("{}, {:.2} of the step without offload", milliseconds(sum), sum / typical(plain, step))
    };
    let gbs: Vec<f64> = rates.iter().map(|rate| rate / 1e9).collect();
    println!(
        "The disk reads and writes at once {} GB/s in all. The estimate of a step on disk is {}; with {FEWER_BUFFERS} buffers {}.\n",
        spread(&gbs),
        estimate(ON_DISK),
        estimate(&fewer_buffers),
    );
}

/// Bytes per second, read and written together, of a disk on which so many ranks read and write
/// pieces of 4 MiB at once, with two threads each.
fn disk_rate(directory: &Path, ranks: usize) -> f64 {
    const PIECE: usize = 4 << 20;
    const PIECES: usize = 16;
    let files: Vec<_> = (0..ranks)
        .map(|rank| {
            let disk = Disk::new(2);
            let path = directory.join(format!(".rate-{}-{rank}", std::process::id()));
            let file = disk.scratch(&path).unwrap_or_else(|error| panic!("{error}"));
            (disk, file)
        })
        .collect();
    let at = |piece: usize| (piece * PIECE) as u64;
    let pieces = || (0..PIECES).flat_map(|piece| files.iter().map(move |on| (piece, on)));
    let done = |tickets: Vec<Ticket<Block>>| {
        for ticket in tickets {
            let _ = ticket.wait().unwrap_or_else(|error| panic!("{error}"));
        }
    };
    done(pieces().map(|(piece, (disk, file))| disk.write(file, at(piece), Block::new(PIECE))).collect());
    let blocks: Vec<_> = pieces().map(|_| [(); 2].map(|()| Block::new(PIECE))).collect();
    let began = Instant::now();
    let both = pieces().zip(blocks).flat_map(|((piece, (disk, file)), [into, from])| {
        [disk.read(file, at(piece), into), disk.write(file, at(PIECES + piece), from)]
    });
    done(both.collect());
    (2 * PIECES * PIECE * ranks) as f64 / began.elapsed().as_secs_f64()
}
