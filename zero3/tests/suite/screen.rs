//! Real runs with a screen.

use crate::pty::{Pty, promptly};
use events::{Attachment, Message, What, runs};
use rustix::process::Signal;
use serde_json::Value;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SMALL: &str = "--gpus 2 --batch-size 1 --seq-len 16 --threads 1";
/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// A few layers, the hash of the weights and the tables, on a busy machine.
const SOON: Duration = Duration::from_secs(5);

pub(crate) fn zero3(flags: &str, runtime: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero3"));
    command.args(SMALL.split_whitespace()).args(flags.split_whitespace()).env("XDG_RUNTIME_DIR", runtime);
    command
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A run with its screen in a terminal.
fn on_screen(flags: &str, runtime: &Path) -> Pty {
    let mut pty = Pty::start(&mut zero3(flags, runtime), (120, 40));
    pty.expect_on_screen("quit");
    assert!(!pty.cooked());
    pty
}

#[test]
fn a_run_that_is_left_ends_cleanly_and_prints_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    for (end, code) in [(None, 130), (Some(Signal::INT), 130), (Some(Signal::TERM), 143)] {
        promptly(|| {
            let mut pty = on_screen("--steps 1000000", dir.path());
            // Step 0 is done then: the tables are of whole steps.
            comes_to(&pty, 1);
            match end {
                None => pty.send("qy"),
                Some(signal) => pty.signal(signal),
            }
            let time = pty.expect_restored();
            pty.expect("predicted");
            assert_eq!(pty.wait().code(), Some(code));
            time
        });
    }
}

/// It goes on without its screen and without its terminal, whole steps and all, and viewers find
/// it. An interrupt ends it.
#[test]
fn a_run_that_is_detached_goes_on_and_ignores_a_hangup() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("detached.json");
    let mut pty = on_screen(&format!("--steps 1000000 --report {}", report.display()), dir.path());
    comes_to(&pty, 1);
    pty.send("q");
    pty.expect_on_screen("the run is not over");
    pty.send("d");
    pty.expect_restored();
    pty.expect("the run continues in process");
    pty.expect("grad norm");
    pty.signal(Signal::HUP);
    let mut run = attach(&dir.path().join("zero-runs"));
    let shown = pty.output();
    assert!(shown.contains(&format!("viz attach {} shows it", run.name)), "{shown}");
    let begun = Instant::now();
    let finishes_a_step = |message: &Message| match message {
        Message::Batch(batch) => {
            batch.events.iter().any(|event| matches!(event.what, What::StepFinished { .. }))
        }
        _ => false,
    };
    while !run.poll().unwrap().iter().any(finishes_a_step) {
        assert!(begun.elapsed() < PATIENCE, "the run does not go on");
        std::thread::sleep(Duration::from_millis(5));
    }
    pty.signal(Signal::INT);
    pty.expect("predicted");
    assert_eq!(pty.wait().code(), Some(130));
    let report = json(&report);
    let steps = report["steps"].as_array().unwrap();
    assert!(steps.len() > 1 && (0u64..).zip(steps).all(|(number, step)| step["step"] == number));
}

