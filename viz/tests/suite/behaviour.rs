//! Tests of keys, and of moving through a run.

use crate::simulate::SimulationPlan;
use crate::support::{STAGES, live, made_up, recorded, text};
use events::units::GatherState;
use events::{Boundary, Control, Event, Message, Operation};
use ratatui::style::Modifier;
use screen::app::{App, Effect, EventSource};
use screen::input::{Action, Input, Keystroke};
use screen::narration;
use screen::player::{Motion, Player};
use screen::ranking;
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::view::picture;
use screen::window::{CollectiveSpan, PassSpan, RankWindow, StepSpan};
use screen::{Departure, View};
use std::cmp::Reverse;

fn replay(stage: &str) -> App {
    App::new(vec![recorded(stage)], EventSource::Recording)
}

/// After a jump to any position, the state is the same as after playing up to it.
#[test]
fn seeking_equals_playing() {
    for stage in STAGES {
        let (mut played, mut jumped) = (recorded(stage), recorded(stage));
        let end = played.timeline().len();
        for share in [9, 3, 7, 1, 5] {
            let position = end * share / 10;
            jumped.seek(position);
            played.seek(0);
            (0..position).for_each(|_| played.step_forward(Boundary::Event));
            assert_eq!(jumped.scene().now, played.scene().now, "{stage} at {position}");
            assert_eq!(detail(&jumped), detail(&played), "{stage} at {position}");
        }
    }
}

/// The steps in a player's window, and each rank's passes and collectives that began within them.
type Detail = (Vec<StepSpan>, Vec<(Vec<PassSpan>, Vec<CollectiveSpan>)>);

fn detail(player: &Player) -> Detail {
    let window = &player.scene().window;
    let oldest = window.steps.front().map_or(0, |step| step.from);
    let lane = |lane: &RankWindow| {
        let spans = lane.spans.iter().filter(|span| span.from >= oldest).copied().collect();
        let collectives =
            lane.collectives.iter().filter(|collective| collective.issued >= oldest).cloned().collect();
        (spans, collectives)
    };
    (window.steps.iter().copied().collect(), window.lanes.iter().map(lane).collect())
}

#[test]
fn the_window_has_the_current_step_and_the_two_before_it() {
    let mut player = recorded("zero3");
    for step in [0, 1, 2, 3, 4, 1] {
        player.seek_into_step(step, 0.5);
        let shown: Vec<u32> = player.scene().window.steps.iter().map(|span| span.step).collect();
        assert_eq!(shown, (step.saturating_sub(2)..=step).collect::<Vec<_>>());
    }
}

#[test]
fn seeking_a_share_of_the_run_applies_all_events_before_it() {
    let run = SimulationPlan::new(2, 3).run();
    let mut player = live(run.clone()).players.remove(0);
    player.set_motion(Motion::Paused);
    let (first, last) = player.time_range();
    for share in [0.0, 0.31, 0.5, 0.07, 0.77, 1.0] {
        player.seek_share(share);
        let moment = first as f64 + share * (last - first) as f64;
        let before = run.events.iter().filter(|event| event.at as f64 <= moment).count();
        assert_eq!(player.position(), before as u64, "{share}");
        assert!((player.clock() as f64 - moment).abs() <= 1.0, "{share}: {}", player.clock());
    }
}

#[test]
fn stepping_back_undoes_stepping_forward() {
    for granularity in [Boundary::Event, Boundary::Collective, Boundary::Unit, Boundary::Step] {
        let mut player = recorded("zero3");
        let mut places = Vec::new();
        for _ in 0..3 {
            player.step_forward(granularity);
            places.push(player.position());
        }
        assert!(places.is_sorted() && places[0] < places[2]);
        for place in places.iter().rev().skip(1) {
            player.step_back(granularity);
            assert_eq!(player.position(), *place, "{granularity:?}");
        }
    }
}

#[test]
fn playing_moves_with_time_and_stops_at_the_end() {
    let mut app = replay("zero2");
    app.update(Input::Action(Action::TogglePause));
    app.players[0].set_speed(1.0);
    app.update(Input::Tick(0.5));
    let (first, last) = app.player().time_range();
    assert!(app.player().clock() <= first + 500_000_000 && app.player().position() > 0);
    app.update(Input::Tick(1e6));
    assert_eq!((app.player().motion(), app.player().clock()), (Motion::Paused, last));
    assert!(app.at_end_of_run());
}

