//! Tests of the output to the terminal: colours that it can show, and warnings about incomplete
//! runs.

use crate::pty::Pty;
use crate::simulate::SimulationPlan;
use crate::support::path;
use events::{EventBatch, Growth, Message, Recorder, Recording};
use screen::app::{App, EventSource};
use screen::input::Input;
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{View, view, words};
use std::process::Command;

fn viz(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viz"));
    command.args(arguments);
    command
}

/// Returns which kinds of colours are written to a terminal whose environment has `variables`: 24
/// bits, 256, 16.
fn colours(flags: &[&str], variables: &[(&str, &str)]) -> [bool; 3] {
    let recording = path("zero3", "events");
    let arguments = [flags, &["replay", recording.to_str().unwrap(), "--paused"]].concat();
    let mut command = viz(&arguments);
    command.envs(variables.iter().copied());
    let mut pty = Pty::start(&mut command, (120, 40));
    pty.expect_on_screen("quit");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
    let written = pty.output();
    assert!(written.contains("\x1b[1m"), "bold is no colour");
    let number =
        |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
    let indices: Vec<u32> = written.split("8;5;").skip(1).filter_map(number).collect();
    [
        written.contains("8;2;"),
        indices.iter().any(|index| *index > 15),
        indices.iter().any(|index| *index < 16),
    ]
}

#[test]
fn colours_follow_the_environment_unless_a_flag_overrides_it() {
    let full = [true, false, false];
    let indexed = [false, true, false];
    let named = [false, false, true];
    let none = [false; 3];
    for (flags, variables, expected) in [
        (&[][..], &[][..], full),
        (&[], &[("COLORTERM", "24bit"), ("TERM", "xterm")], full),
        (&[], &[("COLORTERM", "")], indexed),
        (&[], &[("COLORTERM", ""), ("TERM", "xterm")], named),
        (&[], &[("NO_COLOR", "1")], none),
        (&["--colors", "256"], &[("NO_COLOR", "1")], indexed),
        (&["--colors", "never"], &[], none),
        (&["--colors", "truecolor"], &[("COLORTERM", ""), ("TERM", "xterm")], full),
    ] {
        assert_eq!(colours(flags, variables), expected, "{flags:?} {variables:?}");
    }
}

#[test]
fn a_locale_without_unicode_gets_ascii() {
    let recording = path("zero3", "events");
    for (locale, terminal, plain) in
        [("C", "xterm", true), ("de_DE.UTF-8", "xterm", false), ("C.UTF-8", "linux", true)]
    {
        let mut command = viz(&["replay", recording.to_str().unwrap(), "--paused"]);
        let mut pty = Pty::start(command.env("LC_ALL", locale).env("TERM", terminal), (120, 40));
        pty.expect_on_screen("quit");
        assert_eq!(pty.now().is_ascii(), plain, "{locale} {terminal}\n{}", pty.now());
    }
}

/// Without an argument, the program plays the recording that is part of it.
#[test]
fn without_arguments_it_plays_its_own_recording() {
    let mut pty = Pty::start(&mut viz(&[]), (120, 40));
    pty.expect_on_screen("ZeRO-3");
    pty.expect_on_screen("▶ ×1/20");
    pty.send("\r");
    pty.expect_on_screen("step 1 of 0–19");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

fn screen(timeline: Timeline, source: EventSource, width: u16) -> String {
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], source);
    app.view = View::Overview;
    rows(&app, width)
}

fn rows(app: &App, width: u16) -> String {
    let picture = view::picture(app, Theme::FULL, width, 24);
    picture
        .content
        .chunks(usize::from(width))
        .map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n")
        .collect()
}

