//! What saving checkpoints costs: `scripts/save-cost DIR`, on a quiet machine.
//!
//! Three figures, each from rounds that alternate with what it is compared with, in one run. How
//! long a save stops training, beside a warm copy of the same bytes in main memory by the same
//! threads. How much longer steps take while threads write. And, with training paused, how fast
//! the bytes reach the disk, beside a `fio` that flushes, too.
//!
//! Flags after `--`: `--dir DIR`, `--model base`, `--gpus 4`, `--rounds 7`, `--period 8` (steps
//! from save to save; half of them must be enough for a save),
//! `--with "--batch-size 1 --seq-len 64"`, and `--parts background,paused`.

use clap::{Parser, ValueEnum};
use prediction::Stage;
use settings::fault::Phase;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};
use tests::{config, median, range};
use trainer::{At, Milestone, Witness};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Background,
    Paused,
}

#[derive(Parser)]
struct Flags {
    /// Where checkpoints and fio's files are written.
    #[arg(long)]
    dir: Option<PathBuf>,
    #[arg(long, default_value = "base")]
    model: String,
    #[arg(long, default_value_t = 4)]
    gpus: usize,
    #[arg(long, default_value_t = 7)]
    rounds: u32,
    #[arg(long, default_value_t = 8)]
    period: u32,
    /// More flags of every run.
    #[arg(long, default_value = "--batch-size 1 --seq-len 64", allow_hyphen_values = true)]
    with: String,
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = [Part::Background, Part::Paused])]
    parts: Vec<Part>,
    /// Cargo passes it to benchmarks; tests leave it out, and nothing is measured.
    #[arg(long)]
    bench: bool,
}

/// Bytes of a checkpoint per parameter: three states in f32.
const BYTES: u64 = 12;

/// Bytes of a piece of a copy. A copy of a few MiB at a time reads what it overwrites; a long one
/// does not, in the C library for x86.
const PIECE: usize = 4 << 20;

/// When ranks came to something in a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    Begins,
    /// A warm copy, before the step.
    Warm,
    Warmed,
    /// A warm copy in pieces.
    Pieces,
    Pieced,
    Copies,
    Copied,
    /// The checkpoint after so many steps has its name.
    Published,
    /// Training goes on.
    Saved,
}

type Notes = Arc<Mutex<Vec<(u32, Moment, Instant)>>>;

/// What is done for comparison before a step.
type Comparison = Box<dyn Fn(&Clock, At) + Send + Sync>;

struct Clock {
    notes: Notes,
    /// Steps from save to save. The comparison is made in the middle of each period.
    period: u32,
    compare: Comparison,
    /// Where checkpoints appear.
    kept: PathBuf,
}

/// How often a thread looks whether a checkpoint has its name.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

impl Clock {
    /// Notes when the checkpoint after `steps` steps has its name; a thread looks for it.
    fn await_name(&self, steps: u32) {
        let (path, notes) = (self.kept.join(format!("step-{steps:08}")), self.notes.clone());
        std::thread::spawn(move || {
            while !path.exists() {
                std::thread::sleep(POLL_INTERVAL);
            }
            notes.lock().unwrap().push((steps, Moment::Published, Instant::now()));
        });
    }

    fn note(&self, step: u32, moment: Moment) {
        self.notes.lock().unwrap().push((step, moment, Instant::now()));
    }

    /// True if the comparison is made before `step`: that many steps after a save.
    fn compares(&self, step: u32) -> bool {
        step % self.period == self.period / 2
    }

    /// Returns when the first and the last rank came to `moment` of `step`.
    fn at(&self, step: u32, moment: Moment) -> Option<(Instant, Instant)> {
        let notes = self.notes.lock().unwrap();
        let here = notes.iter().filter(|note| (note.0, note.1) == (step, moment)).map(|note| note.2);
        Some((here.clone().min()?, here.max()?))
    }

    /// Seconds from when the first rank came to `from` until the last came to `to`.
    fn seconds(&self, (step, from): (u32, Moment), (end, to): (u32, Moment)) -> f64 {
        let (Some((first, _)), Some((_, last))) = (self.at(step, from), self.at(end, to)) else {
            return f64::NAN;
        };
        last.saturating_duration_since(first).as_secs_f64()
    }
}

