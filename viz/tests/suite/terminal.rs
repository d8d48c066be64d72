//! Tests that the terminal is restored, whatever ends the screen.

use crate::pty::{Pty, end_with_its_terminal, promptly};
use crate::support::{path, recorded};
use rustix::process::{Pid, Signal, kill_process_group};
use screen::DisplayOptions;
use screen::app::{App, EventSource};
use std::process::Command;
use std::time::Instant;

/// Begins the screen.
pub(crate) const SCREEN: &str = "\x1b[?1049h";
/// Ends every picture.
const DRAWN: &str = "\x1b[?2026l";

/// Starts a replay of a recorded run, which waits for keys.
pub(crate) fn replay() -> Pty {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viz"));
    command.arg("replay").arg(path("zero3", "events")).arg("--paused");
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect(SCREEN);
    pty.expect_on_screen("quit");
    pty
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
