//! Tests of screens whose ranks, groups or runs are not at the same place.

use crate::screens::with_contributions;
use crate::simulate::{SimulatedRun, SimulationPlan};
use crate::support::{live, recorded, text};
use events::{Boundary, Event, What};
use screen::app::{App, EventSource};
use screen::input::Input;
use screen::player::Motion;
use screen::theme::{Depth, Theme};
use screen::{View, view};

/// Ranks that fail in the same words are all marked, and the lowest one's error is shown, as the
/// launcher does; a rank that fails in other words is not.
#[test]
fn a_failure_of_all_ranks_is_told_by_the_lowest() {
    let mut run = SimulationPlan::new(3, 4).run();
    let begun = run.events.iter().position(|event| matches!(event.what, What::StepStarted { step: 1 }));
    run.events.truncate(begun.unwrap() + 4);
    let at = run.events.last().unwrap().at;
    let failed = |rank: u32, words: &str| {
        let message = format!("rank {rank}: {words} in step 1: lower --lr");
        Event { rank, at: at + 1, what: What::Failed { message } }
    };
    let mut apart = run.clone();
    run.events.extend([2, 1, 3, 0].map(|rank| failed(rank, "the gradient norm is NaN")));
    apart.events.extend([failed(2, "the gradient norm is NaN"), failed(1, "the gradient norm is infinite")]);
    for (run, told, marked) in [(run, "rank 0: the gradient", 4), (apart, "rank 2: the gradient", 1)] {
        let mut app = live(run);
        let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
        assert!(screen.contains(&format!("│ {told} norm is NaN")), "{screen}");
        app.dismissed = true;
        let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
        assert!(screen.contains(&format!("▌ {told}")), "{screen}");
        let cards = screen.lines().find(|line| line.starts_with("  │ ")).unwrap();
        assert_eq!(cards.matches('✗').count(), marked, "{cards}");
    }
}

/// A click on the seek bar moves to the moment of the run whose bar it is, though the other run is
/// longer.
#[test]
fn a_click_on_the_bar_seeks_the_run_that_is_shown() {
    let [long, short] = [6, 2].map(|steps| SimulationPlan { steps, ..SimulationPlan::new(3, 2) }.run());
    let players = [long, short].map(|run| live(run).players.remove(0));
    let mut app = App::new(players.into(), EventSource::Recording);
    (app.view, app.shown) = (View::Overview, 1);
    for (column, share) in [(27, 0.5), (14, 0.25), (40, 0.75)] {
        app.update(Input::Action(screen::view::clicked(&app, (80, 24), (column, 22)).unwrap()));
        let (first, last) = app.player().time_range();
        let found = (app.player().scene().now.at - first) as f64 / (last - first) as f64;
        assert!((found - share).abs() < 0.05, "{share}: {found}");
        assert_eq!(app.lead().scene().now.ranks[0].step, app.player().scene().now.ranks[0].step);
    }
}

/// Of two groups side by side, only the one whose collective moves has whole wires.
#[test]
fn a_group_that_waits_is_drawn_so_beside_one_that_moves() {
    let mut app = App::new(vec![recorded("hybrid")], EventSource::Recording);
    app.view = View::Overview;
    let mut apart = 0;
    while !app.player().at_end() && apart < 5 {
        app.players[0].step_forward(Boundary::Event);
        let scene = app.player().scene();
        let Some(leading) = screen::narration::leading_collective(scene) else { continue };
        let groups = screen::groups::created_with(&scene.now, leading.event.group);
        let (sequence, neighbours) = (leading.event.sequence, screen::groups::are_neighbours(&groups));
        if groups.len() < 2 || !neighbours {
            continue;
        }
        let all = |group: &screen::groups::RankGroup, started: bool| {
            group.ranks.iter().all(|&rank| {
                let same = |flight: &&events::Flight| {
                    (flight.event.group, flight.event.sequence) == (group.number, sequence)
                };
                let flight = scene.now.ranks[rank].flights.iter().find(same);
                flight.is_some_and(|flight| flight.started.is_some() == started)
            })
        };
        if !(all(&groups[0], true) && all(&groups[1], false)) {
            continue;
        }
        apart += 1;
        let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
        let lane = screen.lines().find(|line| line.contains(" slice 0 ")).unwrap();
        let (moves, waits): (String, String) =
            (lane.chars().take(60).collect(), lane.chars().skip(60).collect());
        assert!(moves.contains('━') && !moves.contains('╌'), "{screen}");
        assert!(waits.contains('╌') && !waits.contains('━'), "{screen}");
    }
    assert!(apart > 0, "it happens");
}

/// The ranks' own parts say which column is which run, without colours too, and have a row for
/// every rank of any run; a rank that a run lacks has no values there.
#[test]
fn own_parts_name_their_runs_and_have_all_ranks() {
    let plain = Theme { depth: Depth::None, ascii: false };
    let few = |mut run: SimulatedRun| {
        run.header.world_size = 2;
        run.header.stage = "ZeRO-1".into();
        run.events.retain(|event| event.rank < 2);
        run
    };
    let runs = [few(with_contributions(4, None)), with_contributions(4, None)];
    let mut players = runs.map(|run| live(run).players.remove(0));
    players.iter_mut().for_each(|player| player.set_motion(Motion::Paused));
    players[0].seek_into_step(2, 0.5);
    let mut app = App::new(players.into(), EventSource::Recording);
    app.rank = 3;
    for (width, height) in [(60, 30), (80, 24), (120, 40)] {
        let screen = text(&view::picture(&app, plain, width, height));
        let rows: Vec<&str> = screen.lines().collect();
        let labels = rows.iter().position(|row| row.contains("▌ZeRO-1") && row.contains("▌ZeRO-2"));
        let labels = labels.unwrap_or_else(|| panic!("{screen}"));
        for rank in 0..4 {
            let row = rows[labels + 1 + rank].split_whitespace().collect::<Vec<_>>();
            assert_eq!(row[..2], ["rank", &rank.to_string()], "{screen}");
            assert_eq!(row[2] == "–", rank > 1, "{screen}");
            assert_eq!(row.iter().filter(|cell| **cell == "5.5000").count(), 1 + usize::from(rank < 2));
        }
        let sent = rows.iter().find(|row| row.contains("sent per step")).unwrap();
        assert!(sent.contains('–') && !sent.contains(" 0 B"), "{sent}");
    }
}

/// The streams of a run that hangs begin with the step in which it does, however long it has
/// waited: a finished step takes a small part of that time.
#[test]
fn a_step_that_hangs_is_shown_from_its_beginning() {
    let mut run = SimulationPlan::new(3, 4).run();
    let begun = run.events.iter().position(|event| matches!(event.what, What::StepStarted { step: 1 }));
    run.events.truncate(begun.unwrap() + 300);
    let message = "rank 3 timed out".to_string();
    let at = run.events.last().unwrap().at + 1_000_000_000;
    run.events.push(Event { rank: 3, at, what: What::Failed { message } });
    let mut app = live(run);
    (app.view, app.dismissed) = (View::Streams, true);
    for (width, height) in [(80, 24), (120, 40)] {
        let screen = text(&view::picture(&app, Theme::FULL, width, height));
        let lane = screen.lines().find(|line| line.starts_with(" rank 0 ")).unwrap();
        assert!(lane.chars().skip(11).take(5).any(|symbol| symbol != ' '), "{screen}");
        assert!(screen.contains("200 ms"), "{screen}");
    }
}