impl Witness for Clock {
    fn on_milestone(&self, At { step, rank }: At, milestone: Milestone) {
        match milestone {
            Milestone::Begins(Phase::Data) => {
                self.note(step, Moment::Begins);
                if self.compares(step) {
                    (self.compare)(self, At { step, rank });
                }
            }
            Milestone::Copying => {
                self.note(step, Moment::Copies);
                if rank == 0 {
                    self.await_name(step + 1);
                }
            }
            Milestone::Checkpointing => self.note(step, Moment::Copied),
            _ => {}
        }
    }

    fn on_checkpoint(&self, _: usize, steps: u32, failed: Option<&str>) {
        assert_eq!(failed, None, "the checkpoint after {steps} steps");
        self.note(steps, Moment::Saved);
    }
}

fn main() {
    let flags: Flags = shell::parse();
    if !flags.bench {
        return;
    }
    let within = flags.dir.clone().unwrap_or_else(std::env::temp_dir);
    let dir = tempfile::tempdir_in(&within).unwrap();
    println!("{}", run_words(&flags));
    for part in &flags.parts {
        match part {
            Part::Background => in_the_background(&flags, dir.path()),
            Part::Paused => paused(&flags, dir.path()),
        }
    }
}

fn run_words(flags: &Flags) -> String {
    format!("{} on {} ranks, {}", flags.model, flags.gpus, flags.with)
}

/// Trains with a save after every period, under a clock.
fn train(flags: &Flags, dir: &Path, more: &str, compare: Comparison) -> (Arc<Clock>, u64) {
    let kept = tempfile::tempdir_in(dir).unwrap();
    let words = format!(
        "--model {} --gpus {} --threads 1 --device cpu --steps {} --timeout 600 --checkpoint {} --checkpoint-every {} \
         --checkpoint-keep 1 {} {more}",
        flags.model,
        flags.gpus,
        // The first save is not counted, and the last is followed by a period, too.
        (flags.rounds + 2) * flags.period,
        kept.path().display(),
        flags.period,
        flags.with
    );
    let kept = kept.path().to_path_buf();
    let clock = Arc::new(Clock { notes: Notes::default(), period: flags.period, compare, kept });
    let report = stages::train_under(Stage::Zero3, config(&words).unwrap(), clock.clone()).unwrap();
    (clock, BYTES * report.model.parameters)
}

/// Returns the steps after which the saves that count were begun.
fn saves(flags: &Flags) -> impl Iterator<Item = u32> {
    let period = flags.period;
    (2..flags.rounds + 2).map(move |number| number * period)
}

fn in_the_background(flags: &Flags, dir: &Path) {
    let rooms: Vec<Mutex<[Vec<u8>; 2]>> = (0..flags.gpus).map(|_| Mutex::default()).collect();
    let parameters = settings_parameters(flags);
    let bytes = (BYTES * parameters) as usize / flags.gpus;
    let together = Barrier::new(flags.gpus);
    let copy = move |clock: &Clock, At { step, rank }: At| {
        let mut room = rooms[rank].lock().unwrap();
        let [from, to] = &mut *room;
        from.resize(bytes, 1);
        to.resize(bytes, 2);
        together.wait();
        clock.note(step, Moment::Warm);
        to.copy_from_slice(from);
        clock.note(step, Moment::Warmed);
        together.wait();
        clock.note(step, Moment::Pieces);
        from.chunks(PIECE).zip(to.chunks_mut(PIECE)).for_each(|(from, to)| to.copy_from_slice(from));
        clock.note(step, Moment::Pieced);
        std::hint::black_box(to);
    };
    let (clock, total) = train(flags, dir, "", Box::new(copy));
    let [mut stops, mut copies, mut pieces, mut slow] = [(); 4].map(|()| Vec::new());
    for steps in saves(flags) {
        let last = steps - 1;
        stops.push(clock.seconds((last, Moment::Copies), (last, Moment::Copied)));
        let compared = steps - flags.period + flags.period / 2;
        copies.push(clock.seconds((compared, Moment::Warm), (compared, Moment::Warmed)));
        pieces.push(clock.seconds((compared, Moment::Pieces), (compared, Moment::Pieced)));
        slow.push(slowdown(&clock, steps));
    }
    println!("{:52} {:>8.3} GB", "bytes of a checkpoint", total as f64 / 1e9);
    show("training stops for a save", &stops, "s");
    show("a warm copy of the same bytes", &copies, "s");
    show("share of the copy (at most 1.5)", &ratios(&stops, &copies), "");
    show("share of a warm copy in pieces of 4 MiB", &ratios(&stops, &pieces), "");
    show("longer steps while it is written (at most 0.15)", &slow, "");
}

