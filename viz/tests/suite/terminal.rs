//! Tests that the terminal is restored, whatever ends the screen.

use crate::pty::{Pty, end_with_its_terminal, promptly};
use crate::simulate::SimulationPlan;
use crate::support::{path, recorded};
use events::{Boundary, Class, Emitter, Hub, HubOptions, Pace, Pass, Place, What, channel};
use rustix::process::{Pid, Signal, kill_process_group};
use screen::app::{App, EventSource};
use screen::{DisplayOptions, LiveOptions, View};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SCREEN: &str = "\x1b[?1049h";
/// Ends every picture.
const DRAWN: &str = "\x1b[?2026l";

fn replay() -> Pty {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viz"));
    command.arg("replay").arg(path("zero3", "events")).arg("--paused");
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect(SCREEN);
    pty.expect_on_screen("quit");
    pty
}

/// Starts this test program as a run with a screen: see [`a_run_with_a_screen`].
fn live(mode: &str) -> Pty {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "terminal::a_run_with_a_screen", "--nocapture"]).env("VIZ_TEST_RUN", mode);
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect(SCREEN);
    pty.expect_on_screen("quit");
    pty
}

#[test]
fn views_steps_sizes_and_quitting() {
    let mut pty = replay();
    assert!(!pty.cooked());
    pty.send("3");
    pty.expect_on_screen("Memory of rank 0");
    pty.send("\x1b[C\x1b[C");
    let mut player = recorded("zero3");
    (0..2).for_each(|_| player.step_forward(Boundary::Unit));
    pty.expect_on_screen(&format!("event {} ", screen::words::grouped(player.position())));
    pty.send("?");
    pty.expect_on_screen("this list");
    pty.send("\x1b\x1b");
    pty.expect_gone("this list");
    for _ in 0..20 {
        // A key that arrives with a change of size counts.
        pty.signal(Signal::WINCH);
        pty.send("4");
        pty.expect_on_screen("communication below");
        pty.signal(Signal::WINCH);
        pty.send("3");
        pty.expect_on_screen("Memory of rank 0");
    }
    pty.send("4");
    pty.resize(80, 24);
    pty.expect_on_screen("Streams  computation above");
    pty.resize(40, 5);
    pty.expect_on_screen("needs 40");
    pty.resize(200, 60);
    pty.expect_on_screen("Waits between ranks");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

/// `:` asks for a step. Text that names none is reported next to it, and esc makes keys do again
/// what they did.
#[test]
fn a_step_is_reached_by_its_number() {
    let mut pty = replay();
    pty.send(":3");
    pty.expect_on_screen(":3▏ a step's number, or r3 for rank 3 · enter goes there · esc closes");
    pty.send("\r");
    pty.expect_on_screen("step 3 of 0–4");
    pty.send(":99\r");
    pty.expect_on_screen(":99▏ there is no step 99: steps 0 to 4 are recorded");
    pty.send("\x7f\x7fq\r");
    pty.expect_on_screen(":q▏ q is not a step: type a number, or r and a rank");
    pty.send("\x1b");
    pty.expect_gone(":q");
    assert!(pty.now().contains("step 3 of 0–4"), "{}", pty.now());
    pty.send("3");
    pty.expect_on_screen("Memory of rank 0");
    pty.send(":r2\r");
    pty.expect_on_screen("Memory of rank 2");
    // A click with the left button on the card of rank 1.
    pty.send("1");
    pty.expect_on_screen("rank 1 ");
    pty.send("\x1b[<0;40;8M\x1b[<0;40;8m");
    pty.send("3");
    pty.expect_on_screen("Memory of rank 1");
    pty.send(":r9\r");
    pty.expect_on_screen(":r9▏ there is no rank 9: ranks are 0 to 3 · esc closes");
    // What was refused is replaced by the next number, or left by any other key.
    pty.send("r0");
    pty.expect_on_screen(":r0▏ ");
    pty.send("\r:98\r");
    pty.expect_on_screen(":98▏ there is no step 98");
    pty.send("4");
    pty.expect_on_screen(":4▏ ");
    pty.send("97\r");
    pty.expect_on_screen(":497▏ there is no step 497");
    pty.send("-");
    pty.expect_gone(":497");
}

/// The limit holds however fast keys arrive.
#[test]
fn keys_draw_no_more_than_fifteen_pictures_a_second() {
    let mut pty = replay();
    let drawn = |pty: &Pty| pty.output().matches("\x1b[?2026h").count();
    let (started, first) = (Instant::now(), drawn(&pty));
    let mut keys = "23".chars().cycle();
    while started.elapsed() < Duration::from_secs(2) {
        pty.send(&keys.next().unwrap().to_string());
        std::thread::sleep(Duration::from_millis(5));
    }
    pty.send("4");
    pty.expect_on_screen("communication below");
    let (pictures, seconds) = (drawn(&pty) - first, started.elapsed().as_secs_f64());
    assert!(pictures > 5, "the keys did nothing: {pictures} pictures");
    assert!(pictures as f64 <= 15.0 * seconds + 1.0, "{pictures} pictures in {seconds} s");
}

#[test]
fn quitting_and_signals_restore_the_terminal() {
    type End = Box<dyn Fn(&Pty)>;
    let keys = ["q", "\x03"].map(|key| Box::new(move |pty: &Pty| pty.send(key)) as End);
    let signals = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
    let signals = signals.map(|signal| Box::new(move |pty: &Pty| pty.signal(signal)) as End);
    for end in keys.into_iter().chain(signals) {
        promptly(|| {
            let mut pty = replay();
            end(&pty);
            let time = pty.expect_restored();
            assert!(pty.wait().success());
            time
        });
    }
}

/// Returns a terminal in which a shell runs `viz replay` with these words before and after it.
fn in_a_shell(before: &str, after: &str) -> Pty {
    let script = format!(r#"{before} "$0" replay "$1" --paused {after}"#);
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_viz")).arg(path("zero3", "events"));
    Pty::start(&mut command, (120, 40))
}

/// Without a terminal for keys there is no screen, and nothing to restore.
#[cfg(target_os = "linux")]
#[test]
fn a_terminal_that_cannot_be_opened_is_left_alone() {
    let mut pty = in_a_shell("exec setsid -w", "</dev/null");
    pty.expect("viz needs an interactive terminal");
    assert!(!pty.wait().success());
    assert!(!pty.output().contains("\x1b["), "{:?}", pty.output());
}

/// A script that runs the program stops with it, so that the shell that waits for the script gets
/// the terminal.
#[test]
fn suspended_it_stops_the_script_that_runs_it() {
    let mut pty = in_a_shell("", "; echo the script goes on");
    pty.expect(SCREEN);
    pty.expect_on_screen("quit");
    pty.send("\x1a");
    pty.expect_restored();
    pty.expect_stopped();
    let group = Pid::from_raw(pty.id() as i32).unwrap();
    kill_process_group(group, Signal::CONT).unwrap();
    pty.expect(SCREEN);
    pty.expect_on_screen("quit");
    pty.send("q");
    pty.expect_restored();
    pty.expect("the script goes on");
    assert!(pty.wait().success());
}

/// The program gets no signal, since the terminal is not its controlling one here. If a signal
/// interrupts the wait for keys, the program must still not read from the closed terminal:
/// `crossterm` would do so forever.
#[test]
fn a_program_ends_with_its_terminal() {
    for interrupted in [false, true] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_viz"));
        command.arg("replay").arg(path("zero3", "events")).arg("--paused");
        let ended = end_with_its_terminal(&mut command, DRAWN, "3", interrupted);
        assert!(ended.is_some_and(|status| status.success()), "without a terminal: {ended:?}");
    }
}

/// A picture of that size does not fit into memory.
#[test]
fn a_terminal_that_claims_to_be_huge_gets_a_picture_in_its_corner() {
    let mut pty = replay();
    pty.send("3");
    pty.expect_on_screen("Memory of rank 0");
    pty.claim(u16::MAX, u16::MAX);
    pty.expect("Memory of rank 0");
    pty.claim(120, 40);
    pty.send("4");
    pty.expect_on_screen("communication below");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

#[test]
fn suspended_it_gives_the_terminal_back_and_takes_it_again() {
    for by_key in [true, false] {
        promptly(|| {
            let mut pty = replay();
            if by_key {
                pty.send("\x1a")
            } else {
                pty.signal(Signal::TSTP)
            }
            let given_back = pty.expect_restored();
            pty.expect_stopped();
            let continued = Instant::now();
            pty.signal(Signal::CONT);
            pty.expect(SCREEN);
            pty.expect_on_screen("quit");
            let taken_again = continued.elapsed();
            assert!(!pty.cooked());
            pty.send("q");
            let left = pty.expect_restored();
            assert!(pty.wait().success());
            given_back.max(taken_again).max(left)
        });
    }
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

/// The box may be too small for all of a run's error.
#[test]
fn the_error_of_a_run_is_printed_when_the_screen_is_left() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viz"));
    command.arg("replay").arg(path("failed", "events")).arg("--paused");
    let mut pty = Pty::start(&mut command, (60, 14));
    pty.send("f");
    pty.expect_on_screen("… the rest is printed when the screen is left");
    pty.send("q");
    pty.expect_restored();
    pty.expect("Try one");
    assert!(pty.wait().success());
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

#[test]
fn a_panic_of_the_drawing_thread_gives_the_terminal_back_first() {
    promptly(|| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "terminal::a_screen_that_panics", "--nocapture"]).env("VIZ_TEST_PANIC", "1");
        let mut pty = Pty::start(&mut command, (120, 40));
        pty.expect(SCREEN);
        let time = pty.expect_restored();
        pty.expect("index out of bounds");
        assert!(!pty.wait().success());
        time
    });
}

/// Not a test by itself: a screen without a run, which is invalid and panics.
#[test]
fn a_screen_that_panics() {
    if std::env::var_os("VIZ_TEST_PANIC").is_none() {
        return;
    }
    let mut app = App::new(vec![recorded("zero3")], EventSource::Recording);
    app.players.clear();
    screen::recorded(app, None, DisplayOptions::default()).unwrap();
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
