//! How much slower a run is while it is watched: `cargo bench -p tests --bench watching`.
//!
//! * The screen: a run with its screen open in a pseudo-terminal beside one without a screen. The
//!   CPU time of the thread that draws and of the one that collects events, as a share of the whole
//!   process's, from the first picture to the last step, is what counts. The difference of the
//!   steps' times is printed beside it; within a pair it is far from exact.
//! * The recording: a run without listeners and a recorded one side by side, at the same time, so
//!   that other work of the machine slows both. CPU time of each process per step, and its
//!   median step. What counts are the differences within the pairs: their median over all stages,
//!   and where it lies with 95 % confidence. Single pairs differ by more than the limit, so that a
//!   few settle nothing.
//!
//! Flags after `--`: `--stages zero0-ddp,zero1,zero2,zero3`, `--model tiny`, `--gpus 4`, `--steps
//! 40`, `--rounds 7`, and `--strict` to fail unless both are shown to take at most one percent.

#[allow(dead_code, reason = "the visualizer's own tests use the rest")]
#[path = "../../viz/tests/suite/pty.rs"]
mod pty;

use clap::Parser;
use prediction::Stage;
use pty::Pty;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use shell::table::{Format, Table};
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tests::median;

/// The most that either may take.
const LIMIT: f64 = 0.01;
/// Names the stage that this program is to train as if it were that stage's own.
const CHILD: &str = "ZERO_BENCH_STAGE";

#[derive(Parser)]
struct Flags {
    #[arg(long, value_delimiter = ',', value_enum, default_values_t = Stage::ALL)]
    stages: Vec<Stage>,
    #[arg(long, default_value = "tiny")]
    model: String,
    #[arg(long, default_value_t = 4)]
    gpus: usize,
    #[arg(long, default_value_t = 40)]
    steps: u32,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Fail unless the limits are shown to be kept.
    #[arg(long)]
    strict: bool,
    /// Cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Flags {
    fn run(&self) -> String {
        format!("--model {} --gpus {} --steps {} --threads 1", self.model, self.gpus, self.steps)
    }
}

fn main() -> ExitCode {
    if let Ok(stage) = std::env::var(CHILD) {
        return as_program(&stage);
    }
    let flags: Flags = shell::parse();
    let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let screens: Vec<f64> = flags.stages.iter().map(|&stage| screens(&flags, stage, dir.path())).collect();
    let pairs: Vec<Added> =
        flags.stages.iter().flat_map(|&stage| recordings(&flags, stage, dir.path())).collect();
    let [cpu, wall] =
        [Interval::of(pairs.iter().map(|pair| pair.cpu)), Interval::of(pairs.iter().map(|pair| pair.wall))];
    println!("recording, all {} pairs: {cpu} CPU time, {wall} wall time per step", pairs.len());
    let screen = screens.iter().fold(0.0, |most: f64, &share| most.max(share));
    let (low, high) = (cpu.low.max(wall.low), cpu.high.max(wall.high));
    println!("{}\n{}", verdict("the screen", screen, screen), verdict("recording", low, high));
    if screen.max(high) <= LIMIT || !flags.strict { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says whether a share between `low` and `high` keeps the limit.
fn verdict(what: &str, low: f64, high: f64) -> String {
    let words = if high <= LIMIT {
        "keeps"
    } else if low > LIMIT {
        "BREAKS"
    } else {
        "is not shown, by so few pairs, to keep"
    };
    format!("{what} {words} the limit of {}", percent(LIMIT))
}

/// A median and its interval of 95 % confidence.
struct Interval {
    median: f64,
    low: f64,
    high: f64,
}

impl Interval {
    /// By order statistics, which need no distribution: as many values are below the median as
    /// heads are tossed.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let rank = (count / 2.0 - 0.98 * count.sqrt()).floor();
        let (low, high) = if rank < 1.0 {
            (f64::NEG_INFINITY, f64::INFINITY)
        } else {
            (sorted[rank as usize - 1], sorted[sorted.len() - rank as usize])
        };
        Interval { median: median(&sorted), low, high }
    }
}

impl Display for Interval {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} to {})", percent(self.median), percent(self.low), percent(self.high))
    }
}