#[test]
fn a_live_run_is_held_stepped_slowed_and_resumed() {
    let run = SimulationPlan::new(3, 2).run();
    let mut timeline = Timeline::live(run.header.clone(), "");
    timeline.push(Message::Batch(events::EventBatch { dropped: 0, events: run.events[..500].to_vec() }));
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    let mut press = |action| app.update(Input::Action(action));
    assert_eq!(press(Action::TogglePause), Some(Effect::Control(Control::Pause)));
    assert_eq!(press(Action::Forward), Some(Effect::Control(Control::Step(Boundary::Unit))));
    assert_eq!(press(Action::Granularity), None);
    assert_eq!(press(Action::Forward), Some(Effect::Control(Control::Step(Boundary::Step))));
    assert_eq!(press(Action::Slower), None, "a held run stays held");
    assert_eq!(press(Action::TogglePause), Some(Effect::Control(Control::Slow(0.5))));
    assert_eq!(press(Action::Back), None, "looking back does not hold the run");
    assert_eq!(press(Action::First), None);
    assert_eq!(press(Action::Release), Some(Effect::Control(Control::Resume)));
    assert!(app.player().at_end());
}

/// A viewer that may control a run may resume it even if another viewer holds it.
#[test]
fn a_run_held_by_another_viewer_is_shown_so() {
    for control in [false, true] {
        let run = SimulationPlan::new(1, 2).run();
        let timeline = Timeline::live(run.header, "");
        let mut app =
            App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Attached { control });
        let status = |app: &App| {
            let screen = text(&picture(app, Theme::FULL, 80, 24));
            ["‖ held", "● live"].into_iter().find(|word| screen.lines().next().unwrap().contains(word))
        };
        for (asked, shown) in [
            (Control::Pause, "‖ held"),
            (Control::Resume, "● live"),
            (Control::Slow(0.2), "● live"),
            (Control::Pause, "‖ held"),
        ] {
            app.receive(vec![vec![Message::Control(asked)]]);
            assert_eq!(status(&app), Some(shown), "{asked:?}");
        }
        let resumed = control.then_some(Effect::Control(Control::Slow(0.2)));
        assert_eq!(app.update(Input::Action(Action::TogglePause)), resumed);
        assert_eq!(status(&app), Some(if control { "● live" } else { "‖ held" }));
    }
}

#[test]
fn an_attached_run_is_left_alone_unless_asked_for() {
    for (control, expected) in [(false, None), (true, Some(Effect::Control(Control::Pause)))] {
        let run = SimulationPlan::new(1, 2).run();
        let mut timeline = Timeline::live(run.header, "");
        timeline.push(Message::Batch(events::EventBatch { dropped: 0, events: run.events[..300].to_vec() }));
        let mut app =
            App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Attached { control });
        assert_eq!(app.update(Input::Action(Action::TogglePause)), expected);
        assert_eq!(app.player().motion() == Motion::Paused, !control);
    }
}

/// A step of a live run is shown while the run continues.
#[test]
fn a_step_of_a_live_run_is_looked_back_at() {
    let run = SimulationPlan { steps: 4, ..SimulationPlan::new(1, 2) }.run();
    let mut timeline = Timeline::live(run.header.clone(), "");
    let first = Message::Batch(events::EventBatch { dropped: 0, events: run.events.clone() });
    timeline.push(first);
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    let enter = |app: &mut App, typed: &str| {
        app.update(Input::Action(Action::GoToStep));
        let keys = typed.chars().map(Keystroke::Character).chain([Keystroke::Enter]);
        keys.for_each(|key| assert_eq!(app.update(Input::Key(key)), None));
        app.prompt.take().and_then(|prompt| prompt.problem)
    };
    assert_eq!(enter(&mut app, "2"), None);
    assert_eq!((app.player().motion(), app.player().scene().now.ranks[0].step), (Motion::Paused, 2));
    assert_eq!(enter(&mut app, ""), None);
    let told = enter(&mut app, "4").unwrap();
    assert_eq!(told, "there is no step 4: steps 0 to 3 are kept");
    let told = enter(&mut app, "9999999999").unwrap();
    assert_eq!(told, "there is no step 9999999999: steps 0 to 3 are kept");
    assert_eq!(app.player().scene().now.ranks[0].step, 2, "it stays where it was");
}

