//! Tests of what narrow screens leave out, and how they say so.

use crate::simulate::SimulationPlan;
use crate::support::{app, live, made_up, path, recorded, text};
use events::{Class, Place, Recorder, Recording, What};
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{View, view, words};

/// Returns the rows of the screen, without its colours.
fn rows(app: &App, width: u16, height: u16) -> Vec<String> {
    let picture = text(&view::picture(app, Theme::FULL, width, height));
    picture.lines().take(height.into()).map(String::from).collect()
}

/// On 60 columns the streams view still says for which rank the others waited, and a key's
/// description that is cut short ends with an ellipsis.
#[test]
fn narrow_screens_say_who_is_slow_and_what_is_cut() {
    let mut app = app("zero3", View::Streams);
    let screen = text(&view::picture(&app, Theme::FULL, 60, 20));
    let table = screen.lines().find(|line| line.contains("compute")).unwrap();
    assert!(table.contains("waited") && table.contains("most for"), "{screen}");
    assert!(screen.lines().any(|line| line.starts_with(" rank 0") && line.matches("rank").count() == 2));
    app.help = true;
    let keys = text(&view::picture(&app, Theme::FULL, 60, 20));
    assert!(keys.contains("…│") && keys.contains("pause or resume"), "{keys}");
}

/// A small terminal shows fewer panels, not a refusal.
#[test]
fn narrow_screens_show_less() {
    for (width, height) in [(60, 20), (40, 10)] {
        for view in View::ALL {
            let mut app = app("zero3", view);
            app.rank = 1;
            let picture = text(&view::picture(&app, Theme::FULL, width, height));
            let rows: Vec<&str> = picture.lines().take(height.into()).collect();
            let picture = rows.join("\n");
            insta::assert_snapshot!(
                format!("narrow_{}_{width}x{height}", view.label().to_lowercase()),
                picture
            );
        }
    }
}

/// On the smallest screen every view has its most important numbers, and no word is cut; a smaller
/// one says what is needed.
#[test]
fn the_smallest_screen_is_of_use() {
    let shown = |view: View| rows(&app("zero3", view), 40, 10).join("\n");
    let now = app("zero3", View::Memory).player().scene().now.ranks[0].clone();
    let memory = shown(View::Memory);
    for number in [now.live_total(), now.total_peak] {
        assert!(memory.contains(&words::bytes(number)), "{memory}");
    }
    assert!(memory.contains("   total ") && memory.contains("activations"), "{memory}");
    assert!(!shown(View::Memory).contains("pre"), "{memory}");
    assert!(shown(View::Streams).contains("rank 0 of 4 ↑↓"), "{}", shown(View::Streams));
    assert!(shown(View::Traffic).contains("   total "), "{}", shown(View::Traffic));
    let overview = shown(View::Overview);
    let wires = overview.lines().find(|row| row.starts_with(" ▶ ")).unwrap();
    assert!(wires.ends_with("reduce-scatter of block 3 to head"), "{wires}");
    let small = |width, height| rows(&app("zero3", View::Overview), width, height).join("\n");
    assert!(small(10, 3).contains("40×10") && !small(4, 2).contains('4'), "{}", small(10, 3));
}

/// However low the screen, the overview has a row for the first rank.
#[test]
fn low_screens_show_ranks() {
    for ranks in [1, 4] {
        let app = made_up(&SimulationPlan::new(3, ranks));
        for (width, height) in (10..20).flat_map(|height| (40..130).map(move |width| (width, height))) {
            let screen = rows(&app, width, height);
            let shown = screen.iter().any(|row| row.starts_with(" 0 ") || row.contains("─ rank 0 ─"));
            assert!(shown, "{ranks} ranks, {width}x{height}\n{}", screen.join("\n"));
        }
    }
}

/// The headings of the loss and of the metrics next to it are complete.
#[test]
fn headings_side_by_side_are_whole() {
    let mut app = live(SimulationPlan::new(3, 4).run());
    app.dismissed = true;
    for (width, height) in (20..40).flat_map(|height| (40..130).map(move |width| (width, height))) {
        let screen = rows(&app, width, height);
        let Some(row) = screen.iter().find(|row| row.starts_with(" Loss") && row.ends_with(" Now")) else {
            assert!(
                !screen.iter().any(|row| row.starts_with(" Loss") && row.contains("Now")),
                "{width}x{height}"
            );
            continue;
        };
        let words: Vec<&str> = row.split_whitespace().collect();
        let whole = ["Loss", "nats", "per", "token,", "by", "step", "◆", "validation", "Now"];
        assert!(words.iter().all(|word| whole.contains(word)), "{width}x{height}: {row}");
    }
}

