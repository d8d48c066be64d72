//! Warnings about missing events of a run: dropped ones, damaged parts of a recording, its end.

use crate::app::App;
use crate::fit::{columns, fitting};
use crate::gaps::IncompleteUntil;
use crate::theme::{ALARM, DIM, GOOD, WAITING, ink};
use crate::timeline::FollowState;
use crate::view::paint::Paint;
use crate::words;
use ratatui::style::Color;

/// Draws a warning that events are missing, in the longest form that fits: a truncated recording,
/// damaged bytes, dropped events. If none are, draws whether a recording that is followed is
/// complete.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let timeline = app.player().timeline();
    let dropped = timeline.dropped(app.player().position());
    let mut causes: Vec<[String; 3]> = Vec::new();
    if timeline.truncated() {
        causes.push(["recording ends early", "ends early", "ends early"].map(String::from));
    }
    if timeline.damaged_bytes() > 0 {
        let bytes = words::bytes(timeline.damaged_bytes());
        causes.push([format!("{bytes} damaged"), format!("{bytes} damaged"), "damaged".into()]);
    }
    if dropped > 0 {
        let (all, few) = (words::grouped(dropped), words::count(dropped as f64));
        causes.push([format!("{all} events dropped"), format!("{all} dropped"), format!("{few} dropped")]);
    }
    let (told, colour) = match &causes[..] {
        [] => growth(app),
        [_] if timeline.truncated() => (causes.concat(), WAITING),
        [_] => (causes.concat(), ALARM),
        many => {
            let joined = |form: usize| many.iter().map(|cause| &*cause[form]).collect::<Vec<_>>().join(" · ");
            (vec![joined(0), joined(2), "incomplete".into()], ALARM)
        }
    };
    let room = paint.width().saturating_sub(1);
    paint.right(room, 0, fitting(&told, room), ink(colour));
}

/// Returns whether a recording that is followed is complete, and the colour of that.
fn growth(app: &App) -> (Vec<String>, Color) {
    match (app.player().timeline().follow_state(), app.quiet_seconds()) {
        (FollowState::NotFollowed, _) => (Vec::new(), DIM),
        (FollowState::Complete, _) => (vec!["the recording is complete".into(), "complete".into()], GOOD),
        (FollowState::Growing, None) => (vec!["the recording grows".into(), "grows".into()], DIM),
        (FollowState::Growing, Some(seconds)) => {
            (vec![format!("nothing new for {seconds} s"), format!("quiet {seconds} s")], WAITING)
        }
    }
}

/// Returns a sentence about a gap whose effect lasts `until` then, in the longest form that fits.
pub(super) fn sentence(until: IncompleteUntil, room: u16) -> String {
    let forms = match until {
        IncompleteUntil::End => [
            "Events from before the first full step are damaged: memory and totals are too low from there on.",
            "Events of the first steps are damaged: memory and totals are too low.",
            "First events damaged: memory is too low.",
        ],
        IncompleteUntil::FullStep => [
            "Events right before this are damaged: the display is complete after the next full step.",
            "Events before this are damaged: incomplete until the next full step.",
            "Damaged before this: incomplete.",
        ],
    };
    forms.iter().find(|form| columns(form) <= room).unwrap_or(&forms[2]).to_string()
}
