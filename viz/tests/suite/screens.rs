//! Every view of a recorded run of each stage, at three sizes, symbols and colours.

use crate::simulate::{SimulatedRun, SimulationPlan};
use crate::support::{STAGES, app, live, made_up, recorded, text};
use events::{Boundary, Event, LocalMetrics, What};
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::theme::{self, Depth, Theme};
use screen::{View, view};

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 60)];

fn snapshots(stage: &str, app: &App) {
    for (width, height) in SIZES {
        let view = app.view.label().to_lowercase();
        let name = format!("{view}_{stage}_{width}x{height}");
        insta::assert_snapshot!(name, text(&view::picture(app, Theme::FULL, width, height)));
    }
}

#[test]
fn every_view_of_every_stage() {
    for stage in STAGES {
        for view in View::ALL.into_iter().filter(|&view| view != View::Compare) {
            snapshots(stage, &app(stage, view));
        }
    }
}

#[test]
fn stages_compared() {
    let mut players: Vec<_> = STAGES.into_iter().map(recorded).collect();
    players[0].seek_into_step(1, 0.62);
    snapshots("all", &App::new(players, EventSource::Recording));
    snapshots("one", &app("zero2", View::Compare));
}

/// Returns a simulated run whose ranks report their own metrics. Rank `wrong` has gradients that
/// are four times too large from step 1 on.
pub(crate) fn with_contributions(ranks: u32, wrong: Option<u32>) -> SimulatedRun {
    let mut run = SimulationPlan::new(2, ranks).run();
    let told = run.events.into_iter().flat_map(|event| {
        let own = |step: u32| {
            let times = if wrong == Some(event.rank) && step >= 1 { 4.0 } else { 1.0 };
            let grad_norm = times * f64::from(2 + event.rank);
            let own = LocalMetrics { step, loss: 5.5, grad_norm, parameters: u64::MAX, waited: 0.003 };
            Event { what: What::Contributed(own), ..event.clone() }
        };
        let part = match event.what {
            What::StepFinished { step, .. } => Some(own(step)),
            _ => None,
        };
        part.into_iter().chain([event.clone()])
    });
    run.events = told.collect();
    run
}

#[test]
fn a_metric_that_differs_from_the_first_run_has_a_star() {
    let runs = [None, Some(1)].map(|wrong| with_contributions(4, wrong));
    let at = |step| {
        let mut players: Vec<_> = runs.iter().map(|run| live(run.clone()).players.remove(0)).collect();
        players.iter_mut().for_each(|player| player.set_motion(Motion::Paused));
        players[0].seek_into_step(step, 0.5);
        let mut app = App::new(players, EventSource::Recording);
        app.view = View::Compare;
        app
    };
    for (step, starred) in [(1, ""), (2, "12.0000*")] {
        let app = at(step);
        for (width, height) in SIZES {
            let shown = text(&view::picture(&app, Theme::FULL, width, height));
            let stars: Vec<&str> =
                shown.split_whitespace().filter(|word| word.len() > 1 && word.ends_with('*')).collect();
            let expected: Vec<&str> = Some(starred).into_iter().filter(|word| !word.is_empty()).collect();
            assert_eq!(stars, expected, "{width}x{height}, step {step}\n{shown}");
            assert!(shown.contains("rank 3") && shown.contains("5.0000"), "{shown}");
        }
    }
    insta::assert_snapshot!("contributions", text(&view::picture(&at(2), Theme::FULL, 80, 24)));
}

#[test]
fn many_ranks() {
    for ranks in [8, 64] {
        let mut app = made_up(&SimulationPlan::new(3, ranks));
        for view in [View::Overview, View::Shards, View::Streams, View::Traffic] {
            app.view = view;
            for (width, height) in [(120, 40), (80, 24)] {
                let name = format!("{}_{ranks}_ranks_{width}x{height}", view.label().to_lowercase());
                insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, width, height)));
            }
        }
    }
}

/// The bytes from each rank to each other one, in the step and in the whole run, side by side or
/// below each other.
#[test]
fn traffic_of_the_step_and_of_the_run() {
    let mut player = recorded("zero3");
    player.seek(player.timeline().len());
    let rank = &player.scene().now.ranks[0];
    let step = screen::words::short_bytes(rank.sent_last_step.by_receiver[1]);
    let run = screen::words::short_bytes(rank.sent.by_receiver[1]);
    let mut app = App::new(vec![player], EventSource::Recording);
    app.view = View::Traffic;
    for ((width, height), told) in
        SIZES.into_iter().zip(["in the run", "below it the run", "below it the run"])
    {
        let screen = text(&view::picture(&app, Theme::FULL, width, height));
        assert!(screen.contains(told), "{screen}");
        for value in [&step, &run] {
            let cells = screen.split_whitespace().filter(|word| word == value).count();
            assert_eq!(cells, 12, "{value}: {screen}");
        }
    }
}