fn as_program(stage: &str) -> ExitCode {
    let stage = stages::named(stage).unwrap_or_else(|| panic!("{CHILD}: {stage:?} is no stage"));
    stages::main_from(stage, std::env::args_os())
}

/// Returns the command that runs this program as the one of `stage`, with sockets under `dir`.
fn program(flags: &Flags, stage: Stage, dir: &Path) -> Command {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(program);
    command.args(flags.run().split_whitespace()).env(CHILD, stage.package()).env("XDG_RUNTIME_DIR", dir);
    command
}

/// CPU seconds so far.
#[derive(Clone, Copy)]
struct Cpu {
    process: f64,
    screen: f64,
    collector: f64,
}

impl Cpu {
    /// Of the program with this process id: its main thread draws, the one called `events`
    /// collects.
    fn of(id: u32) -> Self {
        let tasks = format!("/proc/{id}/task");
        let name = |task: &PathBuf| read(&task.join("comm")).trim() == "events";
        let find = || {
            let entries = std::fs::read_dir(&tasks).unwrap_or_else(|error| panic!("{tasks}: {error}"));
            entries.flatten().map(|entry| entry.path()).find(name)
        };
        // A thread takes its name after it has started.
        let begin = Instant::now();
        let collector = loop {
            match find() {
                Some(collector) => break collector,
                None if begin.elapsed() < Duration::from_secs(5) => std::thread::yield_now(),
                None => panic!("no thread of {id} collects events"),
            }
        };
        let screen = thread_seconds(&PathBuf::from(format!("{tasks}/{id}")));
        Cpu { process: process_seconds(id), screen, collector: thread_seconds(&collector) }
    }

    fn since(self, before: Cpu) -> Cpu {
        Cpu {
            process: self.process - before.process,
            screen: self.screen - before.screen,
            collector: self.collector - before.collector,
        }
    }