/// Returns the parameters of the model, without training it.
fn settings_parameters(flags: &Flags) -> u64 {
    let config = config(&format!("--model {} --gpus {}", flags.model, flags.gpus)).unwrap();
    model::Layout::new(&config.model).parameters()
}

/// Returns by what share steps are longer from the save after `steps` steps until it is done than
/// the steps of the same period after that, without the one that follows the comparison.
fn slowdown(clock: &Clock, steps: u32) -> f64 {
    let begins = |step| clock.at(step, Moment::Begins).map(|(first, _)| first);
    let Some((_, done)) = clock.at(steps, Moment::Saved) else { return f64::NAN };
    let (mut busy, mut free) = (Vec::new(), Vec::new());
    for step in steps..steps + clock.period - 1 {
        let (Some(begin), Some(end)) = (begins(step), begins(step + 1)) else { continue };
        let seconds = (end - begin).as_secs_f64();
        match (clock.compares(step), begin < done) {
            (true, _) => {}
            (false, true) => busy.push(seconds),
            (false, false) => free.push(seconds),
        }
    }
    median(&busy) / median(&free) - 1.0
}

fn paused(flags: &Flags, dir: &Path) {
    let bytes = BYTES * settings_parameters(flags) / flags.gpus as u64;
    let (folder, ranks) = (dir.to_path_buf(), flags.gpus);
    let rates = Arc::new(Mutex::new(Vec::new()));
    let told = rates.clone();
    let compare = move |_: &Clock, At { rank, .. }: At| {
        if rank == 0 {
            told.lock().unwrap().push(fio(&folder, ranks, bytes));
        }
    };
    let (clock, total) = train(flags, dir, "--checkpoint-wait", Box::new(compare));
    let seconds = |until: Moment| -> Vec<f64> {
        saves(flags).map(|steps| clock.seconds((steps - 1, Moment::Copies), (steps, until))).collect()
    };
    let written: Vec<f64> =
        seconds(Moment::Published).into_iter().map(|seconds| total as f64 / 1e9 / seconds).collect();
    let fio: Vec<f64> = rates.lock().unwrap().iter().skip(1).take(written.len()).copied().collect();
    show("a save while training waits, until it has its name", &written, "GB/s");
    show("until training goes on: older ones are removed, too", &seconds(Moment::Saved), "s");
    show("fio, flushed", &fio, "GB/s");
    show("share of fio (at least 0.8)", &ratios(&written, &fio), "");
}

/// Returns the GB/s at which `fio` writes and flushes a file of `bytes` bytes per rank, with the
/// better of two sizes of blocks.
fn fio(folder: &Path, ranks: usize, bytes: u64) -> f64 {
    let rate = |(block, depth): (&str, u32)| {
        let output = Command::new("fio")
            .args(["--name=job", "--ioengine=libaio", "--direct=1", "--rw=write", "--end_fsync=1"])
            .args([format!("--directory={}", folder.display()), format!("--bs={block}")])
            .args([format!("--iodepth={depth}")])
            .args([format!("--numjobs={ranks}"), format!("--size={bytes}")])
            .args(["--group_reporting", "--output-format=json"])
            .output()
            .expect("fio is installed (Debian: apt-get install fio)");
        let text = String::from_utf8_lossy(&output.stdout);
        let json: serde_json::Value =
            serde_json::from_str(&text[text.find('{').unwrap_or_else(|| panic!("fio says: {text}"))..])
                .unwrap();
        // Of a group: all bytes, by the time until its slowest job has flushed.
        json["jobs"][0]["write"]["bw_bytes"].as_f64().unwrap() / 1e9
    };
    let best = [("1M", 8), ("4M", 4)].map(rate).into_iter().fold(0.0, f64::max);
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_name().to_string_lossy().starts_with("job.") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    best
}

fn ratios(one: &[f64], other: &[f64]) -> Vec<f64> {
    one.iter().zip(other).map(|(one, other)| one / other).collect()
}

/// Prints the median of `values`, and the smallest and the largest.
fn show(what: &str, values: &[f64], unit: &str) {
    let (low, high) = range(values);
    println!("{what:52} {:>8.3} {unit} ({low:.3} to {high:.3})", median(values));
}
