//! Tests of the program without a terminal: exports, and errors of at most one screen for bad
//! input.

use crate::pty::Pty;
use crate::simulate::SimulationPlan;
use crate::support::{path, recorded, track};
use events::{Recorder, What};
use screen::app::{App, EventSource};
use screen::theme::Theme;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use viz::export::asciicast;

fn viz(arguments: &[&str], runtime: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_viz")).args(arguments).env("XDG_RUNTIME_DIR", runtime).output().unwrap()
}

/// Returns the error: an output that cannot be written exits with 1, wrong flags, files or
/// environment with 2.
fn fails(arguments: &[&str]) -> String {
    let dir = tempfile::tempdir().unwrap();
    let output = viz(arguments, dir.path());
    let error = String::from_utf8(output.stderr).unwrap();
    let code = if error.contains("cannot write") { 1 } else { 2 };
    assert_eq!(output.status.code(), Some(code), "{error}");
    error
}

#[test]
fn errors_name_bad_input_and_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    std::fs::write(&text, "not a recording").unwrap();
    let file = path("zero3", "events");
    let file = file.to_str().unwrap();
    let cases = [
        (fails(&["replay", "/nowhere.events"]), "cannot read the recording /nowhere.events"),
        (fails(&["replay", text.to_str().unwrap()]), "does not begin with the recording's signature"),
        (fails(&["replay", file]), "needs an interactive terminal"),
        (fails(&["replay", file]), "viz export works without one"),
        (fails(&["attach", "zero3"]), "no run is called zero3; nothing is running now"),
        (fails(&["compare", file]), "2 values required"),
        (fails(&["export", file]), "--svg"),
        (fails(&["export", file, "--svg", "/nowhere/x.svg"]), "cannot write /nowhere/x.svg"),
        (
            fails(&["export", file, "--rank", "9", "--svg", "x"]),
            "there is no rank 9: the run has ranks 0 to 3",
        ),
        (fails(&["export", file, "--size", "huge", "--svg", "x"]), "huge is not a size"),
        (
            fails(&["export", file, "--step", "5", "--svg", "x"]),
            "there is no step 5: steps 0 to 4 are recorded",
        ),
        (fails(&["replay", file, "--step", "99"]), "there is no step 99: steps 0 to 4 are recorded"),
        (fails(&["compare", file, file, "--step", "5"]), "zero3: there is no step 5"),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error}");
        assert!(error.lines().count() < 24, "{error}");
    }
}

/// No command waits for a pipe's writer, and none reads a device for ever.
#[test]
fn recordings_that_are_not_regular_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let file = path("zero3", "events");
    let file = file.to_str().unwrap();
    for special in [pipe.to_str().unwrap(), "/dev/zero"] {
        for arguments in [
            &["replay", special][..],
            &["replay", special, "--follow"],
            &["compare", file, special],
            &["export", special, "--svg", "-"],
            &["trace", special, "-"],
        ] {
            let error = fails(arguments);
            assert!(error.contains("it is not a regular file"), "{arguments:?}: {error}");
        }
    }
}

#[test]
fn numbers_out_of_range_are_refused_with_the_range() {
    let file = path("zero3", "events");
    let file = file.to_str().unwrap();
    for (command, flag, values, range) in [
        ("replay", "--speed", &["0", "0.0009", "100.1", "-1", "nan", "fast"][..], "from 0.001 to 100"),
        ("replay", "--step", &["-1", "1.5"], "--step"),
        ("export", "--at", &["-0.1", "1.01", "nan", "inf"], "from 0 to 1"),
        ("export", "--step", &["-1", "4294967296"], "--step"),
        ("export", "--seconds", &["-1", "1e12", "nan", "inf"], "from 0 to 3600"),
        ("export", "--speed", &["0", "101", "nan"], "from 0.001 to 100"),
    ] {
        for value in values {
            let out = if command == "export" { &["--svg", "x"][..] } else { &[] };
            let given = format!("{flag}={value}");
            let error = fails(&[&[command, file, &given], out].concat());
            assert!(
                error.contains(flag) && error.contains(value) && error.contains(range),
                "{given}: {error}"
            );
        }
    }
}

#[test]
fn an_empty_list_of_runs_is_not_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let output = viz(&["attach"], dir.path());
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("nothing is running now"));
}

