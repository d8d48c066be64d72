//! Tests of runs side by side that do not have the same steps and passes.

use crate::screens::with_contributions;
use crate::simulate::{SimulatedRun, SimulationPlan};
use crate::support::{live, text};
use events::{Boundary, Pass, What};
use screen::View;
use screen::app::{App, EventSource};
use screen::input::{Action, Input};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::view::picture;

/// Returns recordings of `runs` side by side, at their beginning.
fn compared<const N: usize>(runs: [SimulatedRun; N]) -> App {
    let mut players = runs.map(|run| live(run).players.remove(0));
    players.iter_mut().for_each(|player| player.set_motion(Motion::Paused));
    players[0].seek(0);
    let mut app = App::new(players.into(), EventSource::Recording);
    app.view = View::Compare;
    app
}

fn screen(app: &App) -> String {
    text(&picture(app, Theme::FULL, 120, 40))
}

/// The title names the ranks of all runs.
#[test]
fn the_title_names_each_number_of_ranks() {
    for (ranks, title) in
        [([4, 4, 4], " 4 ranks "), ([2, 4, 2], " 2 and 4 ranks "), ([8, 1, 2], " 1, 2 and 8 ranks ")]
    {
        let app = compared(ranks.map(|ranks| SimulationPlan::new(3, ranks).run()));
        let shown = screen(&app);
        assert!(shown.lines().next().is_some_and(|line| line.contains(title)), "{shown}");
    }
}

/// A run that has ended or failed before the first one stays at its end.
#[test]
fn a_run_that_has_ended_stays_at_its_end() {
    let plan = |stage, steps| SimulationPlan { steps, ..SimulationPlan::new(stage, 2) };
    let failed = SimulationPlan { fail_at: Some(1), ..plan(1, 4) };
    let mut app = compared([plan(0, 4).run(), plan(2, 2).run(), failed.run()]);
    let mut beyond = 0;
    while !app.lead().at_end() {
        app.update(Input::Action(Action::Forward));
        let step = app.lead().scene().now.ranks[0].step;
        beyond += usize::from(step >= 2);
        for player in app.players[1..].iter().filter(|_| step >= 2) {
            assert!(player.at_end(), "{} of {}", player.position(), player.timeline().len());
        }
    }
    assert!(beyond > 20, "{beyond}");
    assert_eq!(app.players[2].scene().now.failure.as_ref().map(|(rank, _)| *rank), Some(1));
}

/// A resumed run waits at its beginning, and is not compared, until the other comes to its first
/// step.
#[test]
fn a_resumed_run_waits_for_its_first_step() {
    let mut resumed = SimulationPlan { steps: 2, ..SimulationPlan::new(2, 2) }.run();
    for event in &mut resumed.events {
        if let What::StepStarted { step } | What::StepFinished { step, .. } = &mut event.what {
            *step += 2;
        }
    }
    resumed.header.steps += 2;
    let mut app = compared([SimulationPlan { steps: 4, ..SimulationPlan::new(0, 2) }.run(), resumed]);
    let begins = app.players[1].timeline().marks[0].position;
    for step in 0..4 {
        app.update(Input::Action(Action::NextStep));
        app.update(Input::Action(Action::Forward));
        assert_eq!(app.lead().scene().now.ranks[0].step, step);
        assert_eq!(app.players[1].position() == begins, step < 2);
        let shown = screen(&app);
        assert_eq!(shown.contains("ZeRO-2 begins at step 2."), step < 2, "{shown}");
        assert_eq!(shown.contains("same step, same phase"), step >= 2, "{shown}");
        assert_eq!(shown.contains("peaked"), step >= 2, "{shown}");
    }
}

/// Every batch of a validation runs through all units again.
#[test]
fn compared_runs_stay_at_the_same_batch_of_a_validation() {
    let plan = |stage| SimulationPlan { validation_batches: 3, ..SimulationPlan::new(stage, 2) };
    let mut app = compared([0, 3].map(|stage| plan(stage).run()));
    app.players[0].seek_into_step(2, 0.5);
    app.sync_runs();
    let batch = |player: &Player| {
        let marks = player.timeline().marks.iter();
        let passed = marks.filter(|mark| mark.position < player.position());
        let validations = passed.filter_map(|mark| mark.pass.filter(|(pass, ..)| *pass == Pass::Evaluate));
        validations.fold((0, None), |(count, _), (_, unit, _)| (count + 1, Some(unit)))
    };
    let mut before = app.players[1].position();
    while !app.lead().at_end() {
        app.players[0].step_forward(Boundary::Event);
        app.sync_runs();
        let [first, other] = [0, 1].map(|run| batch(&app.players[run]));
        assert_eq!(first, other);
        assert!(app.players[1].position() >= before, "it jumps back");
        before = app.players[1].position();
    }
    assert_eq!(batch(app.lead()), (18, Some(5)));
}

/// The table of the ranks' own metrics shows the page that holds the selected rank where not all
/// fit, next to the other metrics and without blank rows.
#[test]
fn the_own_part_of_every_rank_can_be_reached() {
    for (runs, ranks) in [(1, 8), (2, 8), (2, 64), (3, 8), (4, 8)] {
        let players = (0..runs).map(|_| live(with_contributions(ranks, None)).players.remove(0));
        let mut app = App::new(players.collect(), EventSource::Recording);
        (app.view, app.dismissed) = (View::Compare, true);
        app.players[0].set_motion(Motion::Paused);
        app.players[0].seek_into_step(2, 0.5);
        app.sync_runs();
        for rank in 0..ranks as usize {
            app.rank = rank;
            let shown = text(&picture(&app, Theme::FULL, 80, 24));
            let rows: Vec<&str> = shown.lines().take(21).collect();
            let own =
                rows.iter().find(|row| row.starts_with(&format!(" rank {rank} ")) && row.contains("5.5000"));
            assert!(own.is_some(), "{shown}");
            assert!(rows[20].contains("5.5000"), "{runs} runs of {ranks} ranks leave rows blank: {shown}");
            assert!(runs == 1 || rows[2..].iter().all(|row| !row.is_empty()), "{shown}");
            assert!(shown.contains("▌ ") || runs == 1, "{shown}");
            assert!(runs > 3 || shown.contains("loss, all ranks"), "{shown}");
            assert!(shown.contains(&format!(" of {ranks} ↑↓")), "{shown}");
        }
    }
}