/// hpZ keeps a secondary, larger slice of the parameters, from which backward gathers.
#[test]
fn a_secondary_slice_of_the_parameters() {
    let shards = |stage: &str| text(&view::picture(&app(stage, View::Shards), Theme::FULL, 120, 40));
    let screen = shards("hpz");
    assert!(screen.contains('▪') && screen.contains("and 1/2 of the parameters again"), "{screen}");
    insta::assert_snapshot!("hpz_shards", screen);
    assert!(!shards("zero3").contains('▪'));
}

/// The smallest screen must still show this.
#[test]
fn the_smallest_screen_shows_it_all() {
    let smallest = |app: &App| text(&view::picture(app, Theme::FULL, 80, 24));
    let mut shown = app("zero3", View::Overview);
    for class in events::Class::ALL {
        let row = format!("{} {}", theme::class_glyph(class), theme::class_name(class));
        assert_eq!(smallest(&shown).matches(&row).count(), 4, "{class}: a row in every card");
    }
    shown.help = true;
    let last = screen::input::BINDINGS.last().unwrap().help;
    for (width, height) in [(80, 24), (80, 20)] {
        let keys = text(&view::picture(&shown, Theme::FULL, width, height));
        assert!(keys.contains(last) && keys.contains("pause or resume"), "{keys}");
    }
    insta::assert_snapshot!("help_80x24", smallest(&shown));
    let many = smallest(&made_up(&SimulationPlan::new(3, 64)));
    let words: Vec<&str> = many.split_whitespace().collect();
    let doing = |pair: &[&str]| pair[1].len() == 1 && pair[1].chars().all(char::is_alphabetic);
    let row = |rank: usize| words.windows(2).any(|pair| pair[0] == rank.to_string() && doing(pair));
    assert!((0..64).all(row), "every rank, and a letter for its activity: {many}");
    let mut failed = recorded("failed");
    failed.seek(failed.timeline().len());
    let failed = smallest(&App::new(vec![failed], EventSource::Recording));
    assert!(failed.contains("--checkpoint-activations selective") && failed.contains("Try one"), "{failed}");
    insta::assert_snapshot!("failed_explained_80x24", failed);
}

/// Six events apart, so that a collective can be followed around the ring.
#[test]
fn a_ring_hop_by_hop() {
    let mut player = recorded("ring");
    let hop = |player: &Player| player.scene().now.ranks[0].last_hop;
    player.seek_into_step(2, 0.1);
    let before = hop(&player).unwrap();
    while hop(&player).is_none_or(|hop| hop.sequence == before.sequence) {
        player.step_forward(Boundary::Event);
    }
    let mut app = App::new(vec![player], EventSource::Recording);
    let mut hops = Vec::new();
    for moment in 1..=3 {
        insta::assert_snapshot!(format!("ring_{moment}"), text(&view::picture(&app, Theme::FULL, 120, 40)));
        hops.extend(app.player().scene().now.ranks.iter().filter_map(|rank| rank.last_hop));
        (0..6).for_each(|_| app.players[0].step_forward(Boundary::Event));
    }
    assert!(hops.iter().all(|hop| usize::from(hop.to) < 4 && (1..=3).contains(&hop.number)));
}

/// The loss scale, a skipped step, and recomputed activations.
#[test]
fn half_precision_and_recomputation() {
    let mut player = recorded("fp16");
    player.seek_into_step(2, 0.6);
    let mut app = App::new(vec![player], EventSource::Recording);
    for view in [View::Overview, View::Streams] {
        app.view = view;
        let name = format!("fp16_{}", view.label().to_lowercase());
        insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, 120, 40)));
    }
    app.view = View::Overview;
    let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
    assert!(screen.contains("1 step skipped") && screen.contains("overflow"), "{screen}");
    let recomputed = |app: &App| text(&view::picture(app, Theme::FULL, 120, 40)).contains("recompute");
    app.view = View::Streams;
    assert!(recomputed(&app));
}

