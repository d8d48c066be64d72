//! The screen of runs that differ from the simplest run of their stage.

use events::Recording;
use prediction::Stage;
use screen::app::{App, EventSource};
use screen::player::{Motion, Player};
use screen::theme::Theme;
use screen::timeline::Timeline;
use screen::{View, view};
use std::path::Path;
use tests::train;

const RUN: &str = "--gpus 4 --steps 2 --batch-size 1 --seq-len 16 --threads 1";

/// Returns the end of a recorded run in one of the views.
fn screen(file: &Path, view: View) -> String {
    let timeline = Timeline::recorded(Recording::open(file).unwrap()).unwrap();
    let mut player = Player::new(timeline, Motion::Paused);
    player.seek(player.timeline().len());
    let mut app = App::new(vec![player], EventSource::Recording);
    app.view = view;
    let picture = view::picture(&app, Theme::FULL, 120, 40);
    let rows = picture.content.chunks(120);
    rows.map(|row| row.iter().map(|cell| cell.symbol()).collect::<String>() + "\n").collect()
}

/// The traffic view shows a stage's traffic under these flags, in Ψ(N−1)/N per rank, and the last
/// step has sent exactly that. Of the tiny model's Ψ = 918,656 parameters, the head has 32,896 and
/// its norms have 1,152.
#[test]
fn theory_counts_what_the_flags_ask_for() {
    let (head, norms) = (32_896.0 / 918_656.0, 1_152.0 / 918_656.0);
    let across = 2.0 * (1.0 / 2.0) / 2.0 * (4.0 / 3.0);
    let within = (1.0 / 2.0) * (4.0 / 3.0);
    let cases = [
        (Stage::Ddp, "", 2.0),
        (Stage::Ddp, "--precision bf16", 2.0),
        (Stage::Zero1, "--grad-accum 3", 2.0),
        (Stage::Zero1, "--grad-sync all-reduce", 3.0),
        (Stage::Zero2, "--grad-accum 3", 4.0),
        (Stage::Zero2, "--precision bf16 --reduce-dtype fp32", 2.0),
        (Stage::Zero3, "", 3.0 - head),
        (Stage::Zero3, "--grad-accum 2", 2.0 * (3.0 - head)),
        (Stage::Zero3, "--reshard-last", 3.0),
        (Stage::Zero3, "--precision bf16 --reduce-dtype fp32", 3.0 - head),
        (Stage::Zero3, "--strategy shard-grad-op", 2.0),
        (Stage::Zero3, "--strategy hybrid-shard --shard-group-size 2", (3.0 - head) * within + across),
        (Stage::Zero3, "--secondary-shard-size 2", 2.0 + (1.0 - head) * within),
        (Stage::Zero3, "--reshard-last --param-persistence-threshold 128", 3.0 - norms),
    ];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    for (stage, flags, times) in cases {
        train(stage, &format!("{RUN} {flags} --record {}", file.display())).unwrap();
        let screen = screen(&file, View::Traffic);
        for words in [format!("{times:.2} Ψ(N−1)/N per rank"), format!("{times:.2} ✓ as theory says")] {
            assert!(screen.contains(&words), "{stage} {flags}: no {words} in\n{screen}");
        }
    }
}

/// The rank that the others waited for is at fault, not the one that noticed. The screen suggests a
/// remedy.
#[test]
fn a_timeout_blames_the_rank_that_was_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    let stall = "--timeout 1 --inject stall@rank3,step1,backward";
    let failure = train(Stage::Zero2, &format!("{RUN} {stall} --record {}", file.display())).unwrap_err();
    let recording = Recording::open(&file).unwrap();
    let (culprit, message) = recording.final_state().unwrap().snapshot.failure.unwrap();
    assert_eq!(culprit, 3, "{message}");
    for text in [&message, &failure.to_string()] {
        assert!(text.contains("for rank 3, which never issued it"), "{text}");
        assert!(text.contains("Check rank 3") && text.contains("--timeout 2 (now 1)"), "{text}");
    }
    assert!(screen(&file, View::Overview).contains("--timeout 2 (now 1)"), "the remedy is on screen");
}

/// The rank that starts from different weights is blamed, although every rank notices the
/// difference.
#[test]
fn other_weights_blame_the_rank_that_has_them() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run");
    train(Stage::Ddp, &format!("{RUN} --inject seed@rank3 --record {}", file.display())).unwrap_err();
    let outcome = Recording::open(&file).unwrap().final_state().unwrap();
    assert_eq!(outcome.snapshot.failure.map(|failure| failure.0), Some(3));
}
