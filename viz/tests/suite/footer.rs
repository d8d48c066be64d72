//! Tests of the footer: it offers the keys that do something now.

use crate::simulate::SimulationPlan;
use crate::support::{recorded, text};
use crossterm::event::KeyCode;
use events::{EventBatch, Message, Recorder};
use screen::app::{App, EventSource};
use screen::input::{Action, BINDINGS, Input, Keystroke};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::view;

/// Returns the last row of the screen.
fn footer(app: &App) -> String {
    let picture = text(&view::picture(app, Theme::FULL, 120, 30));
    picture.lines().nth(29).unwrap().to_string()
}

/// Asserts which of `keys` the footer shows.
fn shows(app: &App, keys: &str, hides: &str) {
    let footer = footer(app);
    let held = |keys: &str| keys.split(", ").filter(|key| footer.contains(key)).count();
    assert_eq!(held(keys), keys.split(", ").count(), "{keys} in {footer}");
    assert_eq!(held(hides), 0, "none of {hides} in {footer}");
}

fn live(ranks: u32, source: EventSource) -> App {
    let run = SimulationPlan::new(2, ranks).run();
    let mut timeline = Timeline::live(run.header, "");
    timeline.push(Message::Batch(EventBatch { dropped: 0, events: run.events[..300].to_vec() }));
    App::new(vec![Player::new(timeline, Motion::Following)], source)
}

#[test]
fn a_run_that_may_not_be_held_has_no_speed() {
    let mut app = live(2, EventSource::Attached { control: false });
    shows(&app, "space pause, ↑↓ rank, q quit", "speed");
    app.update(Input::Action(Action::TogglePause));
    shows(&app, "space play", "speed");
    shows(&live(2, EventSource::Attached { control: true }), "-+ speed", "play");
    shows(&live(1, EventSource::Live), "-+ speed", "rank");
}

/// A recording that is followed has no speed until the person looks back at it.
#[test]
fn a_growing_recording_has_a_speed_only_where_it_is_played() {
    let dir = tempfile::tempdir().unwrap();
    let run = SimulationPlan::new(3, 4).run();
    let mut recorder = Recorder::create(&dir.path().join("run.zero"), &run.header).unwrap();
    recorder.push(0, &run.events[..1000]).unwrap();
    recorder.flush().unwrap();
    let (recording, _) = events::Growth::open(recorder.partial()).unwrap();
    let player = Player::new(Timeline::followed(recording).unwrap(), Motion::Following);
    let mut app = App::new(vec![player], EventSource::Recording);
    shows(&app, "space pause", "speed");
    app.update(Input::Action(Action::PreviousStep));
    shows(&app, "space play, -+ speed", "pause");
    app.update(Input::Action(Action::Release));
    shows(&app, "space pause", "speed");
}

#[test]
fn a_question_offers_its_answers_alone() {
    let mut app = live(2, EventSource::Live);
    app.update(Input::Action(Action::Quit));
    shows(&app, "y end, d detach, esc stay", "space, quit, help");
    app.update(Input::Action(Action::Dismiss));
    shows(&app, "q quit", "esc stay");
}

/// The speed of playing is shown while the recording stands, since keys change it there too.
#[test]
fn a_paused_recording_tells_its_speed() {
    let mut app = App::new(vec![recorded("zero3"), recorded("zero2")], EventSource::Recording);
    let title =
        |app: &App| text(&view::picture(app, Theme::FULL, 80, 24)).lines().next().unwrap().to_string();
    assert!(title(&app).ends_with("‖ paused"), "{}", title(&app));
    app.update(Input::Action(Action::Slower));
    assert!(title(&app).ends_with("‖ paused ×1/2"), "{}", title(&app));
    shows(&app, "-+ speed", "n run");
    app.update(Input::Action(Action::Show(screen::View::Memory)));
    shows(&app, "n run", "pause");
}

/// The seek bar marks skipped steps, and the footer offers the key that finds what went wrong, as
/// long as something lies ahead.
#[test]
fn what_went_wrong_is_offered_until_it_is_reached() {
    for (name, word, marked) in [("fp16", "f skipped step", true), ("failed", "f failure", false)] {
        let mut app = App::new(vec![recorded(name)], EventSource::Recording);
        let seek = text(&view::picture(&app, Theme::FULL, 120, 30)).lines().nth(28).unwrap().to_string();
        assert_eq!(seek.contains('×'), marked, "{name}: {seek}");
        shows(&app, word, "no such word");
        (0..9).for_each(|_| _ = app.update(Input::Action(Action::NextProblem)));
        shows(&app, "←→ step", word);
    }
    shows(&App::new(vec![recorded("zero3")], EventSource::Recording), "←→ step", "f failure, f skipped");
    let mut compared = App::new(vec![recorded("zero3"), recorded("fp16")], EventSource::Recording);
    compared.shown = 1;
    shows(&compared, "←→ step", "f failure, f skipped");
}

/// A step that does not exist is named, and the way out of the prompt stays on the screen.
#[test]
fn a_prompt_tells_how_it_is_closed() {
    let mut app = App::new(vec![recorded("zero3")], EventSource::Recording);
    app.update(Input::Action(Action::GoToStep));
    shows(&app, "r3 for rank 3 · enter goes there · esc closes", "quit");
    for key in [Keystroke::Character('9'), Keystroke::Enter] {
        app.update(Input::Key(key));
    }
    shows(&app, "there is no step 9, recorded · esc closes", "quit");
}

/// Every key that does something stands in the list of keys, which is no wider than 80 columns
/// allow.
#[test]
fn every_key_is_listed() {
    let named = |key: char| {
        let is_key =
            |word: &str| [word, word.trim_matches([',', ';', '(', ')'])].contains(&&*key.to_string());
        BINDINGS.iter().any(|row| row.label.contains(key) || row.help.split_whitespace().any(is_key))
    };
    for key in BINDINGS.iter().flat_map(|binding| binding.keys) {
        let KeyCode::Char(key) = *key else { continue };
        assert!(key == ' ' || named(key), "{key} is not listed");
    }
    let all: String = BINDINGS.iter().map(|binding| format!("{} ", binding.help)).collect();
    for key in ["esc", "ctrl-l", "the wheel", "a recording's bar"] {
        assert!(all.contains(key), "{key} is not listed");
    }
    assert!(BINDINGS.iter().all(|binding| binding.help.chars().count() <= 56), "{all}");
}