/// Overlapped and exposed communication.
#[test]
fn transfers_over_a_slow_link() {
    let mut player = recorded("link");
    player.seek_into_step(3, 0.9);
    let mut app = App::new(vec![player], EventSource::Recording);
    app.view = View::Streams;
    for (width, height) in SIZES {
        let name = format!("link_{width}x{height}");
        insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, width, height)));
    }
}

/// Groups within the world: slices among neighbours, and sums across.
#[test]
fn hybrid_sharding() {
    let mut player = recorded("hybrid");
    player.seek_into_step(1, 0.62);
    let mut app = App::new(vec![player], EventSource::Recording);
    for view in [View::Overview, View::Shards, View::Traffic] {
        app.view = view;
        let name = format!("hybrid_{}", view.label().to_lowercase());
        insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, 120, 40)));
    }
    let across = "across groups: the owners of each slice sum it";
    let told = |app: &App| screen::narration::sentence(app.player().scene(), 200).contains(across);
    while !told(&app) && !app.player().at_end() {
        app.players[0].step_forward(Boundary::Event);
    }
    app.view = View::Overview;
    let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
    assert!(screen.contains(across), "{screen}");
    insta::assert_snapshot!("hybrid_across", screen);
    let end = app.player().timeline().len();
    app.players[0].seek(end);
    app.view = View::Traffic;
    let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
    assert!(screen.contains("as theory says"), "{screen}");
}

/// Theory holds for every variant of a stage: groups of neighbours, a link, a ring, a skipped step.
#[test]
fn the_last_step_is_as_theory_says() {
    for (stage, step, words) in [
        ("ddp", 5, "2.00 ✓ as theory says"),
        ("zero1", 5, "2.00 ✓ as theory says"),
        ("zero2", 5, "2.00 ✓ as theory says"),
        ("zero3", 5, "2.96 ✓ as theory says"),
        ("ring", 5, "2.96 ✓ as theory says"),
        ("link", 5, "2.96 ✓ as theory says"),
        ("hpz", 5, "2.64 ✓ as theory says"),
        ("fp16", 2, "1.00 ✓ as theory, skipped"),
        ("fp16", 5, "2.00 ✓ as theory says"),
    ] {
        let mut player = recorded(stage);
        player.seek(player.timeline().len());
        if step < 5 {
            player.seek_into_step(step, 0.5);
        }
        let mut app = App::new(vec![player], EventSource::Recording);
        app.view = View::Traffic;
        for (width, height) in SIZES {
            let screen = text(&view::picture(&app, Theme::FULL, width, height));
            assert!(screen.contains(words), "{stage}: no {words} in\n{screen}");
        }
    }
}

/// Bytes sent in a validation do not belong to the step before it: the scale of the chart stays.
#[test]
fn traffic_over_time_leaves_a_validation_out() {
    let run = SimulationPlan::new(3, 4).run();
    let is_end = |event: &Event| matches!(event.what, What::StepFinished { .. });
    let trained = run.events.iter().rposition(is_end).unwrap() as u64 + 1;
    let mut app = live(run);
    (app.view, app.dismissed) = (View::Traffic, true);
    app.players[0].set_motion(Motion::Paused);
    let end = app.player().timeline().len();
    let [before, after] = [trained, end].map(|position| {
        app.players[0].seek(position);
        let screen = text(&view::picture(&app, Theme::FULL, 120, 60));
        let chart = screen.split("Over time").nth(1).unwrap();
        chart
            .lines()
            .filter_map(|line| line.split_once('┤'))
            .map(|(bytes, _)| bytes.to_string())
            .collect::<Vec<_>>()
    });
    assert!(before.len() > 1);
    assert_eq!(before, after);
}

/// A recording without theory in its header is compared with the planner's prediction.
#[test]
fn without_theory_the_prediction_counts() {
    let mut run = SimulationPlan::new(3, 4).run();
    run.header.theory.clear();
    let mut app = live(run);
    (app.view, app.dismissed) = (View::Traffic, true);
    let screen = text(&view::picture(&app, Theme::FULL, 120, 40));
    assert!(screen.contains("2.96 ✓ as planned") && !screen.contains("theory says"), "{screen}");
}