/// A rank among many that holds a small part of what DDP would need still has a bar that can be
/// read: it ends at the highest peak, which the screen names.
#[test]
fn bars_among_many_ranks_end_at_the_highest_peak() {
    for (ranks, width, height) in [(40, 80, 24), (64, 80, 24), (64, 60, 20)] {
        let app = made_up(&SimulationPlan::new(3, ranks));
        let scene = app.player().scene();
        let full = scene.header.predicted_total.iter().copied().max().unwrap();
        assert!(full < scene.header.replicated_total[0], "sharding saves memory");
        let screen = rows(&app, width, height);
        let told = format!("full bar {}", words::bytes(full));
        assert!(screen.iter().any(|row| row.contains(&told)), "{told:?}\n{}", screen.join("\n"));
        let live = scene.now.ranks[0].live_total();
        let row = screen.iter().find(|row| row.starts_with("  0 ")).unwrap();
        let cells: Vec<char> = row.chars().skip(6).take_while(|cell| !cell.is_ascii_digit()).collect();
        let filled = cells.iter().filter(|cell| ('\u{2588}'..='\u{258f}').contains(*cell)).count();
        let columns = cells.len() - (5 - words::short_bytes(live).len());
        let expected = (live as f64 / full as f64 * columns as f64).ceil();
        assert_eq!(filled as f64, expected, "{columns} columns, {live} of {full}: {row}");
    }
}

/// True if every word of `row` is complete: one of `words`, a number or a symbol.
fn is_whole(row: &str, words: &[&str]) -> bool {
    let letters = |word: &&str| word.chars().filter(char::is_ascii_alphabetic).count() > 1;
    row.split_whitespace().filter(letters).all(|word| words.contains(&word))
}

/// A key that does not fit leaves out whole entries, the least important first, and says so.
#[test]
fn keys_leave_out_whole_entries() {
    let streams = "forward backward update all-gather reduce-scatter gather reduce issued waits scalars idle";
    let classes = "parameters params gradients grads optimizer gathered activations buckets communication \
                   workspace what DDP would need";
    for (view, first, least, words) in
        [(View::Streams, "█ forward", "issued", streams), (View::Compare, "■ param", "workspace", classes)]
    {
        let (app, words): (App, Vec<&str>) = (app("zero3", view), words.split(' ').collect());
        let cut = (40..=120).filter(|&width| {
            let screen = rows(&app, width, 30);
            let key = screen.iter().find(|row| row.contains(first)).unwrap();
            assert!(is_whole(key, &words), "{width}: {key}");
            assert_eq!(key.ends_with('…'), !key.contains(least), "{width}: {key}");
            key.ends_with('…')
        });
        assert!((10..40).contains(&cut.count()));
    }
}

/// Cells of several ranks are called so, whatever the width.
#[test]
fn shared_cells_say_how_many_ranks_they_are_of() {
    let mut app = made_up(&SimulationPlan::new(3, 64));
    app.view = View::Traffic;
    for (width, height) in [(60, 20), (72, 24), (80, 24), (120, 40)] {
        let screen = rows(&app, width, height);
        let row = screen.iter().find(|row| row.contains("ank to rank")).unwrap();
        assert!(row.contains(" ranks a cell") || row.contains(" a cell"), "{width}: {row}");
    }
}

/// Where the table of other places does not fit next to the classes, a row each tells their totals;
/// and no time of the streams view is cut.
#[test]
fn narrow_screens_show_what_other_places_hold() {
    let resting = vec![(Class::Optimizer, Place::Disk), (Class::Parameters, Place::Host)];
    let mut app = made_up(&SimulationPlan { resting, ..SimulationPlan::new(3, 4) });
    app.view = View::Memory;
    let screen = rows(&app, 60, 24);
    let held = |place: &str| screen.iter().find(|row| row.starts_with(&format!("   {place} "))).unwrap();
    let now = &app.player().scene().now.ranks[0];
    for (name, place) in [("main memory", Place::Host), ("disk", Place::Disk)] {
        let told = held(name).split_whitespace().collect::<Vec<_>>().join(" ");
        let peak = words::bytes(now.peak_in(place));
        assert!(told.starts_with(name) && told.contains(&peak), "{peak} in {told}");
    }
    app.view = View::Streams;
    for (width, columns) in [(40, 2), (60, 4), (78, 5), (80, 5), (120, 6)] {
        let screen = rows(&app, width, 30);
        let titles = screen.iter().position(|row| row.contains("waits for")).unwrap();
        let names = ["collectives", "other ranks", "copies", "disk", "the CPU", "computes"];
        let shown = names.iter().filter(|name| screen[titles].contains(*name)).count();
        assert_eq!(shown, columns, "{width}: {}", screen[titles]);
        assert!(screen[titles].contains("waits for "), "{width}: {}", screen[titles]);
        let row = &screen[titles + 1];
        let times = row.split_whitespace().filter(|word| ["ns", "µs", "ms", "s", "0"].contains(word)).count();
        assert!(times >= columns, "{width}: {row}");
    }
}

