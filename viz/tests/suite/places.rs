//! Views of runs whose states are stored in main memory or on disk.

use crate::simulate::{SimulatedRun, SimulationPlan};
use crate::support::{live, made_up, text, track};
use events::{Boundary, Class, Place, Recorder, Recording};
use screen::app::App;
use screen::theme::{Depth, Theme};
use screen::{View, narration, view, words};
use std::collections::{BTreeMap, BTreeSet};
use viz::export;

const SIZES: [(u16, u16); 3] = [(80, 24), (120, 40), (200, 50)];
const PLAIN: Theme = Theme { depth: Depth::None, ascii: true };

/// Returns a plan of ZeRO-3 whose optimizer states, parameters and activations rest in these
/// places.
fn plan([optimizer, parameters, activations]: [Place; 3]) -> SimulationPlan {
    let resting = vec![
        (Class::Optimizer, optimizer),
        (Class::Parameters, parameters),
        (Class::Activations, activations),
    ];
    SimulationPlan { resting, ..SimulationPlan::new(3, 4) }
}

/// Returns a run that is offloaded as ZeRO-Infinity is, in the forward of its second step.
fn infinity() -> App {
    let mut app = made_up(&plan([Place::Disk, Place::Host, Place::Host]));
    app.players[0].seek_into_step(1, 0.2);
    app
}

fn screen(app: &App, theme: Theme, (width, height): (u16, u16)) -> String {
    let picture = view::picture(app, theme, width, height);
    let rows = picture.content.chunks(usize::from(width));
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
}

#[test]
fn every_view_of_an_offloaded_run() {
    let mut app = infinity();
    for view in View::ALL {
        app.view = view;
        for (width, height) in SIZES {
            let name = format!("{}_{width}x{height}", view.label().to_lowercase());
            insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, width, height)));
        }
    }
}

/// The predicted and the measured peak are shown next to each other, or only one of them.
#[test]
fn peaks_are_not_written_over_each_other() {
    let mut run = plan([Place::Host, Place::Device, Place::Device]).run();
    let measured = run.header.offload.memory[0].total;
    let predicted = measured + measured / 8;
    run.header.offload.memory.iter_mut().for_each(|planned| planned.total = predicted);
    let told = [("predicted", predicted), ("measured", measured)];
    let told = told.map(|(which, bytes)| format!("{which} peak {}", words::bytes(bytes)));
    let mut app = live(run);
    app.view = View::Memory;
    app.players[0].set_motion(screen::player::Motion::Paused);
    let mut both = 0;
    for (share, width) in (5..20).flat_map(|share| (118..200).step_by(9).map(move |width| (share, width))) {
        app.players[0].seek_share(f64::from(share) / 20.0);
        let screen = screen(&app, Theme::FULL, (width, 40));
        let rows = screen.split("Main memory of").nth(1).unwrap().lines();
        let rows = rows.map(|row| row.chars().take(usize::from(width) - 52).collect::<String>());
        for row in rows.filter(|row| matches!(row.chars().nth(9), Some('│' | '┤'))) {
            both += usize::from(told.iter().all(|text| row.contains(text)));
            let rest = told.iter().fold(row.clone(), |row, text| row.replace(text, ""));
            assert!(!rest.contains(['p', 'm', 'B']), "{row}");
        }
    }
    assert!(both > 0);
}

/// The update of the same run: its optimizer states pass through buffers.
#[test]
fn an_update_that_is_paged_through() {
    let mut app = infinity();
    app.players[0].seek_into_step(1, 0.93);
    for view in [View::Overview, View::Shards, View::Streams] {
        app.view = view;
        let name = format!("update_{}", view.label().to_lowercase());
        insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, 120, 40)));
    }
}

/// More ranks than fit on cards, with little and with much room.
#[test]
fn many_ranks() {
    for ranks in [12, 64] {
        let app = made_up(&SimulationPlan { ranks, ..plan([Place::Disk, Place::Host, Place::Host]) });
        let name = format!("overview_{ranks}_ranks");
        insta::assert_snapshot!(name, text(&view::picture(&app, Theme::FULL, 120, 40)));
    }
}

