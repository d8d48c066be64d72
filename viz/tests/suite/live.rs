//! Tests of the screen of a live run: its keys, its end, and panics of the run's threads.

use crate::pty::{Pty, promptly};
use crate::simulate::SimulationPlan;
use crate::terminal::SCREEN;
use events::{Boundary, Class, Emitter, Hub, HubOptions, Pace, Pass, Place, What, channel};
use rustix::process::Signal;
use screen::{DisplayOptions, LiveOptions, View};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Starts this test program as a run with a screen: see [`a_run_with_a_screen`].
fn live(mode: &str) -> Pty {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "live::a_run_with_a_screen", "--nocapture"]).env("VIZ_TEST_RUN", mode);
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect(SCREEN);
    pty.expect_on_screen("quit");
    pty
}

#[test]
fn a_live_run_is_paused_stepped_and_ended() {
    let mut pty = live("steady");
    pty.expect_on_screen("live");
    pty.send(" ");
    pty.expect_on_screen("held");
    pty.send(".");
    pty.send("\r");
    pty.expect_on_screen("live");
    promptly(|| {
        let mut pty = live("steady");
        pty.expect_on_screen("live");
        pty.send("qy");
        let time = pty.expect_restored();
        pty.expect("RETURNED Ok(Quit) stopped=true");
        assert!(pty.wait().success());
        time
    });
}

/// Neither pasted text nor a key next to the intended one ends a run.
#[test]
fn stray_keys_and_pasted_text_end_no_run() {
    let mut pty = live("steady");
    pty.expect_on_screen("live");
    assert!(pty.output().contains("\x1b[?2004h"), "the terminal is asked to mark what is pasted");
    pty.send("\x1b[200~qy 3\x1b[201~?");
    pty.expect_on_screen("this list");
    pty.send("q");
    pty.expect_gone("this list");
    assert!(!pty.now().contains("the run is not over"));
    pty.send("q");
    pty.expect_on_screen("the run is not over");
    pty.send("qqj 4\x1b");
    pty.expect_gone("the run is not over");
    pty.send("4");
    pty.expect_on_screen("communication below");
    pty.send("qd");
    pty.expect("\x1b[?2004l");
    pty.expect("RETURNED Ok(Detached) stopped=false");
}

#[test]
fn a_finished_run_stays_until_it_is_left() {
    let mut pty = live("short");
    pty.expect_on_screen("ZeRO-3 is done");
    pty.send("q");
    pty.expect_restored();
    pty.expect("RETURNED Ok(Quit)");
}

#[test]
fn a_rank_that_panics_is_shown() {
    let mut pty = live("rank panics");
    pty.expect_on_screen("the run has failed");
    pty.expect_on_screen("rank 1 lost its way");
    assert!(!pty.cooked());
    pty.send("q");
    pty.expect_restored();
    pty.expect("RETURNED Ok(Quit)");
}

#[test]
fn a_panic_elsewhere_closes_the_screen_at_once() {
    promptly(|| {
        let mut pty = live("helper panics");
        pty.expect_on_screen("live");
        pty.signal(Signal::USR1);
        let time = pty.expect_restored();
        pty.expect("the helper is gone");
        pty.expect("RETURNED Err(Panicked");
        time
    });
}

/// Not a test by itself: other tests run it in a terminal of its own.
#[test]
fn a_run_with_a_screen() {
    let Ok(mode) = std::env::var("VIZ_TEST_RUN") else { return };
    let (pace, stop) = (Arc::new(Pace::default()), Arc::new(AtomicBool::new(false)));
    let start = Instant::now();
    let (emitters, receivers): (Vec<_>, Vec<_>) =
        (0..2).map(|rank| channel(rank, 1 << 12, start, Some(pace.clone()))).unzip();
    let hub = Hub::start(SimulationPlan::new(3, 2).run().header, receivers, HubOptions::default()).unwrap();
    hush_ranks();
    let helper = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGUSR1, helper.clone()).unwrap();
    let (shown, stopped) = std::thread::scope(|scope| {
        for (rank, emitter) in emitters.into_iter().enumerate() {
            let (mode, stop) = (mode.clone(), stop.clone());
            let name = format!("rank {rank}");
            let body = move || launched(rank, &emitter, &mode, &stop);
            std::thread::Builder::new().name(name).spawn_scoped(scope, body).unwrap();
        }
        if mode == "helper panics" {
            let stop = stop.clone();
            scope.spawn(move || {
                let wait = || while !helper.load(Ordering::Acquire) && !stop.load(Ordering::Acquire) {};
                let _ = catch_unwind(AssertUnwindSafe(|| {
                    wait();
                    panic!("the helper is gone");
                }));
            });
        }
        let (view, display) = (View::Overview, DisplayOptions::default());
        let options = LiveOptions { paused: false, pace: 1.0, view, display };
        let shown = screen::live(hub.subscribe(), pace, options, stop.clone());
        // A detached run would continue.
        (shown, stop.swap(true, Ordering::AcqRel))
    });
    hub.finish();
    println!("RETURNED {shown:?} stopped={stopped}");
}

/// Does what a launcher must do for the screen: reports ranks' panics as events and does not print
/// them.
pub(crate) fn hush_ranks() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !std::thread::current().name().is_some_and(|name| name.starts_with("rank ")) {
            usual(info);
        }
    }));
}

/// Does what a launcher does for a rank.
fn launched(rank: usize, emitter: &Emitter, mode: &str, stop: &AtomicBool) {
    let caught = catch_unwind(AssertUnwindSafe(|| train(rank, emitter, mode, stop)));
    if let Err(payload) = caught {
        let message = payload.downcast_ref::<&str>().unwrap_or(&"?").to_string();
        emitter.emit(What::Failed { message });
    }
}

/// Takes steps until `stop` is set, or as `mode` says.
pub(crate) fn train(rank: usize, emitter: &Emitter, mode: &str, stop: &AtomicBool) {
    let steps = if mode == "short" { 3 } else { u32::MAX };
    for step in 0..steps {
        emitter.boundary(Boundary::Step);
        if stop.load(Ordering::Acquire) {
            return;
        }
        emitter.emit(What::StepStarted { step });
        for unit in 0..3 {
            emitter.boundary(Boundary::Unit);
            emitter.emit(What::PassStarted { pass: Pass::Forward, unit, micro: 0 });
            let (place, class) = (Place::Device, Class::Activations);
            emitter.emit(What::Memory { place, class, delta: 1000, live: 1000 * u64::from(unit + 1) });
            let work = Instant::now();
            while work.elapsed() < Duration::from_millis(2) {
                std::thread::yield_now();
            }
            emitter.emit(What::PassFinished { pass: Pass::Forward, unit, micro: 0 });
        }
        assert!(mode != "rank panics" || rank != 1 || step < 5, "rank 1 lost its way");
        let (loss, grad_norm, lr, tokens, seconds) = (2.0, 1.0, 1e-3, 128, 0.006);
        emitter.emit(What::StepFinished { step, loss, grad_norm, lr, tokens, seconds });
    }
    emitter.emit(What::Finished { peaks: vec![3000; 7], total_peak: 3000, sent: vec![0; 8] });
}
