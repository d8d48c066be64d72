//! Tests of what keys and changes of size do in a replay.

use crate::pty::Pty;
use crate::support::recorded;
use crate::terminal::replay;
use events::Boundary;
use rustix::process::Signal;
use std::time::{Duration, Instant};

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