/// The memory shown is that of the moment when the first rank failed, not that after all buffers
/// were freed.
#[test]
fn a_failed_run_shows_its_last_state() {
    let mut player = recorded("failed");
    player.seek(player.timeline().len());
    let ranks = &player.scene().now.ranks;
    let (culprit, message) = player.scene().now.failure.clone().unwrap();
    assert!(message.starts_with(&format!("rank {culprit} is out of memory")), "{message}");
    assert!(message.contains("cargo run -p zero1"), "the message contains the remedy: {message}");
    let live = screen::words::bytes(ranks[culprit as usize].live_total());
    assert!(message.contains(&format!("{live} are in use")), "{live}: {message}");
    assert!(ranks.iter().all(|rank| rank.live_total() > 20_000_000));
    let mut app = App::new(vec![player], EventSource::Recording);
    insta::assert_snapshot!("failed_explained", text(&view::picture(&app, Theme::FULL, 120, 40)));
    app.dismissed = true;
    for view in [View::Overview, View::Memory] {
        app.view = view;
        let name = format!("failed_{}", view.label().to_lowercase());
        insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, 120, 40)));
    }
}

/// A rank that hangs emits no event. It is marked because the others waited for it; they are not
/// marked.
#[test]
fn a_timeout_marks_the_rank_that_was_waited_for() {
    let mut player = recorded("stall");
    player.seek(player.timeline().len());
    let mut app = App::new(vec![player], EventSource::Recording);
    for (width, height) in [(120, 40), (80, 24)] {
        app.dismissed = false;
        let told = text(&view::picture(&app, Theme::FULL, width, height));
        assert!(told.contains("for rank 3, which never issued it"), "{told}");
        assert!(told.contains("Check rank 3") && told.contains("--timeout 2 (now 1)"), "{told}");
        insta::assert_snapshot!(format!("stalled_explained_{width}x{height}"), told);
        app.dismissed = true;
        let shown = text(&view::picture(&app, Theme::FULL, width, height));
        let row = shown.lines().find(|line| line.contains('‖')).unwrap();
        let cells: Vec<&str> = row.split('│').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let marks: Vec<char> = cells.iter().filter_map(|cell| cell.chars().next()).collect();
        assert_eq!(marks, ['‖', '‖', '‖', '✗'], "{shown}");
        insta::assert_snapshot!(format!("stalled_{width}x{height}"), shown);
    }
}

#[test]
fn endings_and_help() {
    let done = live(SimulationPlan::new(3, 4).run());
    insta::assert_snapshot!("finished", text(&view::picture(&done, Theme::FULL, 80, 24)));
    let failed = live(SimulationPlan { fail_at: Some(1), ..SimulationPlan::new(2, 4) }.run());
    insta::assert_snapshot!("failed", text(&view::picture(&failed, Theme::FULL, 80, 24)));
    let mut help = app("zero3", View::Overview);
    help.help = true;
    insta::assert_snapshot!("help_120x40", text(&view::picture(&help, Theme::FULL, 120, 40)));
    let small = app("zero3", View::Overview);
    insta::assert_snapshot!("too_small", text(&view::picture(&small, Theme::FULL, 40, 5)));
}

/// A run whose stream ends without its own end is not called finished, nor is one that was ended
/// before its last step.
#[test]
fn a_run_that_is_cut_short_is_not_finished() {
    let run = SimulationPlan { steps: 5, ..SimulationPlan::new(3, 4) }.run();
    let second = |event: &Event| matches!(event.what, What::StepStarted { step: 2 });
    let half = run.events.iter().position(second).unwrap();
    let killed = SimulatedRun { events: run.events[..half + 40].to_vec(), ..run.clone() };
    let ends = run.events.iter().filter(|event| matches!(event.what, What::Finished { .. }));
    let asked = SimulatedRun { events: killed.events.iter().chain(ends).cloned().collect(), ..run };
    let screen = |run: &SimulatedRun| text(&view::picture(&live(run.clone()), Theme::FULL, 80, 24));
    for (name, run, words) in [
        ("killed", &killed, ["✗ connection lost", "the connection to ZeRO-3 is lost", "2 of 5 steps"]),
        ("ended_early", &asked, ["■ ended early", "ZeRO-3 was ended early", "2 of 5 steps"]),
    ] {
        let shown = screen(run);
        words.iter().for_each(|word| assert!(shown.contains(word), "{word}: {shown}"));
        assert!(!shown.contains("finished") && !shown.contains("is done"), "{shown}");
        insta::assert_snapshot!(name, shown);
    }
    let players = [killed.clone(), killed].map(|run| live(run).players.remove(0));
    let compared = App::new(players.into(), EventSource::Attached { control: false });
    let shown = text(&view::picture(&compared, Theme::FULL, 80, 24));
    assert_eq!(shown.matches("connection lost").count(), 3, "{shown}");
}

