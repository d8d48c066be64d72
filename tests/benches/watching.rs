//! What being watched costs a run: `cargo bench -p tests --bench watching`.
//!
//! * The screen: a run with its screen open in a pseudo-terminal. The CPU time of the thread that draws and of the one
//!   that collects events, as a share of the whole process's, from the first picture to the last step.
//! * The recording: runs that nobody listens to and recorded ones in pairs, one right after the other and in alternating
//!   order. CPU time of the process per step, so that other programs on the machine matter little, and the median wall
//!   time of a step beside it. What counts is the median of the differences within the pairs.
//!
//! Flags after `--`: `--stages ddp,zero1,zero2,zero3`, `--model tiny`, `--gpus 4`, `--steps 40`, `--rounds 7`, and
//! `--strict` to fail if one of the two takes more than one percent.

#[allow(dead_code, reason = "the visualizer's own tests use the rest")]
#[path = "../../viz/tests/suite/pty.rs"]
mod pty;

use clap::Parser;
use planner::Stage;
use planner::table::{Format, Table};
use pty::Pty;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;
use tests::train;

/// The most that either may take.
const LIMIT: f64 = 0.01;
/// Names the stage that this program is to train as if it were that stage's own.
const CHILD: &str = "ZERO_BENCH_STAGE";