    fn share(self) -> f64 {
        (self.screen + self.collector) / self.process
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// `schedstat` begins with the nanoseconds that the thread has run.
fn thread_seconds(task: &Path) -> f64 {
    let text = read(&task.join("schedstat"));
    let nanoseconds = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    nanoseconds.unwrap_or_else(|| panic!("{}: {text}", task.display())) * 1e-9
}

/// `stat` has, after the name in parentheses, user and system time as the 12th and 13th field, in
/// hundredths of a second; threads that have ended count.
fn process_seconds(id: u32) -> f64 {
    let text = read(&PathBuf::from(format!("/proc/{id}/stat")));
    let fields = text.rsplit(") ").next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 0.01
}

/// Runs with a screen; the median share that drawing and collecting take.
fn screens(flags: &Flags, stage: Stage, dir: &Path) -> f64 {
    let columns = ["process", "screen", "collects", "share", "a step", "alone", "added"];
    let mut table = Table::numbers("CPU seconds", columns);
    let mut shares = Vec::new();
    for round in 0..flags.rounds.div_ceil(2) {
        let unwatched = start(flags, stage, dir, None);
        let (cpu, step) = screen(flags, stage, dir);
        let beside = cost(flags, unwatched).cpu;
        let seconds = [cpu.process, cpu.screen, cpu.collector].map(|seconds| format!("{seconds:.3}"));
        let [process, screen, collector] = seconds;
        let added = percent((step - beside) / beside);
        let [step, beside] = [step, beside].map(|seconds| format!("{seconds:.4}"));
        let row = [process, screen, collector, percent(cpu.share()), step, beside, added];
        table.row(format!("run {}", round + 1), row);
        shares.push(cpu.share());
    }
    let share = median(&shares);
    println!("{stage} with its screen open, 120×40\n\n{}", table.render(Format::Terminal));
    println!("median share of drawing and collecting: {}\n", percent(share));
    share
}

/// CPU time from the first picture to the last step, and a step's, of a run with a screen.
fn screen(flags: &Flags, stage: Stage, dir: &Path) -> (Cpu, f64) {
    let mut command = program(flags, stage, dir);
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect("\x1b[?1049h");
    // As long as it takes: the machine may be busy, and the run long.
    pty.timeout = Duration::from_secs(3600);
    let before = Cpu::of(pty.id());
    pty.expect_on_screen(&format!("{stage} is done"));
    let cpu = Cpu::of(pty.id());
    pty.send("q");
    pty.wait();
    (cpu.since(before), cpu.process / f64::from(flags.steps))
}

/// What a run took per step.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
}

/// What recording adds to the CPU time of a step and to a step, as shares, in one pair of runs.
struct Added {
    cpu: f64,
    wall: f64,
}

/// Pairs of runs.
fn recordings(flags: &Flags, stage: Stage, dir: &Path) -> Vec<Added> {
    let mut table = Table::numbers("ms per step", ["CPU", "recorded", "added", "wall", "recorded", "added"]);
    let mut pairs = Vec::new();
    for round in 0..flags.rounds {
        let (plain, recorded) = pair(flags, stage, dir, round % 2 == 0);
        let more = |plain: f64, recorded: f64| (recorded - plain) / plain;
        let added = Added { cpu: more(plain.cpu, recorded.cpu), wall: more(plain.wall, recorded.wall) };
        let row = [
            millis(plain.cpu),
            millis(recorded.cpu),
            percent(added.cpu),
            millis(plain.wall),
            millis(recorded.wall),
            percent(added.wall),
        ];
        table.row(format!("pair {}", round + 1), row);
        pairs.push(added);
    }
    let of = |part: fn(&Added) -> f64| percent(median(&pairs.iter().map(part).collect::<Vec<_>>()));
    println!("{stage}, recorded\n\n{}", table.render(Format::Terminal));
    println!(
        "median of the pairs: {} CPU time, {} wall time per step\n",
        of(|pair| pair.cpu),
        of(|pair| pair.wall)
    );
    pairs
}

/// A run that is not recorded and one that is, at the same time; which starts first is the
/// caller's.
fn pair(flags: &Flags, stage: Stage, dir: &Path, plain_first: bool) -> (Cost, Cost) {
    let recording = dir.join("run.zero");
    let start = |recorded: bool| start(flags, stage, dir, recorded.then_some(recording.as_path()));
    let first = start(!plain_first);
    let second = start(plain_first);
    let (plain, recorded) = if plain_first { (first, second) } else { (second, first) };
    (cost(flags, plain), cost(flags, recorded))
}

/// A run without a screen, recorded or not, and its report.
fn start(flags: &Flags, stage: Stage, dir: &Path, recording: Option<&Path>) -> (Child, PathBuf) {
    let report = dir.join(if recording.is_some() { "recorded.json" } else { "plain.json" });
    let mut command = program(flags, stage, dir);
    command.arg("--headless").arg("--report").arg(&report).stdout(Stdio::null()).stdin(Stdio::null());
    if let Some(recording) = recording {
        command.arg("--record").arg(recording);
    }
    (command.spawn().unwrap_or_else(|error| panic!("{error}")), report)
}

/// CPU time of the process and its median step, once it has ended.
fn cost(flags: &Flags, (mut child, report): (Child, PathBuf)) -> Cost {
    let process = Pid::from_child(&child);
    // It stays to be asked for its times until it is waited for in earnest.
    let ended = waitid(WaitId::Pid(process), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    ended.unwrap_or_else(|error| panic!("{error}"));
    let cpu = process_seconds(child.id()) / f64::from(flags.steps);
    let status = child.wait().unwrap_or_else(|error| panic!("{error}"));
    assert!(status.success(), "{status}");
    let rows: serde_json::Value =
        serde_json::from_str(&read(&report)).unwrap_or_else(|error| panic!("{error}"));
    let steps = rows["steps"].as_array().into_iter().flatten();
    // The first step pays for first touches of memory.
    let wall = median(&steps.skip(1).filter_map(|step| step["seconds"].as_f64()).collect::<Vec<_>>());
    Cost { cpu, wall }
}

fn millis(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
