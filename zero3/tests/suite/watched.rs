//! Real runs that others watch.

use crate::pty::Pty;
use crate::screen::{PATIENCE, attach, json, zero3};
use events::runs;
use rustix::process::Signal;
use screen::{DisplayOptions, View};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Not a test by itself: this program again, following the run that it finds.
#[test]
fn a_viewer() {
    let Some(directory) = std::env::var_os("ZERO_TEST_RUNS") else { return };
    let attachment = attach(Path::new(&directory));
    screen::attached(vec![attachment], Vec::new(), false, Some(View::Overview), DisplayOptions::default())
        .unwrap();
}

fn viewer(runtime: &Path) -> Pty {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "watched::a_viewer", "--nocapture"])
        .env("ZERO_TEST_RUNS", runtime.join("zero-runs"));
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect_on_screen("live");
    pty.expect_on_screen("tokens/s");
    pty
}

/// Steps of a run. Over its link they last long enough for viewers to come, and mostly wait.
const STEPS: usize = 100;

struct Run {
    child: Child,
    started: Instant,
    report: std::path::PathBuf,
}

impl Run {
    fn start(runtime: &Path, name: &str) -> Self {
        let report = runtime.join(name);
        let flags = format!("--steps {STEPS} --link 1ms,1GB/s --headless --report {}", report.display());
        let mut command = zero3(&flags, runtime);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Run { child, started: Instant::now(), report }
    }

    /// Waits until viewers can find it.
    fn expect_listed(&mut self, runtime: &Path) {
        while runs::list(&runtime.join("zero-runs")).unwrap().is_empty() {
            assert!(self.started.elapsed() < PATIENCE && self.is_running());
            std::thread::yield_now();
        }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Losses bit by bit, the hash of the weights, and how long it took.
    fn end(mut self) -> (Vec<u64>, String, Duration) {
        assert!(self.child.wait().unwrap().success());
        let took = self.started.elapsed();
        let report = json(&self.report);
        let losses = report["steps"].as_array().unwrap().iter();
        let losses = losses.map(|row| row["loss"].as_f64().unwrap().to_bits()).collect();
        (losses, report["weights_blake3"].as_str().unwrap().to_string(), took)
    }
}

/// One viewer is killed, another one is stopped and left so: it does not read its socket until the
/// run is over.
#[test]
fn viewers_that_are_killed_or_stall_leave_a_run_unaffected() {
    let dir = tempfile::tempdir().unwrap();
    let (losses, weights, alone) = Run::start(dir.path(), "alone.json").end();

    let mut run = Run::start(dir.path(), "watched.json");
    run.expect_listed(dir.path());
    let killed = viewer(dir.path());
    killed.signal(Signal::KILL);
    let stalled = viewer(dir.path());
    stalled.signal(Signal::STOP);
    stalled.expect_stopped();
    assert!(run.is_running(), "the viewers came too late to tell anything");
    let watched = run.end();
    stalled.expect_stopped();

    assert_eq!(losses.len(), STEPS);
    assert_eq!(watched.0, losses);
    assert_eq!(watched.1, weights);
    // The viewers took processor time while they lived; a run that waited for one would not end at
    // all.
    assert!(watched.2 < alone * 4 + Duration::from_secs(5), "{:?} instead of {alone:?}", watched.2);
}