/// A key that is pressed while nothing has ended dismisses no box that comes later.
#[test]
fn a_box_is_dismissed_only_once_it_is_there() {
    let mut app = replay("failed");
    let boxed = |app: &App| text(&picture(app, Theme::FULL, 80, 24)).contains("the run has failed");
    app.update(Input::Action(Action::Dismiss));
    app.update(Input::Action(Action::Last));
    assert!(boxed(&app));
    app.update(Input::Action(Action::Dismiss));
    assert!(!boxed(&app));
    for action in [Action::First, Action::Dismiss, Action::Last] {
        app.update(Input::Action(action));
        assert!(!boxed(&app), "it stays dismissed");
    }
    for (action, shown) in [(Action::Dismiss, true), (Action::Dismiss, false), (Action::First, false)] {
        app.update(Input::Action(action));
        assert_eq!(boxed(&app), shown, "{action:?}");
    }
    app.update(Input::Action(Action::NextProblem));
    assert!(boxed(&app), "the failure was looked for");
    app.update(Input::Action(Action::First));
    app.update(Input::Action(Action::NextView));
    app.update(Input::Action(Action::Last));
    assert!(boxed(&app), "there was no box to dismiss");
    app.update(Input::Action(Action::NextView));
    assert!(!boxed(&app), "the view was looked for");
    app.update(Input::Action(Action::Dismiss));
    assert!(boxed(&app));
}

/// The latest event is followed where more may come, after the last rank's end too, and only looked
/// at where none do.
#[test]
fn the_latest_event_is_followed_if_more_may_come() {
    let run = SimulationPlan::new(2, 2).run();
    let batch = |events: &[Event]| Message::Batch(events::EventBatch { dropped: 0, events: events.to_vec() });
    let mut timeline = Timeline::live(run.header.clone(), "");
    timeline.push(batch(&run.events[..400]));
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    for more in [&run.events[400..], &run.events[run.events.len() - 1..]] {
        for (action, motion) in [(Action::First, Motion::Paused), (Action::Last, Motion::Following)] {
            app.update(Input::Action(action));
            assert_eq!(app.player().motion(), motion);
        }
        app.receive(vec![vec![batch(more)]]);
        app.update(Input::Tick(0.1));
        assert!(app.player().at_end() && app.player().timeline().ended() && !app.held);
    }
    let mut recording = replay("zero2");
    recording.update(Input::Action(Action::Last));
    assert_eq!((recording.player().motion(), recording.at_end_of_run()), (Motion::Paused, true));
}

/// One stray key ends no run: it is asked about, and only the answer that says so ends it.
#[test]
fn a_live_run_is_left_only_by_an_answer() {
    let live_app = |ended: bool| {
        let run = SimulationPlan::new(1, 2).run();
        let mut timeline = Timeline::live(run.header, "");
        timeline.push(Message::Batch(events::EventBatch { dropped: 0, events: run.events[..300].to_vec() }));
        if ended {
            timeline.push(Message::End);
        }
        App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live)
    };
    let mut app = live_app(false);
    for stray in [Action::EndRun, Action::Detach, Action::Dismiss] {
        assert_eq!(app.update(Input::Action(stray)), None, "nothing was asked: {stray:?}");
    }
    for (answer, leaves) in [
        (Action::EndRun, Some(Departure::Quit)),
        (Action::Detach, Some(Departure::Detached)),
        (Action::Dismiss, None),
    ] {
        assert_eq!(app.update(Input::Action(Action::Quit)), None);
        for stray in [Action::Quit, Action::Show(View::Memory), Action::TogglePause, Action::First] {
            assert_eq!(app.update(Input::Action(stray)), None);
            assert!(app.confirming_quit && app.view == View::Overview && !app.held, "{stray:?}");
        }
        assert_eq!(app.update(Input::Action(answer)), leaves.map(Effect::Leave));
        assert!(!app.confirming_quit);
    }
    let interrupt = Some(Effect::Leave(Departure::Signal(2)));
    assert_eq!(app.update(Input::Action(Action::Interrupt)), interrupt);
    assert_eq!(live_app(true).update(Input::Action(Action::Quit)), Some(Effect::Leave(Departure::Quit)));
    let mut app = replay("zero3");
    app.update(Input::Action(Action::Help));
    assert_eq!(
        (app.update(Input::Action(Action::Quit)), app.help),
        (None, false),
        "the list is closed first"
    );
    assert_eq!(app.update(Input::Action(Action::Quit)), Some(Effect::Leave(Departure::Quit)));
}