#[test]
fn dropped_events_are_counted_on_the_smallest_screen() {
    let run = SimulationPlan::new(3, 4).run();
    for (dropped, told) in [(0, None), (1234, Some("1,234 dropped")), (12_345_678, Some("12.3M dropped"))] {
        let mut timeline = Timeline::live(run.header.clone(), "");
        timeline.push(Message::Batch(EventBatch { dropped, events: run.events.clone() }));
        let screen = screen(timeline, EventSource::Live, 80);
        assert_eq!(screen.contains("dropped"), told.is_some(), "{screen}");
        assert!(told.is_none_or(|told| screen.contains(told)), "{screen}");
        assert!(screen.contains("6 Compare"), "{screen}");
    }
}

#[test]
fn a_truncated_recording_without_some_events_reports_both() {
    let run = SimulationPlan::new(3, 4).run();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cut.events");
    let mut recorder = Recorder::create(&file, &run.header).unwrap();
    recorder.push(1234, &run.events).unwrap();
    recorder.flush().unwrap();
    for (width, told) in [(80, "incomplete"), (120, "recording ends early · 1,234 events dropped")] {
        let timeline = Timeline::recorded(Recording::open(recorder.partial()).unwrap()).unwrap();
        let screen = screen(timeline, EventSource::Recording, width);
        assert!(screen.contains(told), "{screen}");
    }
}

/// The file is renamed while it is read. The screen shows its end, and that it has not grown for a
/// while.
#[test]
fn a_recording_is_followed_while_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.zero");
    let run = SimulationPlan::new(3, 4).run();
    let (before, after) = run.events.split_at(run.events.len() / 2);
    let mut recorder = Recorder::create(&file, &run.header).unwrap();
    recorder.push(0, before).unwrap();
    recorder.flush().unwrap();
    let mut pty = Pty::start(&mut viz(&["replay", "--follow", file.to_str().unwrap()]), (120, 40));
    pty.expect_on_screen("● following");
    pty.expect_on_screen(&format!("event {} ", words::grouped(before.len() as u64)));
    pty.expect_on_screen("the recording grows");
    pty.send(":1\r");
    pty.expect_on_screen("‖ paused");
    recorder.push(0, after).unwrap();
    pty.send("\r");
    recorder.finish().unwrap();
    pty.expect_on_screen("■ complete");
    pty.expect_on_screen(&format!("event {} ", words::grouped(run.events.len() as u64)));
    pty.expect_on_screen("the recording is complete");
    pty.send("q");
    pty.expect_restored();
    assert!(pty.wait().success());
}

#[test]
fn a_recording_that_has_stopped_growing_is_called_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let run = SimulationPlan::new(3, 4).run();
    let mut recorder = Recorder::create(&dir.path().join("run.zero"), &run.header).unwrap();
    recorder.push(0, &run.events[..1000]).unwrap();
    recorder.flush().unwrap();
    let (recording, _) = Growth::open(recorder.partial()).unwrap();
    let player = Player::new(Timeline::followed(recording).unwrap(), Motion::Following);
    let mut app = App::new(vec![player], EventSource::Recording);
    let mut told = |seconds| {
        app.update(Input::Tick(seconds));
        rows(&app, 80)
    };
    assert!(told(9.0).contains("grows"));
    let screen = told(3.5);
    assert!(screen.contains("quiet 12 s"), "{screen}");
}

/// The run of the recording was killed: the screen shows it, and exports warn about it.
#[test]
fn a_recording_that_ends_early_is_reported_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let whole = std::fs::read(path("zero3", "events")).unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (short, svg, json) = (file("short.events"), file("a.svg"), file("a.json"));
    std::fs::write(&short, &whole[..whole.len() * 2 / 3]).unwrap();

    let mut pty = Pty::start(&mut viz(&["replay", &short, "--paused"]), (80, 24));
    pty.expect_on_screen("ends early");
    drop(pty);
    for arguments in [["export", &short, "--svg", &svg].as_slice(), &["trace", &short, &json]] {
        let output = viz(arguments).output().unwrap();
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{warning}");
        assert!(warning.starts_with("warning: ") && warning.contains("short.events ends early"), "{warning}");
    }
    let recording = path("zero3", "events");
    let output = viz(&["trace", recording.to_str().unwrap(), &json]).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}