#[test]
fn fewer_colours_and_ascii() {
    for depth in [Depth::Indexed, Depth::Named, Depth::None] {
        let theme = Theme { depth, ascii: depth == Depth::None };
        let name = format!("depth_{depth:?}").to_lowercase();
        insta::assert_snapshot!(name, text(&view::picture(&app("zero3", View::Memory), theme, 120, 40)));
    }
}

/// A colour becomes its nearest neighbour among 256, never a grey.
#[test]
fn colours_stay_colours() {
    let theme = Theme { depth: Depth::Indexed, ascii: false };
    let classes = events::Class::ALL.iter().filter(|class| **class != events::Class::Workspace);
    let classes = classes.map(|&class| theme::class_colour(class));
    for colour in classes.chain([theme::WAITING, theme::ALARM, theme::GOOD, theme::ACCENT]) {
        let mut buffer = ratatui::buffer::Buffer::empty(ratatui::layout::Rect::new(0, 0, 1, 1));
        buffer[(0, 0)].fg = colour;
        theme.adapt(&mut buffer);
        let indexed = buffer[(0, 0)].fg;
        assert!(matches!(indexed, ratatui::style::Color::Indexed(16..=231)), "{colour:?}: {indexed:?}");
    }
}

/// Text in the ink colour must have a coloured background.
#[test]
fn sixteen_colours_keep_every_background() {
    let theme = Theme { depth: Depth::Named, ascii: false };
    for stage in STAGES {
        for view in View::ALL {
            let full = view::picture(&app(stage, view), Theme::FULL, 120, 40);
            let picture = view::picture(&app(stage, view), theme, 120, 40);
            for (cell, full) in picture.content.iter().zip(&full.content) {
                let ink = full.fg == screen::theme::INK;
                assert!(!ink || cell.bg != ratatui::style::Color::Reset, "{stage} {view:?}: {:?}", full);
            }
        }
    }
}

#[test]
fn ascii_is_ascii_and_colourless_is_colourless() {
    let theme = Theme { depth: Depth::None, ascii: true };
    for stage in STAGES {
        for view in View::ALL {
            let full = view::picture(&app(stage, view), Theme::FULL, 120, 40);
            let picture = view::picture(&app(stage, view), theme, 120, 40);
            for (cell, full) in picture.content.iter().zip(&full.content) {
                // A question mark stands for a symbol that has no substitute.
                let known = cell.symbol() != "?" || full.symbol() == "?";
                assert!(cell.symbol().is_ascii() && known, "{view:?}: {:?}", full.symbol());
                assert_eq!((cell.fg, cell.bg), (ratatui::style::Color::Reset, ratatui::style::Color::Reset));
            }
        }
    }
}

/// However little of a class a rank holds, its colour is in the bar.
#[test]
fn every_class_that_is_held_is_in_the_memory_bar() {
    for stage in STAGES {
        let mut player = recorded(stage);
        for share in 1..20 {
            player.seek_share(f64::from(share) / 20.0);
            let mut app = App::new(vec![player], EventSource::Recording);
            app.view = View::Overview;
            let picture = view::picture(&app, Theme::FULL, 80, 24);
            let row: Vec<_> = (3..36).map(|x| &picture[(x, 4)]).collect();
            let rank = &app.player().scene().now.ranks[0];
            let shown = row.iter().flat_map(|cell| [cell.fg, cell.bg]).collect::<Vec<_>>();
            for &class in events::Class::ALL.iter().filter(|&&class| rank.live_of(class) > 0) {
                assert!(shown.contains(&theme::class_colour(class)), "{stage} {share}: {class}");
            }
            player = app.players.remove(0);
        }
    }
    for ranks in [8, 16, 32] {
        let mut app = made_up(&SimulationPlan::new(3, ranks));
        for share in 1..20 {
            app.players[0].seek_share(f64::from(share) / 20.0);
            let picture = view::picture(&app, Theme::FULL, 80, 24);
            let shown: Vec<_> = (3..18)
                .flat_map(|y| (5..80).map(move |x| (x, y)))
                .flat_map(|cell| [picture[cell].fg, picture[cell].bg])
                .collect();
            for class in events::Class::ALL {
                let held =
                    app.player().scene().now.ranks.iter().filter(|rank| rank.live_of(class) > 0).count();
                let cells = shown.iter().filter(|&&colour| colour == theme::class_colour(class)).count();
                assert!(cells >= held, "{ranks} ranks, {share}: {class} is held by {held}, in {cells} cells");
            }
        }
    }
}
