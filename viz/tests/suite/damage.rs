//! Damaged recordings: the state after a gap is right or said to be incomplete.

use crate::simulate::SimulationPlan;
use crate::support::{path, text};
use events::amount::MOST;
use events::header::PredictedBytes;
use events::{Event, Operation, Recorder, Recording, RunHeader, What, Work};
use screen::app::{App, EventSource};
use screen::player::Player;
use screen::theme::Theme;
use screen::{View, view};
use std::path::Path;
use std::process::Command;
use viz::export::trace;

/// Events per frame.
const PIECE: usize = 70;

/// Returns the bytes of a recording with [`PIECE`] events in each frame.
fn record(header: &RunHeader, events: &[Event]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(&dir.path().join("run.zero"), header).unwrap();
    for piece in events.chunks(PIECE) {
        recorder.push(0, piece).unwrap();
        recorder.flush().unwrap();
    }
    std::fs::read(recorder.finish().unwrap()).unwrap()
}

fn player(bytes: &[u8]) -> Player {
    let recording = Recording::parse(Path::new("run.zero"), bytes.to_vec()).unwrap();
    Player::recorded(recording).unwrap()
}

/// Damages the content of the frame of this number; the header's is 0.
fn damage(bytes: &mut [u8], frame: usize) {
    let mut start = events::frame::PREAMBLE;
    for _ in 0..frame {
        start += 11 + u32::from_le_bytes(bytes[start + 1..start + 5].try_into().unwrap()) as usize;
    }
    bytes[start + 11] ^= 0xff;
}

/// Returns the part of a rank's state that is shown, without counts from the beginning of the run.
fn shown(player: &Player) -> Vec<impl PartialEq + std::fmt::Debug> {
    let ranks = player.scene().now.ranks.iter();
    ranks.map(|r| (r.step, r.in_step, r.pass, r.live, r.flights.clone(), r.units.clone())).collect()
}

/// Compares the state after every event with that of the whole recording, for gaps in every part of
/// runs of several stages.
#[test]
fn a_state_after_a_gap_is_right_or_said_to_be_incomplete() {
    let (mut incomplete, mut right) = (0, 0);
    for stage in [0, 2, 3] {
        let run = SimulationPlan { steps: 5, ..SimulationPlan::new(stage, 3) }.run();
        let bytes = record(&run.header, &run.events);
        let frames = run.events.len().div_ceil(PIECE);
        for lost in (1..=frames).step_by(2) {
            let (mut whole, mut damaged) = (player(&bytes), bytes.clone());
            damage(&mut damaged, lost);
            let mut damaged = player(&damaged);
            let last = damaged.timeline().len();
            let gap = ((lost - 1) * PIECE) as u64;
            for position in (0..=last).step_by(7) {
                damaged.seek(position);
                whole.seek(if position > gap { position + PIECE as u64 } else { position });
                if damaged.timeline().gaps.incomplete(position).is_some() {
                    incomplete += 1;
                    continue;
                }
                right += usize::from(position > gap);
                assert_eq!(shown(&damaged), shown(&whole), "stage {stage}, frame {lost}, event {position}");
            }
        }
    }
    assert!(incomplete > 100 && right > 100, "both happen: {incomplete}, {right}");
}

/// A jump behind a gap shows what playing up to there shows.
#[test]
fn seeking_equals_playing_across_gaps() {
    let run = SimulationPlan { steps: 4, ..SimulationPlan::new(3, 3) }.run();
    let mut bytes = record(&run.header, &run.events);
    let frames = run.events.len().div_ceil(PIECE);
    [2, frames / 2, frames / 2 + 1, frames - 1].into_iter().for_each(|frame| damage(&mut bytes, frame));
    let (mut played, mut jumped) = (player(&bytes), player(&bytes));
    while !played.at_end() {
        played.step_forward(events::Boundary::Event);
        if played.position() % 97 == 0 {
            jumped.seek(0);
            jumped.seek(played.position());
            assert_eq!(jumped.scene().now, played.scene().now);
        }
    }
}

