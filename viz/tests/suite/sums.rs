//! Tests that the totals on the screen at the end equal the report of the same run.

use crate::simulate::SimulationPlan;
use crate::support::{SPECIAL, STAGES, made_up, path, recorded};
use events::{Boundary, Class, Operation, Recording, Snapshot, What};
use screen::app::{App, EventSource};
use screen::theme::Theme;
use screen::{View, view, words};
use serde_json::Value;

fn report(stage: &str) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path(stage, "json")).unwrap()).unwrap()
}

fn number(rows: &Value, rank: usize, key: &str, label: &str, value: &str) -> u64 {
    let rows = rows.as_array().unwrap();
    let row = rows.iter().find(|row| row["rank"] == rank && row[key] == label).unwrap();
    row[value].as_u64().unwrap()
}

#[test]
fn every_rank_class_and_operation_equals_the_report() {
    for stage in STAGES.into_iter().chain(SPECIAL) {
        let (report, mut player) = (report(stage), recorded(stage));
        player.seek(player.timeline().len());
        let now = &player.scene().now;
        for (number_of, rank) in now.ranks.iter().enumerate() {
            for class in Class::ALL {
                let told = number(&report["memory"], number_of, "class", class.label(), "peak_bytes");
                assert_eq!(rank.peak_of(class), told, "{stage}, rank {number_of}, {class}");
            }
            for operation in Operation::ALL {
                let told =
                    number(&report["traffic"], number_of, "operation", operation.label(), "bytes_sent");
                let shown = rank.sent.by_operation[operation.index()];
                assert_eq!(shown, told, "{stage}, rank {number_of}, {operation}");
            }
            assert_eq!(
                rank.total_peak,
                report["total_peak_bytes"][number_of]["peak_bytes"].as_u64().unwrap()
            );
        }
        let losses: Vec<f64> =
            player.timeline().state.history.steps.iter().map(|record| record.loss).collect();
        let told: Vec<f64> =
            report["steps"].as_array().unwrap().iter().map(|row| row["loss"].as_f64().unwrap()).collect();
        assert_eq!(losses, told, "{stage}");
    }
}

/// The peaks computed from events, before any rank reports its own, equal the ledger's.
#[test]
fn the_fold_of_events_reaches_the_reported_peaks_by_itself() {
    for stage in STAGES.into_iter().chain(SPECIAL) {
        let recording = Recording::open(&path(stage, "events")).unwrap();
        let told = recording.final_state().unwrap().snapshot;
        let mut fold = Snapshot::new(4, recording.header().units.len());
        let mut done = [false; 4];
        for event in (0..recording.len()).flat_map(|index| recording.batch(index).unwrap().events) {
            done[event.rank as usize] |= matches!(event.what, What::Finished { .. });
            if !done[event.rank as usize] {
                fold.apply(&event);
            }
        }
        for (shown, told) in fold.ranks.iter().zip(&told.ranks) {
            assert_eq!((shown.peak, shown.total_peak), (told.peak, told.total_peak), "{stage}");
            assert_eq!(shown.sent.by_operation, told.sent.by_operation, "{stage}");
        }
    }
}

/// The bytes per pair of ranks add up to those per operation, without scalars, which emit no hops.
#[test]
fn hops_add_up_to_the_operations() {
    for stage in STAGES.into_iter().chain(SPECIAL) {
        let mut player = recorded(stage);
        player.seek(player.timeline().len());
        for rank in &player.scene().now.ranks {
            let data = rank.sent.total() - rank.sent.by_operation[Operation::Scalars.index()];
            assert_eq!(rank.sent.by_receiver.iter().sum::<u64>(), data, "{stage}");
        }
    }
}

/// While some ranks are still in the step before, their bytes are no part of this step.
#[test]
fn the_step_shown_is_the_latest_of_any_rank() {
    let mut app = made_up(&SimulationPlan::new(3, 4));
    app.players[0].seek_step(1);
    let now = &app.player().scene().now;
    assert_eq!(now.ranks.iter().map(|rank| rank.step).collect::<Vec<_>>(), [1, 0, 0, 0]);
    for (view, label) in [(View::Traffic, "total"), (View::Overview, "sent, all ranks")] {
        app.view = view;
        let screen = crate::support::text(&view::picture(&app, Theme::FULL, 120, 40));
        let row = screen.lines().find_map(|line| line.split(&format!(" {label} ")).nth(1)).unwrap();
        assert!(row.trim_start().starts_with("0 B "), "{screen}");
        assert!(view == View::Overview || screen.contains("last step, below it the run"), "{screen}");
    }
}

/// While some ranks have not finished the last step, there is no verdict on its bytes, and it is
/// not compared with theory: no moment of a correct run differs from it.
#[test]
fn no_step_differs_from_theory_before_every_rank_has_finished_it() {
    for stage in STAGES.into_iter().chain(SPECIAL) {
        let mut app = App::new(vec![recorded(stage)], EventSource::Recording);
        app.view = View::Traffic;
        let (mut before, mut unfinished) = (Vec::new(), 0);
        while !app.player().at_end() {
            app.players[0].step_forward(Boundary::Event);
            let ranks = &app.player().scene().now.ranks;
            let progress: Vec<_> = ranks.iter().map(|rank| (rank.step, rank.in_step, rank.scaling)).collect();
            if progress == before {
                continue;
            }
            before = progress;
            let screen = crate::support::text(&view::picture(&app, Theme::FULL, 80, 24));
            assert!(!screen.contains("differs from"), "{stage}\n{screen}");
            unfinished += usize::from(screen.contains("done by "));
        }
        assert!(unfinished > 3, "{stage}: {unfinished}");
    }
}

#[test]
fn the_words_on_screen_are_these_sums() {
    for stage in STAGES.into_iter().chain(SPECIAL) {
        let report = report(stage);
        let mut player = recorded(stage);
        player.seek(player.timeline().len());
        let mut app = App::new(vec![player], EventSource::Recording);
        app.view = View::Traffic;
        let screen = crate::support::text(&view::picture(&app, Theme::FULL, 120, 40));
        let sent: u64 =
            report["traffic"].as_array().unwrap().iter().map(|row| row["bytes_sent"].as_u64().unwrap()).sum();
        assert!(screen.contains(&words::bytes(sent)), "{stage}: no {} in\n{screen}", words::bytes(sent));
        app.view = View::Overview;
        let screen = crate::support::text(&view::picture(&app, Theme::FULL, 120, 40));
        let loss =
            words::digits(report["steps"].as_array().unwrap().last().unwrap()["loss"].as_f64().unwrap());
        let row = screen.lines().find(|line| line.contains("  loss  ")).unwrap();
        assert!(row.contains(&loss), "{stage}: no {loss} in {row}");
        app.view = View::Memory;
        let screen = crate::support::text(&view::picture(&app, Theme::FULL, 120, 40));
        let peak = report["total_peak_bytes"][0]["peak_bytes"].as_u64().unwrap();
        assert!(screen.contains(&format!("predicted peak {} = measured", words::bytes(peak))), "{stage}");
    }
}
