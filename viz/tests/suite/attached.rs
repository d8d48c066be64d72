//! Tests of the program on runs of other processes.

use crate::live::{hush_ranks, train};
use crate::pty::Pty;
use crate::simulate::SimulationPlan;
use crate::support::path;
use events::{Attachment, Control, Hub, HubOptions, Message, Pace, channel, runs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any step of a test takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A run in a process of its own. Dropping it kills the process.
struct Run {
    child: Child,
    runtime: TempDir,
    name: String,
}

impl Run {
    fn start() -> Self {
        let runtime = tempfile::tempdir().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "attached::a_run_to_watch", "--nocapture"]).env("VIZ_TEST_WATCHED", "1");
        command.env("XDG_RUNTIME_DIR", runtime.path()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let started = Instant::now();
        let name = loop {
            if let Some(run) = runs::list(&runtime.path().join("zero-runs")).unwrap().pop() {
                break run.attachment.name;
            }
            assert!(started.elapsed() < TIMEOUT, "the run never opened its socket");
            std::thread::yield_now();
        };
        Run { child, runtime, name }
    }

    /// Returns a command for `viz` with `arguments` that finds this run.
    fn viz(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viz"));
        command.args(arguments).env("XDG_RUNTIME_DIR", self.runtime.path());
        command
    }

    fn on_screen(&self, arguments: &[&str]) -> Pty {
        let mut pty = Pty::start(&mut self.viz(arguments), (120, 40));
        pty.expect_on_screen("live");
        pty
    }

    /// Connects another viewer.
    fn follow(&self) -> Attachment {
        let started = Instant::now();
        loop {
            match runs::attach(&self.directory(), &self.name) {
                Ok(attachment) => return attachment,
                Err(error) => assert!(started.elapsed() < TIMEOUT, "{error}"),
            }
        }
    }

    /// Returns what `viz attach` lists, once that contains `text`: a busy run may not answer at
    /// once.
    fn expect_listed(&self, text: &str) -> String {
        let started = Instant::now();
        loop {
            let listed = String::from_utf8(self.viz(&["attach"]).output().unwrap().stdout).unwrap();
            if listed.contains(text) {
                return listed;
            }
            assert!(started.elapsed() < TIMEOUT, "{text:?} is never listed: {listed}");
        }
    }

    fn directory(&self) -> PathBuf {
        self.runtime.path().join("zero-runs")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: other tests start it as a process of its own, and kill it.
#[test]
fn a_run_to_watch() {
    if std::env::var_os("VIZ_TEST_WATCHED").is_none() {
        return;
    }
    let pace = Arc::new(Pace::default());
    let start = Instant::now();
    let (emitters, receivers): (Vec<_>, Vec<_>) =
        (0..2).map(|rank| channel(rank, 1 << 12, start, Some(pace.clone()))).unzip();
    let options = HubOptions { socket: true, pace: Some(pace), ..HubOptions::default() };
    let hub = Hub::start(SimulationPlan::new(3, 2).run().header, receivers, options).unwrap();
    hush_ranks();
    std::thread::scope(|scope| {
        for (rank, emitter) in emitters.into_iter().enumerate() {
            scope.spawn(move || train(rank, &emitter, "steady", &AtomicBool::new(false)));
        }
    });
    hub.finish();
}

/// True if the run emits an event within this time.
fn continues(run: &mut Attachment, within: Duration) -> bool {
    run.poll().unwrap();
    let since = Instant::now();
    while since.elapsed() < within {
        if run.poll().unwrap().iter().any(|message| matches!(message, Message::Batch(_))) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

#[test]
fn a_run_is_found_by_the_beginning_of_its_name_and_left_alone() {
    let run = Run::start();
    let listed = run.expect_listed(&run.name);
    assert!(listed.contains("viz attach NAME"), "{listed}");
    let mut other = run.follow();
    let mut pty = run.on_screen(&["attach", &run.name[..5], "--view", "streams"]);
    pty.expect_on_screen("communication below");
    pty.send(" ");
    pty.expect_on_screen("looking back");
    assert!(continues(&mut other, TIMEOUT), "a viewer that only watches has held the run");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

#[test]
fn a_viewer_with_control_holds_and_resumes_the_run() {
    let run = Run::start();
    let mut other = run.follow();
    let mut pty = run.on_screen(&["attach", &run.name, "--control"]);
    assert!(continues(&mut other, TIMEOUT));
    pty.send(" ");
    pty.expect_on_screen("‖ held");
    let held = Instant::now();
    while continues(&mut other, Duration::from_millis(500)) {
        assert!(held.elapsed() < TIMEOUT, "the run continues although it is held");
    }
    pty.send("\r");
    pty.expect_on_screen("● live");
    assert!(continues(&mut other, TIMEOUT), "the run was not resumed");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

/// A run whose process is killed is not finished.
#[test]
fn a_run_that_is_killed_is_lost() {
    let mut run = Run::start();
    let mut pty = run.on_screen(&["attach", &run.name]);
    run.child.kill().unwrap();
    pty.expect_on_screen("✗ connection lost");
    pty.expect_on_screen("the connection to ZeRO-3 is lost");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

/// A run that another viewer holds or slows is shown so, also to a viewer that comes later.
#[test]
fn viewers_see_what_others_ask_of_the_run() {
    let run = Run::start();
    let mut other = run.follow();
    let (mut early, attach) = (run.on_screen(&["attach", &run.name, "--control"]), ["attach", &run.name]);
    other.control(Control::Pause).unwrap();
    early.expect_on_screen("‖ held");
    let mut late = Pty::start(&mut run.viz(&attach), (120, 40));
    late.expect_on_screen("‖ held");
    early.send("\x1b[D");
    early.expect_on_screen("held, looking back");
    early.send("\x1b[F");
    other.control(Control::Slow(0.5)).unwrap();
    early.expect_on_screen("● live ×1/2");
    late.expect_on_screen("● live ×1/2");
    other.control(Control::Resume).unwrap();
    early.expect_gone("×1/2");
    assert!(continues(&mut other, TIMEOUT));
}

/// The recording follows the run, whichever is named first.
#[test]
fn a_recording_is_compared_with_a_run_in_progress() {
    let run = Run::start();
    let recording = path("zero1", "events");
    let recording = recording.to_str().unwrap();
    for arguments in [["compare", recording, &run.name], ["compare", &run.name, recording]] {
        let mut pty = run.on_screen(&arguments);
        pty.expect_on_screen(" ZeRO-3   ZeRO-1 ");
        pty.send("q");
        pty.expect_restored();
        assert!(pty.wait().success());
    }
    let missing = run.viz(&["compare", recording, "no-such-run"]).output().unwrap();
    let error = String::from_utf8(missing.stderr).unwrap();
    assert!(error.contains("no-such-run is not a file, and no run is called no-such-run"), "{error}");
}

/// Without a name the only run is shown; where there is no terminal it is listed, with what it has
/// reached.
#[test]
fn the_only_run_needs_no_name() {
    let run = Run::start();
    let mut pty = run.on_screen(&["attach"]);
    pty.send("q");
    pty.expect_restored();
    let row = run.expect_listed("2.0000");
    let [titles, row] = [0, 1].map(|line| row.lines().nth(line).unwrap());
    assert!(titles.starts_with("run ") && row.starts_with(&run.name) && row.ends_with("CPU"), "{row}");
    assert_eq!(titles.find("loss"), row.find("2.0000"), "{titles}\n{row}");
    assert!(row.chars().count() < 80, "{row}");
}

/// Flags about the terminal may follow the command.
#[test]
fn display_flags_may_stand_anywhere() {
    let run = Run::start();
    for arguments in [["--ascii", "attach"], ["attach", "--ascii"]] {
        let mut pty = run.on_screen(&arguments);
        pty.expect_on_screen("+- rank 0 --");
        pty.send("q");
        pty.expect_restored();
    }
}
