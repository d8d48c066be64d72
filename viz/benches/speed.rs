//! Measures how long a picture, loading and seeking take.
//!
//! `cargo bench -p viz --bench speed`

#[path = "../tests/simulate/mod.rs"]
mod simulate;

use events::{Recorder, Recording};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use screen::app::{App, EventSource};
use screen::player::Player;
use screen::theme::Theme;
use screen::{View, view};
use simulate::SimulationPlan;
use std::error::Error;
use std::time::{Duration, Instant};

const EVENTS: usize = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let run = SimulationPlan { steps: 700, ring: true, ..SimulationPlan::new(3, 8) }.run();
    let events = &run.events[..run.events.len().min(EVENTS)];
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("run.events");
    let mut recorder = Recorder::create(&path, &run.header)?;
    let start = Instant::now();
    recorder.push(0, events)?;
    recorder.finish()?;
    println!(
        "write {} events, {} bytes: {:?}",
        events.len(),
        std::fs::metadata(&path)?.len(),
        start.elapsed()
    );
    let start = Instant::now();
    let mut player = Player::recorded(Recording::open(&path)?)?;
    println!("load: {:?}", start.elapsed());
    let steps = player.timeline().state.history.steps.len() as u32;
    let seeks = (0..40).map(|n| n * 7919 % steps).map(|step| {
        let start = Instant::now();
        player.seek_step(step);
        start.elapsed()
    });
    println!("seek to a step: worst of 40 {:?}", seeks.max().unwrap_or_default());
    player.seek_into_step(steps / 2, 0.6);
    let mut app = App::new(vec![player], EventSource::Recording);
    for shown in View::ALL {
        app.view = shown;
        println!("picture of {} at 200x60, 8 ranks: {:?}", shown.label(), picture(&app));
    }
    Ok(())
}

/// Returns the median time of 200 pictures.
fn picture(app: &App) -> Duration {
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width: 200, height: 60 });
    let mut times: Vec<Duration> = (0..200)
        .map(|_| {
            let start = Instant::now();
            buffer.reset();
            view::draw(app, Theme::FULL, &mut buffer);
            start.elapsed()
        })
        .collect();
    times.sort();
    times[times.len() / 2]
}