/// A single rank sends nothing to others and waits for none: there is no table of pairs.
#[test]
fn one_rank_has_no_pairs() {
    let mut app = made_up(&SimulationPlan::new(3, 1));
    for view in [View::Streams, View::Traffic, View::Compare] {
        app.view = view;
        let screen = rows(&app, 120, 40).join("\n");
        assert_eq!(screen.contains("█ all-gather"), view == View::Streams, "{screen}");
        assert!(!screen.contains("same step") && !screen.contains("every rank"), "{screen}");
        assert!(!screen.contains("From rank to rank") && !screen.contains("Waits between"), "{screen}");
    }
}

/// Runs of one stage are told apart by their titles, in the columns of a narrow screen, in the
/// differences, and where one of them is shown alone.
#[test]
fn runs_of_one_stage_are_told_apart_by_their_titles() {
    let titled = |name: &str| {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(format!("{name}.events"));
        std::fs::copy(path("zero3", "events"), &file).unwrap();
        let timeline = Timeline::recorded(Recording::open(&file).unwrap()).unwrap();
        Player::new(timeline, Motion::Paused)
    };
    let mut app = App::new(["first", "second", "third"].map(titled).into(), EventSource::Recording);
    app.players[0].seek_into_step(2, 0.5);
    app.sync_runs();
    for (width, height) in [(60, 20), (80, 24)] {
        let screen = rows(&app, width, height);
        let titles = screen.iter().find(|row| row.starts_with(" rank 0  ")).unwrap();
        assert!(["first", "second", "third"].iter().all(|title| titles.contains(title)), "{titles}");
    }
    let screen = rows(&app, 80, 24);
    assert!(
        screen.iter().any(|row| row.contains("▌ second against first: ") && row.ends_with("same losses"))
    );
    app.view = View::Memory;
    app.shown = 2;
    assert!(rows(&app, 80, 24)[0].contains("run 3 of 3 third"), "{}", rows(&app, 80, 24)[0]);
}

/// However long the runs' names and however narrow the screen, a comparison's verdict on the losses
/// is whole.
#[test]
fn the_verdict_on_the_losses_is_never_cut() {
    let dir = tempfile::tempdir().unwrap();
    let titled = |(number, name): (usize, &str)| {
        let mut run = SimulationPlan::new(3, 2).run();
        for event in &mut run.events {
            if let What::StepFinished { loss, .. } = &mut event.what {
                *loss += number as f64 / 1024.0;
            }
        }
        let file = dir.path().join(format!("{name}.events"));
        let mut recorder = Recorder::create(&file, &run.header).unwrap();
        recorder.push(0, &run.events).unwrap();
        recorder.finish().unwrap();
        let timeline = Timeline::recorded(Recording::open(&file).unwrap()).unwrap();
        Player::new(timeline, Motion::Paused)
    };
    let names = ["with-a-learning-rate-of-1e-3", "with-a-learning-rate-of-1e-4"];
    let mut app = App::new(names.into_iter().enumerate().map(titled).collect(), EventSource::Recording);
    app.players[0].seek_into_step(2, 0.5);
    app.sync_runs();
    for width in 60..160 {
        let screen = rows(&app, width, 24);
        let verdict = screen.iter().find(|row| row.starts_with(" ▌")).unwrap();
        assert!(verdict.contains("losses differ by 9.8e-4"), "{width}: {verdict}");
        assert!(verdict.contains("with-a-l") || width < 70, "{width}: {verdict}");
    }
}

/// Without colours, what has passed of the seek bar and what has not look different.
#[test]
fn ascii_shows_how_far_the_position_is() {
    let app = app("zero3", View::Overview);
    let plain = Theme { depth: screen::theme::Depth::None, ascii: true };
    let picture = text(&view::picture(&app, plain, 80, 24));
    let bar = picture.lines().find(|row| row.contains("=O")).unwrap();
    assert!(bar.starts_with(" ===") && bar.contains("--"), "{bar}");
}

