//! Tests of details in the views' text, at the sizes at which they are easily lost.

use crate::simulate::SimulationPlan;
use crate::support::{live, made_up, recorded, text};
use events::{Boundary, Class, EventBatch, Message, Place, What};
use screen::app::{App, EventSource};
use screen::input::{Action, Input};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{View, view};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn shown(app: &App, (width, height): (u16, u16)) -> String {
    text(&view::picture(app, Theme::FULL, width, height))
}

/// Returns a simulated run on devices of 80 GB, of which it needs too little to show on a bar.
fn roomy(ranks: u32) -> App {
    let mut run = SimulationPlan::new(3, ranks).run();
    run.header.capacity = Some(80_000_000_000);
    let mut app = live(run);
    app.players[0].set_motion(Motion::Paused);
    app.players[0].seek_into_step(1, 0.6);
    app
}

#[test]
fn a_capacity_that_no_bar_can_show_is_written() {
    for size in SIZES {
        for (ranks, view, words) in [
            (1, View::Overview, " of 80.0 GB "),
            (4, View::Overview, if size.0 < 100 { " of 80G " } else { " of 80.0 GB " }),
            (12, View::Overview, " of 80G"),
            (64, View::Overview, "80.0 GB each"),
            (4, View::Memory, "of 80.0 GB"),
            (4, View::Compare, "4 ranks of 80.0 GB each"),
        ] {
            let mut app = roomy(ranks);
            app.view = view;
            let screen = shown(&app, size);
            let words = if ranks == 64 && size.0 > 100 { "of 80G" } else { words };
            let said = screen.contains(words) || screen.contains("80.0 GB each");
            assert!(said, "{ranks} ranks, {view:?}, {size:?}: no {words} in\n{screen}");
        }
    }
    assert_eq!(shown(&roomy(4), SIZES[1]).matches(" of 80.0 GB ").count(), 4, "on every card");
}

/// Every rank's row names the rank that it waited for most, however narrow the screen.
#[test]
fn the_rank_waited_for_is_named_on_every_screen() {
    let mut player = recorded("zero3");
    player.seek_into_step(1, 0.62);
    let mut app = App::new(vec![player], EventSource::Recording);
    app.view = View::Streams;
    let wide = shown(&app, SIZES[1]);
    let named = |screen: &str| -> Vec<String> {
        let start = screen.lines().position(|line| line.contains("most for") || line.contains("mostly for"));
        let rows = screen.lines().skip(start.unwrap() + 1).take(4);
        rows.map(|row| row.split("rank ").nth(2).unwrap().chars().next().unwrap().to_string()).collect()
    };
    assert_eq!(named(&shown(&app, SIZES[0])), named(&wide));
}

/// Sentences about different runs have the same form.
#[test]
fn differences_are_all_long_or_all_short() {
    let mut players: Vec<Player> = ["ddp", "zero1", "zero2", "zero3"].into_iter().map(recorded).collect();
    players[0].seek_into_step(1, 0.62);
    let app = App::new(players, EventSource::Recording);
    for width in 80..200 {
        let screen = shown(&app, (width, 33));
        let short = screen.lines().filter(|line| line.contains(" against DDP: ")).count();
        let long = screen.lines().filter(|line| line.contains(" than DDP, peaked")).count();
        assert!([(3, 0), (0, 3)].contains(&(short, long)), "{width}: {short} short, {long} long\n{screen}");
    }
}

/// A loss and a norm far below 1 keep three digits, in the chart too, and billions have a unit.
#[test]
fn small_and_large_numbers_keep_three_digits() {
    let mut run = SimulationPlan::new(3, 4).run();
    for event in &mut run.events {
        if let events::What::StepFinished { loss, grad_norm, .. } = &mut event.what {
            (*loss, *grad_norm) = (*loss / 2951.7, 1.7142e-5);
        }
    }
    let mut app = live(run);
    app.dismissed = true;
    let loss = app.player().steps_done().last().unwrap().loss;
    let (loss, screen) = (format!("{loss:.5}"), shown(&app, SIZES[1]));
    assert!(
        loss.starts_with("0.00") && screen.matches(&format!(" {loss} ")).count() == 2,
        "{loss}: {screen}"
    );
    assert!(screen.contains(" 1.71e-5"), "{screen}");
    assert_eq!(screen::words::count(6_738_415_616.0), "6.74B");
}