/// The question is closed when the run is over, and `q` leaves the screen again.
#[test]
fn a_run_that_is_over_is_not_asked_about() {
    let run = SimulationPlan::new(1, 2).run();
    let timeline = Timeline::live(run.header, "");
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    assert_eq!((app.update(Input::Action(Action::Quit)), app.confirming_quit), (None, true));
    app.receive(vec![vec![Message::Batch(events::EventBatch { dropped: 0, events: run.events })]]);
    assert!(!app.confirming_quit);
    assert_eq!(app.update(Input::Action(Action::Quit)), Some(Effect::Leave(Departure::Quit)));
}

/// A held run does not stop at once: the screen shows its last events, and the next step is one of
/// the run itself.
#[test]
fn the_picture_follows_a_held_run_until_it_stops() {
    let run = SimulationPlan::new(1, 2).run();
    let batch =
        |events: &[events::Event]| Message::Batch(events::EventBatch { dropped: 0, events: events.to_vec() });
    let mut timeline = Timeline::live(run.header, "");
    timeline.push(batch(&run.events[..300]));
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    app.update(Input::Action(Action::TogglePause));
    app.receive(vec![vec![batch(&run.events[300..310])]]);
    app.update(Input::Tick(0.01));
    assert_eq!((app.player().position(), app.held), (310, true));
    let step = Some(Effect::Control(Control::Step(Boundary::Unit)));
    assert_eq!(app.update(Input::Action(Action::Forward)), step);
}

#[test]
fn compared_runs_stay_at_the_same_step_and_phase() {
    let made_up = |stage| {
        live(SimulationPlan { micro_batches: 3, ..SimulationPlan::new(stage, 2) }.run()).players.remove(0)
    };
    let accumulating = [0, 2].map(|stage| {
        let mut player = made_up(stage);
        player.set_motion(Motion::Paused);
        player.seek(0);
        player
    });
    for (players, steps) in [(STAGES.map(recorded).into(), 25), (accumulating.into(), 60)] {
        let mut app = App::new(players, EventSource::Recording);
        for _ in 0..steps {
            app.update(Input::Action(Action::Forward));
            let phase = |player: &Player| {
                let rank = &player.scene().now.ranks[0];
                (rank.step, rank.pass.or(rank.last_pass).map(|pass| (pass.pass, pass.unit, pass.micro)))
            };
            let phases: Vec<_> = app.players.iter().map(phase).collect();
            assert!(phases.iter().all(|phase| *phase == phases[0]), "{phases:?}");
        }
    }
}

/// Of two runs followed side by side, the one that is ahead waits for the other on the screen.
#[test]
fn compared_live_runs_wait_for_the_slowest() {
    let runs = [SimulationPlan::new(0, 2).run(), SimulationPlan::new(3, 2).run()];
    let player = |run: &crate::simulate::SimulatedRun| {
        Player::new(Timeline::live(run.header.clone(), ""), Motion::Following)
    };
    let mut app = App::new(runs.iter().map(player).collect(), EventSource::Attached { control: false });
    let part = |run: usize, to: usize| {
        let events = runs[run].events[..to].to_vec();
        vec![Message::Batch(events::EventBatch { dropped: 0, events })]
    };
    app.receive(vec![part(0, runs[0].events.len()), part(1, runs[1].events.len() / 2)]);
    app.update(Input::Tick(0.1));
    let steps: Vec<_> = app.players.iter().map(|player| player.scene().now.ranks[0].step).collect();
    assert_eq!(steps, [1, 1]);
    assert!(app.players[1].at_end() && !app.players[0].at_end());
    assert_eq!(app.view, View::Compare);
}