#[derive(Parser)]
struct Flags {
    #[arg(long, value_delimiter = ',', default_value = "ddp,zero1,zero2,zero3")]
    stages: Vec<String>,
    #[arg(long, default_value = "tiny")]
    model: String,
    #[arg(long, default_value_t = 4)]
    gpus: usize,
    #[arg(long, default_value_t = 40)]
    steps: u32,
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Fail if a limit is not kept.
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
    let flags = Flags::parse();
    let dir = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let stages: Vec<Stage> = flags.stages.iter().map(|name| stage(name)).collect();
    let screens: Vec<f64> = stages.iter().map(|&stage| screens(&flags, stage, dir.path())).collect();
    let recordings: Vec<f64> = stages.iter().map(|&stage| recordings(&flags, stage, dir.path())).collect();
    let kept = screens.iter().chain(&recordings).all(|share| *share <= LIMIT);
    println!("limit for each: {:.0} % {}", 100.0 * LIMIT, if kept { "kept" } else { "NOT KEPT" });
    if kept || !flags.strict { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn as_program(stage: &str) -> ExitCode {
    match self::stage(stage) {
        Stage::Ddp => trainer::main::<zero0_ddp::Ddp>(),
        Stage::Zero1 => trainer::main::<zero1::Zero1>(),
        Stage::Zero2 => trainer::main::<zero2::Zero2>(),
        Stage::Zero3 => trainer::main::<zero3::Zero3>(),
    }
}

fn short(stage: Stage) -> String {
    stage.label().to_lowercase().replace('-', "")
}

fn stage(name: &str) -> Stage {
    let known = Stage::ALL.into_iter().find(|&stage| short(stage) == name);
    known.unwrap_or_else(|| panic!("--stages {name}: choose from ddp, zero1, zero2, zero3"))
}

/// CPU seconds so far.
#[derive(Clone, Copy)]
struct Cpu {
    process: f64,
    screen: f64,
    collector: f64,
}

impl Cpu {
    /// Of the program with this process id: its main thread draws, the one called `events` collects.
    fn of(id: u32) -> Self {
        let tasks = format!("/proc/{id}/task");
        let name = |task: &PathBuf| read(&task.join("comm")).trim() == "events";
        let entries = std::fs::read_dir(&tasks).unwrap_or_else(|error| panic!("{tasks}: {error}"));
        let collector = entries.flatten().map(|entry| entry.path()).find(name);
        let collector = collector.unwrap_or_else(|| panic!("no thread of {id} collects events"));
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

/// `stat` has, after the name in parentheses, user and system time as the 12th and 13th field, in hundredths of a second;
/// threads that have ended count.
fn process_seconds(id: u32) -> f64 {
    let text = read(&PathBuf::from(format!("/proc/{id}/stat")));
    let fields = text.rsplit(") ").next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() * 0.01
}

/// Runs with a screen; the median share that drawing and collecting take.
fn screens(flags: &Flags, stage: Stage, dir: &Path) -> f64 {
    let mut table = Table::numbers("CPU seconds", ["process", "screen", "collector", "share"]);
    let runs: Vec<Cpu> = (0..flags.rounds.div_ceil(2)).map(|_| screen(flags, stage, dir)).collect();
    for (round, cpu) in runs.iter().enumerate() {
        let seconds = [cpu.process, cpu.screen, cpu.collector].map(|seconds| format!("{seconds:.3}"));
        let [process, screen, collector] = seconds;
        table.row(format!("run {}", round + 1), [process, screen, collector, percent(cpu.share())]);
    }
    let share = median(runs.iter().map(|cpu| cpu.share()).collect());
    println!("{stage} with its screen open, 120×40\n\n{}", table.render(Format::Terminal));
    println!("median share of drawing and collecting: {}\n", percent(share));
    share
}

fn screen(flags: &Flags, stage: Stage, dir: &Path) -> Cpu {
    let program = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    let mut command = Command::new(program);
    command.args(flags.run().split_whitespace()).env(CHILD, short(stage)).env("XDG_RUNTIME_DIR", dir);
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect("\x1b[?1049h");
    // As long as it takes: the machine may be busy, and the run long.
    pty.patience = Duration::from_secs(3600);
    let before = Cpu::of(pty.id());
    pty.expect_on_screen(&format!("{stage} is done"));
    let cpu = Cpu::of(pty.id()).since(before);
    pty.send("q");
    pty.wait();
    cpu
}

/// What a run took per step.
#[derive(Clone, Copy)]
struct Cost {
    cpu: f64,
    wall: f64,
}

/// Pairs of runs; the median of what recording adds to the CPU time of a step.
fn recordings(flags: &Flags, stage: Stage, dir: &Path) -> f64 {
    let mut table = Table::numbers("ms per step", ["CPU", "recorded", "added", "wall", "recorded", "added"]);
    let recorded = format!("{} --record {}", flags.run(), dir.join("run.events").display());
    cost(flags, stage, &flags.run());
    let mut added = Vec::new();
    for round in 0..flags.rounds {
        let plain_first = round % 2 == 0;
        let early = plain_first.then(|| cost(flags, stage, &flags.run()));
        let watched = cost(flags, stage, &recorded);
        let plain = early.unwrap_or_else(|| cost(flags, stage, &flags.run()));
        let more = |plain: f64, watched: f64| (watched - plain) / plain;
        let (cpu, wall) = (more(plain.cpu, watched.cpu), more(plain.wall, watched.wall));
        added.push((cpu, wall));
        let row = [
            millis(plain.cpu),
            millis(watched.cpu),
            percent(cpu),
            millis(plain.wall),
            millis(watched.wall),
            percent(wall),
        ];
        table.row(format!("pair {}", round + 1), row);
    }
    let cpu = median(added.iter().map(|pair| pair.0).collect());
    let wall = median(added.iter().map(|pair| pair.1).collect());
    println!("{stage}, recorded\n\n{}", table.render(Format::Terminal));
    println!("median of the pairs: {} CPU time, {} wall time per step\n", percent(cpu), percent(wall));
    cpu
}

/// CPU time of the process and the median wall time, per step.
fn cost(flags: &Flags, stage: Stage, words: &str) -> Cost {
    let before = own_seconds();
    let report = train(stage, words).unwrap_or_else(|failure| panic!("{failure}"));
    let cpu = (own_seconds() - before) / f64::from(flags.steps);
    // The first step pays for first touches of memory.
    let wall = median(report.steps.iter().skip(1).map(|step| step.seconds).collect());
    Cost { cpu, wall }
}

fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn millis(seconds: f64) -> String {
    format!("{:.2}", seconds * 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}
