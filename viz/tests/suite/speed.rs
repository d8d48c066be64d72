//! Limits of time for pictures, loading and seeking, in processor time of the thread. Other
//! programs on the same core or host can double it, so the fastest repetition counts.

use crate::simulate::SimulationPlan;
use crate::support::{STAGES, made_up, recorded};
use events::{Recorder, Recording, cpu};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use screen::app::{App, EventSource};
use screen::player::Player;
use screen::theme::Theme;
use screen::{View, view};
use std::time::Duration;

const EVENTS: usize = 1_000_000;

/// Returns the processor time of `work`, and its result.
fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = cpu::of_thread();
    let made = work();
    (cpu::of_thread() - start, made)
}

/// Returns the processor time of the fastest of 101 pictures.
fn picture(app: &App) -> Duration {
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width: 200, height: 60 });
    let draw = |_| {
        buffer.reset();
        timed(|| view::draw(app, Theme::FULL, &mut buffer)).0
    };
    (0..101).map(draw).min().unwrap()
}

#[test]
fn a_picture_of_eight_ranks_takes_a_millisecond_at_most() {
    let inside = |stage: &str| {
        let mut player = recorded(stage);
        player.seek_into_step(3, 0.6);
        player
    };
    let recorded = STAGES.map(|stage| App::new(vec![inside(stage)], EventSource::Recording));
    let compared = App::new(STAGES.map(inside).into(), EventSource::Recording);
    let eight = made_up(&SimulationPlan { steps: 5, ring: true, ..SimulationPlan::new(3, 8) });
    for mut app in recorded.into_iter().chain([compared, eight]) {
        for view in View::ALL {
            app.view = view;
            let took = picture(&app);
            let header = &app.player().scene().header;
            assert!(
                took <= Duration::from_millis(1),
                "{view:?} of {}, {} ranks: {took:?}",
                header.stage,
                header.world_size
            );
        }
    }
}

#[test]
fn a_million_events_load_in_a_second_and_any_step_of_them_starts_in_a_tenth() {
    let run = SimulationPlan { steps: 700, ring: true, ..SimulationPlan::new(3, 8) }.run();
    assert!(run.events.len() > EVENTS, "{}", run.events.len());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.events");
    let mut recorder = Recorder::create(&path, &run.header).unwrap();
    recorder.push(0, &run.events[..EVENTS]).unwrap();
    recorder.finish().unwrap();
    let load = || Player::recorded(Recording::open(&path).unwrap()).unwrap();
    let (loading, mut player) = timed(load);
    assert!(loading <= Duration::from_secs(1), "{loading:?}");
    let steps = player.timeline().state.history.steps.len() as u32;
    for step in (0..steps).map(|number| number * 379 % steps) {
        let (seeking, ()) = timed(|| player.seek_step(step));
        assert_eq!(player.scene().now.ranks[0].step, step);
        assert!(seeking <= Duration::from_millis(100), "step {step}: {seeking:?}");
    }
}