#[test]
fn the_mouse_chooses_views_and_moments() {
    let mut app = replay("zero3");
    let click = |app: &mut App, column, row| {
        if let Some(action) = screen::view::clicked(app, (120, 40), (column, row)) {
            app.update(Input::Action(action));
        }
    };
    click(&mut app, 32, 2);
    assert_eq!(app.view, View::Memory);
    click(&mut app, 46, 37);
    let (first, last) = app.player().time_range();
    let share = (app.player().clock() - first) as f64 / (last - first) as f64;
    assert!((0.45..0.55).contains(&share), "{share}");
    for (column, shown) in [(90, false), (106, true), (106, false)] {
        click(&mut app, column, 39);
        assert_eq!(app.help, shown, "the footer's help is clicked at column {column}");
    }
    let footer = text(&picture(&app, Theme::FULL, 120, 40)).lines().nth(39).unwrap().to_string();
    let clicked = |word: &str, beyond: usize| {
        let column = footer.chars().position(|first| word.starts_with(first)).unwrap() + beyond;
        screen::view::clicked(&app, (120, 40), (column as u16, 39))
    };
    for (word, first, second) in [
        ("←→ step", Action::Back, Action::Forward),
        ("-+ speed", Action::Slower, Action::Faster),
        ("↑↓ rank", Action::PreviousRank, Action::NextRank),
        ("q quit", Action::Quit, Action::Quit),
    ] {
        assert_eq!([clicked(word, 0), clicked(word, 1)], [Some(first), Some(second)], "{word}: {footer}");
    }
}

/// A click on a rank of the overview, a card or a row of the table, selects it.
#[test]
fn the_mouse_chooses_ranks() {
    for (ranks, size) in
        [(4, (120, 40)), (4, (80, 24)), (8, (80, 60)), (16, (120, 40)), (64, (80, 24)), (64, (60, 20))]
    {
        let mut app = made_up(&SimulationPlan::new(3, ranks));
        for rank in (0..ranks as usize).rev() {
            app.rank = rank;
            let picture = picture(&app, Theme::FULL, size.0, size.1);
            // The number of the selected rank is bold, in the accent's colour.
            let first = if size.1 >= 32 { 4 } else { 2 };
            let mut places = (first..size.1 - 4).flat_map(|y| (0..size.0).map(move |x| (x, y)));
            let digit = |place: &(u16, u16)| {
                let cell = &picture[*place];
                let chosen = (cell.fg, cell.modifier) == (screen::theme::ACCENT, Modifier::BOLD);
                chosen && cell.symbol().chars().all(char::is_numeric)
            };
            let (x, y) = places.find(digit).unwrap();
            let action = screen::view::clicked(&app, size, (x, y));
            assert_eq!(action, Some(Action::SelectRank(rank)), "{ranks} ranks, {size:?}, at {x}, {y}");
        }
        app.update(Input::Action(Action::SelectRank(1)));
        assert_eq!(app.rank, 1);
        app.help = true;
        let click = |column, row| screen::view::clicked(&app, size, (column, row));
        assert_eq!(click(size.0 / 2, size.1 / 2), None, "the list of keys covers the ranks");
        assert_eq!(click(0, size.1 / 2), Some(Action::Dismiss), "beside the list");
        app.update(Input::Action(Action::Dismiss));
        assert!(!app.help);
    }
}

/// A rank that has gathered a unit and issued the next all-gather keeps computing, so it does not
/// count as waiting.
#[test]
fn gathering_ahead_is_not_waiting() {
    let mut player = recorded("zero3");
    let (mut asked, mut waited) = (0, 0);
    while !player.at_end() {
        player.step_forward(Boundary::Event);
        for rank in &player.scene().now.ranks {
            let gathered = rank.units.units.iter().any(|unit| unit.gather == GatherState::Gathered);
            let first = rank.flights.first().filter(|flight| flight.started.is_none());
            let gathering = first.is_some_and(|flight| flight.event.operation == Operation::AllGather);
            asked += usize::from(rank.pass.is_none() && gathering && gathered);
            waited += usize::from(narration::stuck(rank));
            assert!(!(narration::stuck(rank) && gathering && gathered));
        }
    }
    assert!(asked > 100 && waited > 100, "both happen: {asked}, {waited}");
}