/// Without colours and Unicode, places are told apart by words, letters and arrows.
#[test]
fn places_differ_without_colours() {
    let mut app = infinity();
    for (view, marks) in [
        (View::Overview, &["host P", "disk O", "^"][..]),
        (View::Shards, &["hh", "dd", "^"]),
        (View::Memory, &["main memory", "disk", "P param", "O optim"]),
        (View::Streams, &["copies", "disk", "^", "v"]),
        (View::Traffic, &["v device>host", "^ host>device", "v host>disk", "^ disk>host"]),
    ] {
        app.view = view;
        for size in SIZES {
            let screen = screen(&app, PLAIN, size);
            assert!(screen.is_ascii());
            for mark in marks {
                assert!(screen.contains(mark), "{view:?} {size:?}: no {mark} in\n{screen}");
            }
        }
    }
}

/// Returns the sentences about the second step, at all of its moments.
fn told(places: [Place; 3]) -> BTreeSet<String> {
    let mut app = live(plan(places).run());
    app.players[0].set_motion(screen::player::Motion::Paused);
    app.players[0].seek_step(1);
    let mut told = BTreeSet::new();
    while app.player().scene().now.ranks[0].step == 1 && !app.player().at_end() {
        let sentence = narration::sentence(app.player().scene(), 118);
        assert!(narration::sentence(app.player().scene(), 76).chars().count() <= 76, "{sentence}");
        told.insert(sentence);
        app.players[0].step_forward(Boundary::Event);
    }
    told
}

#[test]
fn narration_explains_what_travels() {
    use Place::{Device, Disk, Host};
    for (places, sentences) in [
        (
            [Disk, Device, Host],
            &[
                "AdamW updates block 1 in main memory: piece by piece, while the next piece comes from disk and the last \
                 one returns.",
                "Optimizer states of block 1 come from disk: their update takes them piece by piece through buffers in main \
                 memory.",
                "; activations of block 1 leave for main memory.",
                "ctivations of block 1 come back to the device",
            ][..],
        ),
        (
            [Host, Disk, Disk],
            &[
                "AdamW updates block 1 in main memory: its optimizer states stay there and never move.",
                "he shard of block 2 comes from disk",
                "ummed gradients of block 1 follow the optimizer states",
                "ctivations of block 3 leave for disk",
                "pdated parameters of block 1 leave for disk",
            ],
        ),
    ] {
        let told = told(places);
        for sentence in sentences {
            assert!(
                told.iter().any(|told| told.contains(sentence)),
                "{places:?}: no {sentence} in {told:#?}"
            );
        }
    }
}

/// The transfers of a run are in its trace: a span per transfer, which overlaps no other on its
/// track, and its memory in other places as counters of their own.
#[test]
fn a_trace_has_transfers() {
    let SimulatedRun { header, events } = plan([Place::Disk, Place::Host, Place::Device]).run();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.events");
    let mut recorder = Recorder::create(&path, &header).unwrap();
    recorder.push(0, &events).unwrap();
    recorder.finish().unwrap();
    let trace = export::trace::render(&Recording::open(&path).unwrap()).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&trace).unwrap();
    let entries = trace["traceEvents"].as_array().unwrap();
    let of = |name: &str, value: &str| entries.iter().filter(|entry| entry[name] == value).count();
    // Per rank and step, the states of six units come from disk and return.
    assert_eq!((of("cat", "disk→host"), of("cat", "host→disk")), (4 * 3 * 6, 4 * 3 * 6));
    let mut tracks: BTreeMap<_, Vec<(f64, f64)>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry["cat"].as_str().is_some_and(|cat| cat.contains('→'))) {
        let place = (entry["pid"].as_u64().unwrap(), track(entry));
        let [from, length] = ["ts", "dur"].map(|key| entry[key].as_f64().unwrap());
        tracks.entry(place).or_default().push((from, from + length));
    }
    assert!(tracks.keys().all(|(_, track)| *track > 1), "compute and communication have tracks of their own");
    for spans in tracks.values() {
        assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0 + 0.001), "{spans:?}");
    }
    assert!(of("name", "memory: host") > 0 && of("name", "memory: disk") > 0);
}

/// The screen of a run without offload shows none of this.
#[test]
fn nothing_changes_without_offloading() {
    let mut app = made_up(&SimulationPlan::new(3, 4));
    for view in View::ALL {
        app.view = view;
        for size in SIZES {
            let screen = screen(&app, Theme::FULL, size);
            for word in ["host", "disk", "copies", "main memory", "moved"] {
                assert!(!screen.contains(word), "{view:?}: {word} in\n{screen}");
            }
        }
    }
}
