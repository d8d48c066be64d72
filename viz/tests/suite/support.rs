//! Recorded runs of each stage, and pictures as text.

use crate::simulate::{SimulatedRun, SimulationPlan};
use events::{EventBatch, Message, Recording};
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};
use screen::View;
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::timeline::Timeline;
use std::path::PathBuf;

pub(crate) const STAGES: [&str; 4] = ["ddp", "zero1", "zero2", "zero3"];

/// Recorded runs of ZeRO-3 with the ring algorithm, over a slow simulated link, with hybrid
/// sharding and with secondary shards, and of ZeRO-2 in fp16 with a skipped step and recomputed
/// activations.
pub(crate) const SPECIAL: [&str; 5] = ["ring", "link", "hybrid", "hpz", "fp16"];

/// Returns the path of a recorded run: five steps of the tiny model on four ranks, made by
/// `record.sh` in the same folder.
pub(crate) fn path(stage: &str, extension: &str) -> PathBuf {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/recordings").join(format!("{stage}.{extension}"))
}

/// Returns a recorded run, at its beginning.
pub(crate) fn recorded(stage: &str) -> Player {
    let recording = Recording::open(&path(stage, "events")).unwrap();
    Player::recorded(recording).unwrap()
}

/// Returns a recorded run in the middle of its second step's backward.
pub(crate) fn app(stage: &str, view: View) -> App {
    let mut player = recorded(stage);
    player.seek_into_step(1, 0.62);
    let mut app = App::new(vec![player], EventSource::Recording);
    app.view = view;
    app
}

/// Returns a simulated run as if it were live, at its end.
pub(crate) fn live(run: SimulatedRun) -> App {
    let mut timeline = Timeline::live(run.header, "");
    timeline.push(Message::Batch(EventBatch { dropped: 0, events: run.events }));
    timeline.push(Message::End);
    App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live)
}

/// Returns a simulated run somewhere in its second step.
pub(crate) fn made_up(plan: &SimulationPlan) -> App {
    let mut app = live(plan.run());
    app.players[0].set_motion(Motion::Paused);
    app.players[0].seek_into_step(1, 0.6);
    app
}

/// Formats a picture as text: its symbols, then a letter per cell for its colours and a legend of
/// the letters.
pub(crate) fn text(buffer: &Buffer) -> String {
    let mut looks: Vec<(Color, Color, Modifier)> = vec![(Color::Reset, Color::Reset, Modifier::empty())];
    let (mut symbols, mut colours) = (String::new(), String::new());
    for y in 0..buffer.area.height {
        let (mut line, mut letters) = (String::new(), String::new());
        for x in 0..buffer.area.width {
            let cell = &buffer[(x, y)];
            line.push_str(cell.symbol());
            let blank = cell.symbol() == " " && cell.bg == Color::Reset;
            let fg = if blank { Color::Reset } else { cell.fg };
            let modifier = if blank { Modifier::empty() } else { cell.modifier };
            let look = (fg, cell.bg, modifier);
            let number = looks.iter().position(|other| *other == look).unwrap_or_else(|| {
                looks.push(look);
                looks.len() - 1
            });
            letters.push(letter(number));
        }
        symbols += line.trim_end();
        symbols.push('\n');
        colours += letters.trim_end();
        colours.push('\n');
    }
    let legend: String =
        looks.iter().enumerate().skip(1).map(|(n, look)| described(letter(n), look)).collect();
    format!("{symbols}\n{colours}\n{legend}")
}

fn letter(number: usize) -> char {
    let letters = "·abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    letters.chars().nth(number).unwrap_or('?').to_string().replace('·', " ").chars().next().unwrap_or(' ')
}

fn described(letter: char, (fg, bg, modifier): &(Color, Color, Modifier)) -> String {
    let bold = if modifier.is_empty() { String::new() } else { format!(" {modifier:?}") };
    format!("{letter}: {fg} on {bg}{bold}\n")
}

/// Returns the number of the track that an entry of a trace belongs to, among those of its rank.
pub(crate) fn track(entry: &serde_json::Value) -> u64 {
    let number = |key: &str| entry[key].as_u64().unwrap();
    number("tid") - (number("pid") + 1) * 1_000_000
}