#[test]
fn events_that_were_lost_are_missing_from_then_on() {
    let run = SimulationPlan::new(3, 4).run();
    let (before, after) = run.events.split_at(run.events.len() / 2);
    let mut timeline = Timeline::live(run.header.clone(), "");
    for (dropped, events) in [(0, before), (7, after)] {
        timeline.push(Message::Batch(events::EventBatch { dropped, events: events.to_vec() }));
    }
    assert_eq!((timeline.dropped(0), timeline.dropped(timeline.len() - 1)), (0, 7));
}

#[test]
fn a_run_seen_late_is_whole_from_then_on() {
    let run = SimulationPlan::new(3, 4).run();
    let (before, after) = run.events.split_at(run.events.len() / 2);
    let mut state = events::CatchUp::new(4, run.header.units.len());
    before.iter().for_each(|event| state.apply(event));
    let mut late = Player::new(Timeline::live(run.header.clone(), ""), Motion::Following);
    late.push(Message::CatchUp(Box::new(state)));
    late.push(Message::Batch(events::EventBatch { dropped: 0, events: after.to_vec() }));
    late.tick(0.0);
    let whole = live(run);
    assert_eq!(late.scene().now, whole.player().scene().now);
    assert_eq!(late.timeline().state.history, whole.player().timeline().state.history);
}

/// With 64 ranks, `o` brings those to the front for which the others waited longest. Moving down
/// goes on in that order, and every list says which order it has.
#[test]
fn ranks_are_listed_by_number_or_the_slowest_first() {
    let mut app = made_up(&SimulationPlan::new(3, 64));
    let delays = ranking::delays(app.player().scene());
    app.update(Input::Action(Action::Order));
    let listed = app.order.ranks(app.player().scene());
    assert!(listed.is_sorted_by_key(|&rank| Reverse(delays[rank])) && delays[listed[0]] > 0);
    assert_ne!(listed, (0..64).collect::<Vec<_>>());
    let screen = |app: &App| text(&picture(app, Theme::FULL, 80, 24));
    for place in [0, 1, 2] {
        assert_eq!(app.rank, listed[place]);
        app.update(Input::Action(Action::NextRank));
    }
    for (view, slowest, by_number) in [
        (View::Streams, "slowest first: 1 to 5 of 64 ↑↓", "of 64 ↑↓"),
        (View::Overview, "slowest first", ""),
        (View::Shards, "slowest of 64", "64 ranks ↑↓"),
    ] {
        app.view = view;
        let shown = screen(&app);
        assert!(shown.contains(slowest), "{shown}");
        app.update(Input::Action(Action::Order));
        let shown = screen(&app);
        assert!(!shown.contains("slowest") && shown.contains(by_number), "{shown}");
        app.update(Input::Action(Action::Order));
    }
    app.view = View::Streams;
    let shown = screen(&app);
    let rows: Vec<usize> = shown
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("rank "))
        .filter_map(|row| row.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(rows, [&listed[..5], &listed[..5]].concat(), "lanes and table: {shown}");
    assert!(shown.contains("held up") && shown.contains(&screen::words::time(delays[listed[0]])), "{shown}");
}

/// A model with more units than rows: the shards view shows those around the pass under way, says
/// which they are, and `u` turns the pages through all of them and back.
#[test]
fn long_lists_of_units_are_paged_through() {
    let mut app = made_up(&SimulationPlan { blocks: 32, ..SimulationPlan::new(3, 4) });
    app.view = View::Shards;
    let shown = |app: &App| {
        let screen = text(&picture(app, Theme::FULL, 80, 24));
        let told = screen.split("  units ").nth(1).unwrap_or_else(|| panic!("{screen}")).to_string();
        let told = told.lines().next().unwrap().trim().to_string();
        let names: Vec<String> = screen
            .lines()
            .filter_map(|line| line.strip_prefix(' ')?.split("  ").next().map(str::trim))
            .filter(|name| *name == "embedding" || *name == "head" || name.starts_with("block "))
            .map(String::from)
            .collect();
        (told, names)
    };
    let under_way = shown(&app);
    let mut seen = Vec::new();
    for (from, to) in [(1, 6), (7, 12), (13, 18), (19, 24), (25, 30), (29, 34)] {
        app.update(Input::Action(Action::NextUnits));
        let (told, names) = shown(&app);
        assert_eq!((told, names.len()), (format!("{from}–{to} of 34 u"), 6));
        seen.extend(names);
    }
    for unit in &app.player().scene().header.units {
        assert!(seen.contains(&unit.name), "{}: {seen:?}", unit.name);
    }
    app.update(Input::Action(Action::NextUnits));
    assert_eq!(shown(&app), under_way);
}