/// Without a row of cards, one row shows each rank's progress and where slices go.
#[test]
fn a_collective_in_a_row() {
    let mut app = made_up(&SimulationPlan::new(3, 8));
    insta::assert_snapshot!("strip_direct", shown(&app, (120, 40)));
    app = made_up(&SimulationPlan { ring: true, ..SimulationPlan::new(3, 8) });
    while app.player().scene().now.ranks[7].last_hop.is_none_or(|hop| hop.number != 3) {
        app.players[0].step_forward(Boundary::Event);
    }
    let screen = shown(&app, (120, 40));
    let hops: Vec<u16> =
        app.player().scene().now.ranks.iter().map(|rank| rank.last_hop.unwrap().chunk).collect();
    let row = screen.lines().find(|line| line.matches("slice ").count() == 8).unwrap();
    let number = |rest: &str| rest.chars().take_while(char::is_ascii_digit).collect::<String>();
    let slices: Vec<u16> = row.split("slice ").skip(1).map(|rest| number(rest).parse().unwrap()).collect();
    assert_eq!(slices, hops, "{screen}");
    insta::assert_snapshot!("strip_ring", screen);
    insta::assert_snapshot!("strip_ring_80x24", shown(&app, (80, 24)));
    insta::assert_snapshot!("strip_16_ranks", shown(&made_up(&SimulationPlan::new(2, 16)), (120, 40)));
}

/// Names and keys that are too long for their column are shortened, not cut.
#[test]
fn narrow_shards_and_pairs_have_whole_words() {
    let mut run =
        SimulationPlan { resting: vec![(Class::Optimizer, Place::Host)], ..SimulationPlan::new(3, 4) }.run();
    run.header.units[1].name = "block 0 w_gate".into();
    let mut app = live(run);
    (app.view, app.dismissed) = (View::Shards, true);
    let screen = shown(&app, SIZES[0]);
    assert!(screen.contains("states, main memory"), "{screen}");
    let screen = shown(&app, (60, 24));
    assert!(screen.contains(" 0 w_gate "), "{screen}");
    app.view = View::Traffic;
    let screen = shown(&app, SIZES[1]);
    assert!(screen.contains("averaged this step, below it the run"), "{screen}");
}

/// While a person looks back, the speed keys still change the run's pace, and the title says so.
#[test]
fn looking_back_tells_the_pace_of_the_run() {
    let run = SimulationPlan::new(1, 2).run();
    let mut timeline = Timeline::live(run.header, "");
    timeline.push(Message::Batch(EventBatch { dropped: 0, events: run.events[..500].to_vec() }));
    let mut app = App::new(vec![Player::new(timeline, Motion::Following)], EventSource::Live);
    let title = |app: &App| shown(app, SIZES[0]).lines().next().unwrap().to_string();
    app.update(Input::Action(Action::Back));
    assert!(title(&app).ends_with("‖ looking back"), "{}", title(&app));
    (0..3).for_each(|_| _ = app.update(Input::Action(Action::Slower)));
    assert!(title(&app).ends_with("‖ looking back · run ×1/10"), "{}", title(&app));
    app.held = true;
    assert!(title(&app).ends_with("‖ held ×1/10, looking back"), "{}", title(&app));
}

/// A replay shows a validation as soon as it has ended, above the step that it followed.
#[test]
fn a_validation_is_shown_once_it_has_ended() {
    let run = SimulationPlan::new(3, 4).run();
    let ends =
        run.events.iter().position(|event| matches!(event.what, What::Evaluated { .. })).unwrap() as u64;
    let mut app = live(run);
    app.players[0].set_motion(Motion::Paused);
    let told = |app: &App| shown(app, SIZES[1]);
    app.players[0].seek(ends);
    assert!(!told(&app).contains("validation 2.03"));
    app.players[0].seek(ends + 1);
    let screen = told(&app);
    assert!(!app.player().at_end() && screen.contains("validation 2.03"), "{screen}");
    let axis = screen.lines().find(|line| line.contains("╰ step 0 ")).unwrap();
    assert!(axis.contains("─ 2 ") && !axis.contains("─ 3 "), "{axis}");
}