/// Connects to the run that is listed in `directory`.
pub(crate) fn attach(directory: &Path) -> Attachment {
    let begun = Instant::now();
    loop {
        match runs::attach(directory, "zero3") {
            Ok(attachment) => return attachment,
            Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The run comes to its end although the screen shows its beginning.
#[test]
fn looking_back_holds_no_rank() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("looked-back.json");
    let mut pty = on_screen(&format!("--steps 30 --report {}", report.display()), dir.path());
    comes_to(&pty, 1);
    pty.send("\x1b[H");
    pty.expect_on_screen("‖ looking back");
    let begun = Instant::now();
    while !report.exists() {
        assert!(begun.elapsed() < PATIENCE, "the run is held:\n{}", pty.now());
        std::thread::sleep(Duration::from_millis(5));
    }
    pty.expect_on_screen("‖ looking back");
    pty.send("\x1b[F");
    pty.expect_on_screen("ZeRO-3 is done");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success(), "a run that is done is not interrupted");
}

/// A step of these takes minutes: the process must not wait for its end, and what it leaves is what
/// it began with.
#[test]
fn a_long_step_is_broken_off() {
    let dir = tempfile::tempdir().unwrap();
    let report = |name: &str| dir.path().join(name);
    let long = format!("--steps 1000 --grad-accum 6000 --report {}", report("ended.json").display());
    type End = fn(&Pty);
    let ends: [(End, i32); 3] =
        [(|pty| pty.send("qy"), 130), (|pty| pty.send("\x03"), 130), (|pty| pty.signal(Signal::TERM), 143)];
    for (end, code) in ends {
        let mut pty = on_screen(&long, dir.path());
        comes_to_show(&pty, "a block", |screen| screen.contains("block").then_some(()));
        end(&pty);
        let asked = Instant::now();
        pty.expect_restored();
        pty.expect("Ended before its first step was done");
        assert_eq!(pty.wait().code(), Some(code));
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
    }
    let still = format!("--headless --steps 1 --lr 1e-30 --report {}", report("still.json").display());
    assert!(zero3(&still, dir.path()).stdout(Stdio::null()).status().unwrap().success());
    let [ended, still] = ["ended.json", "still.json"].map(|name| json(&report(name)));
    assert_eq!(ended["steps"], Value::Array(Vec::new()));
    assert_eq!(ended["weights_blake3"], still["weights_blake3"]);
}

/// The step that stands on the screen.
fn step(screen: &str) -> Option<u64> {
    screen.split("step ").nth(1)?.split(' ').next()?.parse().ok()
}

/// Waits for step `number` to stand on the screen, or a later one, which is returned.
fn comes_to(pty: &Pty, number: u64) -> u64 {
    comes_to_show(pty, &format!("step {number}"), |screen| step(screen).filter(|&step| step >= number))
}

/// Waits for what `find` finds on the screen, and returns it. Asks for pictures, as a change of the
/// terminal's size does: a screen that has used its share of the processor and is not asked draws
/// once a second.
fn comes_to_show<T>(pty: &Pty, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        let screen = pty.now();
        if let Some(found) = find(&screen) {
            return found;
        }
        let goes_on = !screen.contains("the run has failed") && begun.elapsed() < PATIENCE;
        assert!(goes_on, "{what}?\n{screen}");
        pty.signal(Signal::WINCH);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// By the terminal's key, and by SIGSTOP, which no program can catch. Rank 1 is slow, so rank 0
/// waits all the time.
#[test]
fn a_run_that_was_stopped_for_longer_than_its_patience_goes_on() {
    let stops: [fn(&Pty); 2] = [|pty| pty.send("\x1a"), |pty| pty.signal(Signal::STOP)];
    std::thread::scope(|threads| {
        for stop in stops {
            threads.spawn(move || goes_on_after(stop));
        }
    });
}

fn goes_on_after(stop: fn(&Pty)) {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("stopped.json");
    let slow = "--steps 1000000 --timeout 1 --inject slow@rank1,step0";
    let mut pty = on_screen(&format!("{slow} --report {}", report.display()), dir.path());
    let stopped = Duration::from_secs(3);
    // The first steps are over: what follows is stopped in its midst.
    let before = comes_to(&pty, 3);
    stop(&pty);
    pty.expect_stopped();
    std::thread::sleep(stopped);
    pty.signal(Signal::CONT);
    pty.expect("\x1b[?1049h");
    comes_to(&pty, before + 2);
    pty.expect_on_screen("live");
    assert!(!pty.cooked());
    pty.send("qy");
    pty.expect_restored();
    pty.expect("predicted");
    assert_eq!(pty.wait().code(), Some(130));
    let report = json(&report);
    let steps = report["steps"].as_array().unwrap();
    let longest = steps.iter().map(|step| step["seconds"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(longest < stopped.as_secs_f64(), "the stop counts as run time: a step of {longest} s");
}

/// A step is of at least a tenth of a second: a hundred at this pace.
#[test]
fn a_run_begins_at_the_pace_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut pty = on_screen("--steps 1000000 --grad-accum 100 --pace 0.001", dir.path());
    pty.expect_on_screen("step 0 of 0–999999  ● live ×1/1000");
    assert!(!pty.shows("step 1 of", Duration::from_secs(3)), "{}", pty.now());
    pty.send("\r");
    pty.expect_on_screen("999999  ● live\n");
    let patience = Instant::now() + Duration::from_secs(30);
    while pty.now().contains("step 0 of") {
        assert!(Instant::now() < patience, "{}", pty.now());
        std::thread::sleep(Duration::from_millis(100));
    }
    pty.send("qy");
    pty.expect_restored();
    assert_eq!(pty.wait().code(), Some(130));
}

/// A paced step lasts ten times as long, but no longer in the report, nor does any part of it.
#[test]
fn a_report_counts_no_pause() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let flags = format!("--steps 1000000 --pace 0.1 --report {}", report.display());
    let mut pty = on_screen(&flags, dir.path());
    comes_to(&pty, 1);
    let seen = Instant::now();
    let first = comes_to(&pty, 1);
    let last = comes_to(&pty, first + 11);
    let lasted = seen.elapsed().as_secs_f64();
    pty.send("qy");
    pty.expect_restored();
    assert_eq!(pty.wait().code(), Some(130));
    let report = json(&report);
    // At least ten whole steps. A delay of one lengthens its pause tenfold.
    let between = |step: &&Value| (first + 1..last).contains(&step["step"].as_u64().unwrap());
    let steps = report["steps"].as_array().unwrap().iter().filter(between);
    let seconds: f64 = steps.map(|step| step["seconds"].as_f64().unwrap()).sum();
    assert!(2.0 * seconds < lasted, "{seconds} of {lasted} s");
    for rank in report["time"].as_array().unwrap() {
        let part = |name: &str| rank["phases"][name].as_f64().unwrap();
        let parts = part("data") + part("forward") + part("backward") + part("step");
        let seconds = rank["seconds"].as_f64().unwrap();
        assert!(parts < 1.1 * seconds, "{rank} of {seconds} s");
    }
}

/// Where a bar grows, too: what a step did is not lost with it.
#[test]
fn without_a_screen_a_terminal_shows_the_lines_that_a_file_would_get() {
    let dir = tempfile::tempdir().unwrap();
    let skipping = "--headless --steps 3 --precision fp16 --inject overflow@rank1,step1";
    let mut pty = Pty::start(&mut zero3(skipping, dir.path()), (120, 40));
    pty.expect("grad norm");
    pty.expect("overflow: skipped");
    pty.expect("predicted");
    assert!(pty.wait().success());
}

#[test]
fn a_rank_that_panics_is_explained_on_screen_and_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    promptly(|| {
        let mut pty = on_screen("--steps 1000 --inject panic@rank1,step3,backward", dir.path());
        pty.expect_on_screen("the run has failed");
        pty.expect_on_screen("rank 1: panic at");
        assert!(!pty.cooked(), "the screen stays");
        pty.send("\x1b");
        pty.expect_on_screen("✗");
        pty.send("q");
        let time = pty.expect_restored();
        pty.expect("error: rank 1: panic at");
        pty.expect("injected panic");
        assert_eq!(pty.wait().code(), Some(1));
        time
    });
}

/// The screen says which rank issued what before the words of the failure cover it, and after these
/// are put away.
#[test]
fn a_rank_that_left_out_a_collective_stands_out_on_screen() {
    let dir = tempfile::tempdir().unwrap();
    let mut pty = on_screen("--gpus 3 --steps 1000 --inject skip@rank2,step1", dir.path());
    pty.expect_on_screen("the run has failed");
    pty.expect_on_screen("rank 2 issued all-gather");
    pty.send("\x1b");
    pty.expect_on_screen("all-gather of embedding");
    pty.expect_on_screen("but rank 2: all-gather of block 0");
    let rows = pty.now();
    let failed = rows.lines().find(|row| row.contains('‖')).unwrap();
    let (before, after) = failed.split_once('✗').unwrap();
    assert!(before.contains('‖') && !after.contains('✗'), "rank 2's card alone is marked:\n{rows}");
    pty.send("q");
    pty.expect_restored();
    assert_eq!(pty.wait().code(), Some(1));
}

/// The ranks of a job are processes; its first one has the terminal.
#[test]
fn the_screen_of_a_job_shows_what_its_other_process_does() {
    let dir = tempfile::tempdir().unwrap();
    // Below the ports that systems give to connections, so that none takes it before rank 0.
    let is_free = |port: &u16| TcpStream::connect(("127.0.0.1", *port)).is_err();
    let first = 10_000 + (std::process::id() % 9_000) as u16;
    let port = (first..20_000).find(is_free).unwrap().to_string();
    let member = |rank: &str, flags: &str| {
        let mut command = zero3(&format!("--steps 3 {flags}"), dir.path());
        let set = [
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "127.0.0.1"),
            ("MASTER_PORT", port.as_str()),
        ];
        command.envs(set);
        command
    };
    let mut other = member("1", "--headless").stdout(Stdio::null()).spawn().unwrap();
    let mut pty = Pty::start(&mut member("0", "--view overview"), (120, 40));
    pty.expect_on_screen("ZeRO-3 is done");
    let screen = pty.now();
    let row = |word: &str| screen.lines().find(|row| row.contains(word)).unwrap_or_default();
    assert!(row("─ rank 0 ─").contains("─ rank 1 ─"), "{screen}");
    assert_eq!(row("✓ finished").matches("✓ finished").count(), 2, "{screen}");
    let held: Vec<&str> = row("■ parameters").split_whitespace().filter(|word| word.ends_with('M')).collect();
    assert!(held.len() == 2 && held[0] == held[1], "each holds its half of the parameters:\n{screen}");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success() && other.wait().unwrap().success());
}

#[test]
fn a_run_begins_held_is_stepped_and_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut pty = on_screen("--steps 40 --paused --view shards", dir.path());
    pty.expect_on_screen("held");
    pty.expect_on_screen("Held before the first event");
    pty.send(".");
    pty.expect_on_screen("The ranks set up");
    // To the first unit, and through it.
    let beyond = |pty: &mut Pty| {
        let (before, sent) = (pty.now(), Instant::now());
        pty.send(".");
        while pty.now() == before && sent.elapsed() < SOON {
            std::thread::sleep(Duration::from_millis(5));
        }
        pty.shows("All-gather of block 0", Duration::from_millis(500))
    };
    assert!((0..40).any(|_| beyond(&mut pty)), "steps lead nowhere");
    // Held as the pass begins: its unit is there while the next is on its way.
    pty.expect_on_screen("embedding   ▸ parameters  ■");
    pty.expect_on_screen("held");
    pty.send("\r");
    pty.expect_on_screen("ZeRO-3 is done");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}