/// Every view of one run can show each of the runs compared; what moves is the first, which the
/// others follow.
#[test]
fn compared_runs_take_turns_in_the_views_of_one_run() {
    let mut app = App::new(["ddp", "zero3"].map(recorded).into(), EventSource::Recording);
    app.update(Input::Action(Action::NextStep));
    for (stage, step) in [("DDP", 0), ("ZeRO-3", 0), ("DDP", 1)] {
        assert_eq!(app.player().scene().header.stage, stage);
        assert_eq!(app.player().scene().now.ranks[0].step, step, "{stage}");
        for view in View::ALL.into_iter().filter(|view| *view != View::Compare) {
            app.view = view;
            let screen = text(&picture(&app, Theme::FULL, 80, 24));
            let title = screen.lines().next().unwrap();
            assert!(title.contains(&format!(" {stage} ")) && title.contains("of 2"), "{view:?}: {title}");
        }
        app.update(Input::Action(Action::NextRun));
        if stage == "ZeRO-3" {
            app.update(Input::Action(Action::NextStep));
        }
    }
}

/// Losses of runs with other models, batches, lengths or numbers of steps, which the learning rate
/// follows, cannot be compared, and the screen says so.
#[test]
fn runs_that_are_not_the_same_training_are_called_so() {
    let compared = |change: &dyn Fn(&mut events::RunHeader)| {
        let [first, mut second] = [0, 3].map(|stage| SimulationPlan::new(stage, 2).run());
        change(&mut second.header);
        let players = [first, second].map(|run| live(run).players.remove(0));
        text(&picture(&App::new(players.into(), EventSource::Recording), Theme::FULL, 80, 24))
    };
    assert!(compared(&|_| ()).contains("same step, same phase, same scale"));
    let screen = compared(&|header| header.batch_size += 3);
    assert!(screen.contains("not the same training: batch 16 | 22"), "{screen}");
    let screen = compared(&|header| header.steps += 5);
    assert!(screen.contains("not the same training: steps "), "{screen}");
    let screen = compared(&|header| (header.model, header.sequence_length) = ("small".into(), 7));
    assert!(
        screen.contains("not the same training: model ") && screen.contains("length 128 | 7"),
        "{screen}"
    );
}

#[test]
fn a_recording_is_played_up_to_a_hundred_times_as_fast() {
    let mut app = replay("zero3");
    (0..20).for_each(|_| _ = app.update(Input::Action(Action::Faster)));
    assert_eq!(app.player().speed(), 100.0);
    let run = SimulationPlan::new(1, 2).run();
    let timeline = Timeline::live(run.header, "");
    let mut live = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    (0..20).for_each(|_| _ = live.update(Input::Action(Action::Faster)));
    assert_eq!(live.pace, 1.0);
}

#[test]
fn skipped_steps_and_failures_are_found() {
    let mut app = replay("fp16");
    app.update(Input::Action(Action::NextProblem));
    let first = app.player().steps_done().last().unwrap();
    assert_eq!(first.skipped, 1, "{first:?}");
    let told = narration::sentence(app.player().scene(), 200);
    assert!(told.starts_with(&format!("Step {} is skipped", first.step)), "{told}");
    let mut failed = replay("failed");
    failed.update(Input::Action(Action::NextProblem));
    assert!(failed.player().scene().now.failure.is_some());
    let mut whole = replay("zero3");
    let before = whole.player().position();
    whole.update(Input::Action(Action::NextProblem));
    assert_eq!(whole.player().position(), before, "there is nothing to find");
    whole.update(Input::Action(Action::TogglePause));
    whole.update(Input::Action(Action::NextProblem));
    assert_eq!(whole.player().motion(), Motion::Playing, "there is nothing to stop at");
}