#[test]
fn pictures_casts_and_traces_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let file = path("zero3", "events");
    let file = file.to_str().unwrap();
    let (svg, cast, trace) = (out("a.svg"), out("a.cast"), out("a.json"));
    let export =
        ["export", file, "--view", "memory", "--step", "2", "--svg", &svg, "--cast", &cast, "--seconds", "2"];
    assert!(viz(&export, dir.path()).status.success());
    assert!(viz(&["trace", file, &trace], dir.path()).status.success());
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    // Text is text: it can be searched and copied.
    assert!(read(&svg).contains(">Memory of rank 0</text>"), "{}", read(&svg));
    let piped = viz(&["trace", file, "-"], dir.path());
    assert_eq!(String::from_utf8(piped.stdout).unwrap(), read(&trace));
    assert!(read(&svg).starts_with("<svg") && read(&svg).trim_end().ends_with("</svg>"));
    let cast = read(&cast);
    let mut lines = cast.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    assert_eq!(lines.next().unwrap()["version"], 2);
    assert!(lines.all(|line| line[1] == "o") && cast.lines().count() > 2);
    let trace: Value = serde_json::from_str(&read(&trace)).unwrap();
    let entries = trace["traceEvents"].as_array().unwrap();
    for (kind, name) in
        [("M", "process_name"), ("X", "forward block 0"), ("X", "all-gather block 1"), ("C", "memory")]
    {
        let found = entries.iter().any(|entry| entry["ph"] == kind && entry["name"] == name);
        assert!(found, "no {name} in the trace");
    }
    for (rank, stream, name) in
        [(0, 0, "compute"), (0, 1, "communication"), (3, 0, "compute"), (3, 1, "communication")]
    {
        let named =
            |entry: &&Value| entry["name"] == "thread_name" && entry["pid"] == rank && track(entry) == stream;
        let tracks: Vec<&Value> = entries.iter().filter(named).collect();
        assert!(matches!(&tracks[..], [track] if track["args"]["name"] == name), "rank {rank}: {tracks:?}");
    }
    for entry in entries.iter().filter(|entry| entry["ph"] == "X") {
        let pass = ["forward", "backward", "update"]
            .iter()
            .any(|pass| entry["name"].as_str().unwrap().starts_with(pass));
        assert_eq!(track(entry), u64::from(!pass), "{entry}");
    }
    let last_rank = entries.iter().map(|entry| entry["pid"].as_u64().unwrap()).max();
    assert_eq!(last_rank, Some(3));
}

/// A recording is not overwritten by what is made from it, whatever path names it.
#[test]
fn an_output_that_is_the_recording_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let name = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let (file, link) = (name("run.events"), name("link"));
    std::fs::copy(path("zero3", "events"), &file).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let before = std::fs::read(&file).unwrap();
    for arguments in [
        ["trace", &file, &file].as_slice(),
        &["trace", &file, &link],
        &["export", &file, "--svg", &link],
        &["export", path("ddp", "events").to_str().unwrap(), &link, "--svg", "-", "--cast", &file],
    ] {
        let error = fails(arguments);
        assert!(error.contains("is the recording itself: name another file to write"), "{error}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{arguments:?}");
    }
}

/// A recording of a resumed run has other steps, and one of a run that failed in its setup none.
#[test]
fn a_recording_without_step_0_plays_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = SimulationPlan::new(2, 2).run();
    for event in &mut run.events {
        if let What::StepStarted { step } | What::StepFinished { step, .. } = &mut event.what {
            *step += 100;
        }
    }
    let begun = run.events.iter().position(|event| matches!(event.what, What::StepStarted { .. })).unwrap();
    for (name, count, shown) in [("resumed", run.events.len(), "step 100"), ("setup", begun, "step 0")] {
        let file = dir.path().join(name);
        let mut recorder = Recorder::create(&file, &run.header).unwrap();
        recorder.push(0, &run.events[..count]).unwrap();
        recorder.finish().unwrap();
        let file = file.to_str().unwrap();
        let pictures = viz(&["export", file, "--svg", "-"], dir.path());
        let picture = String::from_utf8(pictures.stdout).unwrap();
        assert!(picture.contains(&format!(">{shown} of ")), "{name}: {picture}");
        let mut replay = Command::new(env!("CARGO_BIN_EXE_viz"));
        let mut pty = Pty::start(replay.args(["replay", file, "--paused"]), (80, 24));
        pty.expect_on_screen("‖ paused");
    }
}

/// Several recordings are compared unless another view is asked for.
#[test]
fn several_recordings_are_drawn_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["zero3", "ddp"].map(|stage| path(stage, "events").to_str().unwrap().to_string());
    let drawn = |more: &[&str]| {
        let arguments = [&["export", &first, &second, "--svg", "-"], more].concat();
        String::from_utf8(viz(&arguments, dir.path()).stdout).unwrap()
    };
    assert!(!drawn(&[]).contains("run 1 of 2"));
    assert!(drawn(&["--view", "overview"]).contains("run 1 of 2"));
}

/// An asciicast that begins at the end of its recording stays there.
#[test]
fn an_asciicast_may_begin_at_the_end() {
    let mut player = recorded("zero3");
    player.seek_share(1.0);
    let app = App::new(vec![player], EventSource::Recording);
    let cast = asciicast::render(app, Theme::FULL, (80, 24), 1.0, 1.0).unwrap();
    let mut screen = vt100::Parser::new(24, 80, 0);
    for frame in cast.lines().skip(1) {
        let frame: Value = serde_json::from_str(frame).unwrap();
        screen.process(frame[2].as_str().unwrap().as_bytes());
        let shown = screen.screen().contents();
        assert!(shown.contains("step 4 of 0–4  ■ end"), "{shown}");
    }
}
