//! Data that arrives over connections, and recordings.

use crate::mutate::{Random, damaged};
use crate::{Bound, attack};
use collectives::hostile;
use device::CountingAllocator;
use events::header::UnitHeader;
use events::{Message, Recording, RunHeader, frame};
use screen::app::{App, EventSource};
use screen::input::View;
use screen::player::{Motion, Player};
use screen::theme::{Depth, Theme};
use screen::timeline::Timeline;
use std::path::Path;

/// Decoders may reserve a mebibyte before they know how many elements follow.
const MESSAGE: Bound = Bound { constant: 2 << 20, factor: 64 };
/// A header of a few kilobytes may describe a thousand ranks. The screen keeps a few states of
/// each, and one picture has a number for each pair of ranks.
const SCREEN: Bound = Bound { constant: 16 << 20, factor: 512 };

#[test]
fn messages_between_ranks() {
    let samples = [hostile::messages()];
    assert_eq!(hostile::read_messages(&samples[0]), 6);
    attack(
        "wire",
        20_000,
        MESSAGE,
        |random| damaged(&samples, false, random),
        |input, _| hostile::read_messages(input) > 0,
    );
}

#[test]
fn the_meeting() {
    let samples = hostile::registrations();
    assert!(samples.iter().all(|sample| hostile::read_registration(sample)));
    attack(
        "meeting",
        20_000,
        MESSAGE,
        |random| damaged(&samples, false, random),
        |input, _| hostile::read_registration(input),
    );
    let strangers = |random: &mut Random| damaged(&[b"ZERO-JOB".repeat(10)], false, random);
    attack("proofs", 20_000, MESSAGE, strangers, |input, _| {
        assert!(!hostile::accepts_proof(input));
        false
    });
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../viz/tests/recordings/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Size of a frame's head in bytes.
const HEAD: usize = 11;

/// Splits a recording into its frames, without the preamble.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let (mut frames, mut rest) = (Vec::new(), &bytes[frame::PREAMBLE..]);
    while let Some(length) = rest.get(1..5) {
        let (frame, more) = rest.split_at(HEAD + u32::from_le_bytes(length.try_into().unwrap()) as usize);
        frames.push(frame.to_vec());
        rest = more;
    }
    frames
}

/// Damages one frame's content, and makes its checksums match again.
fn damaged_inside(frames: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut frames = frames.to_vec();
    // The header is drawn as often as all other frames together.
    let index = random.below(2) * random.below(frames.len());
    let content = damaged(&[frames[index][HEAD..].to_vec()], false, random);
    let mut frame = [&frames[index][..1], &(content.len() as u32).to_le_bytes()].concat();
    frame.extend((crc32fast::hash(&frame) as u16).to_le_bytes());
    frame.extend(crc32fast::hash(&content).to_le_bytes());
    frames[index] = [frame, content].concat();
    if random.below(8) == 0 {
        let (from, to) = (random.below(frames.len()), random.below(frames.len()));
        frames.swap(from, to);
    }
    [&frame::preamble()[..], &frames.concat()].concat()
}

/// Draws one of the views, in turn.
fn draw(app: &mut App, number: u64) {
    app.view = View::ALL[number as usize % View::ALL.len()];
    let theme = Theme { depth: Depth::Truecolor, ascii: false };
    screen::view::picture(app, theme, 80, 24);
}

#[test]
fn recordings() {
    let samples = ["failed.events", "stall.events", "hpz.events"].map(|name| {
        let mut frames = frames(&file(name));
        // A header and a few events keep the inputs small.
        frames.truncate(3);
        frames
    });
    let whole = samples.clone().map(|frames| [&frame::preamble()[..], &frames.concat()].concat());
    let make = |random: &mut Random| match random.below(4) {
        0 => damaged(&whole, false, random),
        _ => damaged_inside(random.pick::<Vec<Vec<u8>>>(&samples), random),
    };
    attack("recordings", 1_000, SCREEN, make, play);
}

/// Opens a recording and draws a view at some event, each in turn. True if it is undamaged.
fn play(input: &[u8], number: u64) -> bool {
    let Ok(recording) = Recording::parse(Path::new("run.events"), input.to_vec()) else { return false };
    let _ = recording.final_state();
    let Ok(timeline) = Timeline::recorded(recording) else { return false };
    let events = timeline.len();
    let mut player = Player::new(timeline, Motion::Paused);
    player.seek(number % (events + 1));
    let mut app = App::new(vec![player], EventSource::Recording);
    draw(&mut app, number);
    true
}

/// The maximum number of ranks and units that a header may describe, in as few bytes as possible.
#[test]
fn headers_of_many_ranks() {
    let sample = Recording::parse(Path::new("run.events"), file("failed.events")).unwrap();
    let unit = UnitHeader { name: String::new(), parameters: 0, padded: 0, persistent: false };
    let many = RunHeader {
        world_size: 1024,
        units: vec![unit; 1024],
        model: "x".repeat(13_000),
        predicted_memory: vec![],
        predicted_total: vec![],
        replicated_total: vec![],
        predicted_traffic: vec![],
        theory: vec![],
        ..sample.header().clone()
    };
    let mut input = frame::preamble().to_vec();
    frame::encode(&Message::Header(Box::new(many)), &mut input);
    for number in 0..View::ALL.len() as u64 {
        let (undamaged, held) = CountingAllocator::peak(|| play(&input, number));
        assert!(undamaged && held <= SCREEN.constant, "view {number} held {held} bytes");
    }
}

/// The data that a viewer receives from a run: its state, then its events.
#[test]
fn live_streams() {
    let recording = Recording::parse(Path::new("run.events"), file("failed.events")).unwrap();
    let mut frames = frames(&file("failed.events"));
    let mut state = Vec::new();
    frame::encode(&Message::CatchUp(Box::new(recording.final_state().unwrap())), &mut state);
    frames.truncate(2);
    frames.insert(1, state);
    attack(
        "live",
        1_000,
        SCREEN,
        |random| damaged_inside(&frames, random),
        |input, number| {
            let mut decoder = frame::Decoder::default();
            let mut app: Option<App> = None;
            for piece in input.chunks(1000) {
                decoder.push(piece);
                let Ok(messages) = decoder.messages() else { return false };
                for message in messages {
                    match (&mut app, message) {
                        (None, Message::Header(header)) => {
                            let timeline = Timeline::live(*header, "run");
                            let players = vec![Player::new(timeline, Motion::Following)];
                            app = Some(App::new(players, EventSource::Attached { control: true }));
                        }
                        (None, _) => return false,
                        (Some(app), message) => drop(app.receive(vec![vec![message]])),
                    }
                }
            }
            app.iter_mut().for_each(|app| draw(app, number));
            app.is_some()
        },
    );
}