#[test]
fn damage_is_told_on_the_screen() {
    let run = SimulationPlan { steps: 5, ..SimulationPlan::new(3, 3) }.run();
    let bytes = record(&run.header, &run.events);
    let frames = run.events.len().div_ceil(PIECE);
    for (lost, places) in [
        (1, [(2 * PIECE, Some("memory")), (run.events.len() - 2 * PIECE, Some("memory"))]),
        (frames / 2, [(frames / 2 * PIECE, Some("damaged")), (run.events.len() - 2 * PIECE, None)]),
    ] {
        let mut damaged = bytes.clone();
        damage(&mut damaged, lost);
        let mut app = App::new(vec![player(&damaged)], EventSource::Recording);
        for (place, told) in places {
            app.players[0].seek(place as u64);
            for width in [50, 80, 120] {
                let screen = text(&view::picture(&app, Theme::FULL, width, 24));
                let sentence = screen.lines().find(|line| line.starts_with(" ▌")).unwrap();
                let gap = ["low", "incomplete", "complete after"].iter().any(|word| sentence.contains(word));
                assert_eq!(gap && sentence.contains("amaged"), told.is_some(), "{width}: {screen}");
                assert!(told.is_none_or(|told| width < 80 || sentence.contains(told)), "{sentence}");
                assert!(width < 80 || screen.lines().nth(1).unwrap().contains("damaged"), "{screen}");
            }
        }
    }
}

/// Anyone can write a recording: one in which passes run backwards, work ends before it begins, and
/// numbers are as great as a stream carries.
#[test]
fn a_run_that_cannot_be_is_drawn_and_traced() {
    let run = SimulationPlan { steps: 3, ..SimulationPlan::new(3, 2) }.run();
    let planned = PredictedBytes { rank: 0, of: Operation::AllGather, bytes: MOST };
    let header = RunHeader {
        micro_batches: u32::MAX,
        batch_size: u32::MAX,
        predicted_traffic: vec![planned; 256],
        theory: Vec::new(),
        ..run.header
    };
    let last = run.events.last().unwrap().at;
    let impossible = |event: Event| {
        let Event { mut at, rank, mut what } = event;
        if let What::PassStarted { .. } | What::PassFinished { .. } = what {
            at = last - at;
        }
        let mut ran = None;
        match &mut what {
            What::StepFinished { step, .. } => *step = u32::MAX,
            &mut What::PassFinished { pass, unit, micro } => {
                ran = Some(What::Ran { work: Work::Pass { pass, unit, micro }, began: 0, ended: 1000 });
            }
            _ => {}
        }
        [Some(what), ran].into_iter().flatten().map(move |what| Event { at, rank, what })
    };
    let events: Vec<Event> = run.events.into_iter().flat_map(impossible).collect();
    let bytes = record(&header, &events);
    trace::render(&Recording::parse(Path::new("run.zero"), bytes.clone()).unwrap()).unwrap();
    for source in [EventSource::Recording, EventSource::Live] {
        let mut app = App::new(vec![player(&bytes)], source);
        for position in (0..=events.len() as u64).step_by(37) {
            app.players[0].seek(position);
            for view in View::ALL {
                app.view = view;
                view::picture(&app, Theme::FULL, 120, 40);
            }
        }
    }
}

/// `viz trace` and `viz export` report in one line the bytes that they skipped, and write the rest.
#[test]
fn exports_warn_of_damage() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let mut bytes = std::fs::read(path("zero3", "events")).unwrap();
    damage(&mut bytes, 2);
    let (damaged, svg, json) = (file("damaged.events"), file("a.svg"), file("a.json"));
    std::fs::write(&damaged, &bytes).unwrap();
    for arguments in [["export", &damaged, "--svg", &svg].as_slice(), &["trace", &damaged, &json]] {
        let output = Command::new(env!("CARGO_BIN_EXE_viz")).args(arguments).output().unwrap();
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success() && warning.lines().count() <= 3, "{warning}");
        let words = warning.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.starts_with("warning: ") && words.contains("are damaged and were skipped"), "{words}");
        assert!(words.contains("in 1 place;"), "{words}");
    }
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().len() > 100);
}