/// Without colours, the selected rank and the passes below the memory look different from others.
#[test]
fn selection_and_passes_are_seen_without_colours() {
    let plain = Theme { depth: screen::theme::Depth::None, ascii: true };
    for view in [View::Overview, View::Shards] {
        let mut app = app("zero3", view);
        let screens = [0, 2].map(|rank| {
            app.rank = rank;
            view::picture(&app, plain, 120, 40)
        });
        assert_ne!(screens[0], screens[1], "{view:?}");
    }
    let memory = text(&view::picture(&app("zero3", View::Memory), plain, 120, 40));
    assert!(memory.contains("f forward f") && memory.contains("b backward b"), "{memory}");
}

/// The boxes over a run are whole on narrow screens: the result has all of its numbers, and a list
/// of keys that is too long says so.
#[test]
fn boxes_fit_on_narrow_screens() {
    let mut app = live(SimulationPlan::new(3, 4).run());
    let screen = |app: &App, width, height| rows(app, width, height).join("\n");
    let result = screen(&app, 60, 20);
    let sent: u64 = app.player().scene().now.ranks.iter().map(|rank| rank.sent.total()).sum();
    for word in ["activations", "reduce-scatter", &words::bytes(sent), "esc looks back at the run ─"] {
        assert!(result.contains(word), "{word} is missing\n{result}");
    }
    let tiny = screen(&app, 40, 10);
    assert!(tiny.contains(" q leaves · esc looks back ─") && !tiny.contains("Sent by"), "{tiny}");
    app.help = true;
    assert!(screen(&app, 40, 10).contains(" more on a taller screen "), "{}", screen(&app, 40, 10));
    assert!(!screen(&app, 80, 24).contains("taller"));
    (app.help, app.confirming_quit) = (false, true);
    assert!(screen(&app, 40, 10).contains("…│"), "{}", screen(&app, 40, 10));
}

/// However many runs are compared, their names leave the step and the state whole.
#[test]
fn the_title_of_a_comparison_shows_the_step_at_every_width() {
    let names = ["ddp", "zero1", "zero2", "zero3"];
    for count in 2..=names.len() {
        let players = names[..count].iter().map(|name| recorded(name)).collect();
        let mut app = App::new(players, EventSource::Recording);
        app.players[0].seek_into_step(3, 0.5);
        for width in 40..=100 {
            let rows = rows(&app, width, 24);
            assert!(rows[0].contains(" step 3 ") && rows[0].ends_with(" ‖ paused"), "{width}: {}", rows[0]);
            assert!(rows[0].starts_with("  DDP "), "{width}: {}", rows[0]);
        }
        app.view = View::Overview;
        app.players[0].set_speed(0.1);
        for width in 40..=100 {
            let title = rows(&app, width, 24).remove(0);
            assert!(title.contains(" step 3 ") && title.ends_with(" ‖ paused ×1/10"), "{width}: {title}");
            let number = format!("run 1 of {count} ");
            assert!(title.contains(&number) || width < 46 && !title.contains("run"), "{width}: {title}");
        }
    }
}

/// A speed is never shown as another one.
#[test]
fn speeds_are_shown_as_they_are() {
    let mut app = app("zero3", View::Overview);
    let speeds = [
        (0.001, "×1/1000"),
        (0.065, "×0.065"),
        (0.1, "×1/10"),
        (0.7, "×0.7"),
        (0.999, "×0.999"),
        (1.03, "×1.03"),
        (1.4, "×1.4"),
        (2.0, "×2"),
        (12.5, "×12.5"),
        (100.0, "×100"),
    ];
    for (speed, shown) in speeds {
        app.players[0].set_speed(speed);
        let title = rows(&app, 80, 24).remove(0);
        assert!(title.ends_with(&format!("paused {shown}")), "{speed}: {title}");
    }
}

/// On a screen that is too small the question whether a live run ends names its keys.
#[test]
fn a_screen_too_small_still_asks() {
    let mut app = live(SimulationPlan::new(2, 2).run());
    app.confirming_quit = true;
    for (width, answers) in [(39, "y end · d detach · esc stay"), (20, "y · d · esc")] {
        let screen = rows(&app, width, 8).join("\n");
        assert!(screen.contains(answers), "{screen}");
    }
}
