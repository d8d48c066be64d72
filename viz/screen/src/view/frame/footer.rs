//! The footer: the keys that have an effect now.

use crate::app::{App, EventSource, Prompt};
use crate::fit::{columns, fitted};
use crate::input::{ANSWERS, Action, BINDINGS, Binding, View};
use crate::player::{Motion, Problem};
use crate::theme::{ACCENT, ALARM, DIM, bold, ink};
use crate::view::paint::Paint;
use ratatui::style::Color;
use std::ops::Range;

struct FooterKey {
    x: u16,
    label: &'static str,
    short: String,
    action: Action,
}

impl FooterKey {
    fn of(app: &App, binding: &Binding) -> Self {
        let paused = || app.lead().motion() == Motion::Paused || app.held && app.may_hold();
        let short = match binding.action {
            Action::Granularity => format!("by {}", app.granularity),
            Action::NextProblem if app.lead().next_problem() == Some(Problem::Failure) => "failure".into(),
            Action::NextProblem => "skipped step".into(),
            Action::TogglePause if paused() => "play".into(),
            _ => binding.short.to_string(),
        };
        FooterKey { x: 0, label: binding.label, short, action: binding.action }
    }

    fn columns(&self) -> Range<u16> {
        self.x..self.x + columns(self.label) + 1 + columns(&self.short)
    }
}

/// True if an action has an effect now. A position that follows its run has no speed of its own:
/// the keys work only if the run itself may be slowed down.
fn does_something(app: &App, action: Action) -> bool {
    let recorded = app.source == EventSource::Recording;
    match action {
        Action::Slower if recorded => app.lead().motion() != Motion::Following,
        Action::Slower => app.may_hold(),
        Action::NextProblem => recorded && app.lead().next_problem().is_some(),
        Action::TogglePause => recorded || !app.at_end_of_run(),
        Action::PreviousRank => app.player().scene().now.ranks.len() > 1,
        Action::NextRun => app.players.len() > 1 && app.view != View::Compare,
        _ => true,
    }
}

/// Returns the action of a click on `column`. The first symbol of two opposite keys belongs to the
/// first key, all symbols after it to the other.
pub(super) fn clicked(app: &App, width: u16, column: u16) -> Option<Action> {
    let entries = if app.prompt.is_some() { Vec::new() } else { entries(app, width) };
    let entry = entries.into_iter().find(|entry| entry.columns().contains(&column))?;
    Some(match entry.action {
        first if column == entry.x => first,
        Action::Back => Action::Forward,
        Action::Slower => Action::Faster,
        Action::PreviousRank => Action::NextRank,
        only => only,
    })
}

/// Returns the keys that fit in the footer: those that answer the question on the screen, or else
/// those of the program, with help and quit at the right end.
fn entries(app: &App, width: u16) -> Vec<FooterKey> {
    let gap = if width >= 110 { 3 } else { 2 };
    let keys = if app.confirming_quit { ANSWERS } else { BINDINGS };
    let shown =
        keys.iter().filter(|binding| !binding.short.is_empty() && does_something(app, binding.action));
    let (ends, others): (Vec<FooterKey>, Vec<FooterKey>) = shown
        .map(|binding| FooterKey::of(app, binding))
        .partition(|entry| matches!(entry.action, Action::Help | Action::Quit));
    let mut end = width.saturating_sub(1);
    let mut placed = Vec::new();
    for entry in ends.into_iter().rev() {
        let x = end.saturating_sub(entry.columns().len() as u16);
        end = x.saturating_sub(gap);
        placed.push(FooterKey { x, ..entry });
    }
    let mut x = 1;
    for entry in others {
        let entry = FooterKey { x, ..entry };
        if entry.columns().end <= end {
            x = entry.columns().end + gap;
            placed.push(entry);
        }
    }
    placed
}

/// Draws the keys that fit, or the prompt if it is open.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    if let Some(open) = &app.prompt {
        return prompt(open, paint);
    }
    for entry in entries(app, paint.width()) {
        let x = paint.text(entry.x, 0, entry.label, bold(Color::Reset));
        paint.text(x + 1, 0, &entry.short, ink(DIM));
    }
}

const CLOSES: &str = " · esc closes";

/// Draws the typed text, and next to it the keys' meaning or the error.
fn prompt(open: &Prompt, paint: &mut Paint<'_>) {
    let x = paint.text(1, 0, format!(":{}", open.typed), bold(Color::Reset));
    let x = paint.text(x, 0, "▏", bold(ACCENT)) + 1;
    let (told, colour) = match &open.problem {
        Some(problem) => (problem.as_str(), ALARM),
        None => ("a step's number, or r3 for rank 3 · enter goes there", DIM),
    };
    let room = paint.width().saturating_sub(x + 1);
    let x = paint.text(x, 0, fitted(told, room), ink(colour));
    if x + columns(CLOSES) < paint.width() {
        paint.text(x, 0, CLOSES, ink(DIM));
    }
}
