//! The frame around every view: title, tabs, narration, seek bar, footer; and the actions of clicks
//! on them.

mod footer;
mod missing;
mod seek;

use super::paint::Paint;
use crate::app::{App, EventSource};
use crate::fit::{columns, fitted, fitting, fitting_or_cut};
use crate::input::{ANSWERS, Action, View};
use crate::player::{Motion, Player};
use crate::theme::{self, ACCENT, ALARM, DIM, GOOD, bold, ink};
use crate::timeline::{Ending, FollowState};
use crate::{narration, places, words};
use events::RunHeader;
use events::header::Choices;
use events::say::{counted, digits};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

/// The smallest screen, in columns and rows, on which all views are readable.
pub const SMALLEST: (u16, u16) = (40, 10);

struct Rows {
    tabs: u16,
    body: u16,
    body_height: u16,
    narration: u16,
    seek: u16,
    footer: u16,
}

impl Rows {
    fn new(height: u16) -> Self {
        let spacious = height >= 32;
        let body = if spacious { 4 } else { 2 };
        let narration = height.saturating_sub(if spacious { 5 } else { 3 });
        Rows {
            tabs: if spacious { 2 } else { 1 },
            body,
            body_height: narration.saturating_sub(body + u16::from(spacious)),
            narration,
            seek: height.saturating_sub(2 + u16::from(spacious)),
            footer: height.saturating_sub(1),
        }
    }
}

/// Returns the rows that a box over a view may cover, narration included: the first row and the
/// number of rows.
pub(super) fn overlay(height: u16) -> (u16, u16) {
    let rows = Rows::new(height);
    (rows.tabs + 1, rows.narration.saturating_sub(rows.tabs))
}

/// The screen's width below which only the chosen view's tab has a name.
const NARROW: u16 = 66;

/// Returns the views' tabs: where each begins, and its label.
fn tab_places(chosen: View, width: u16) -> impl Iterator<Item = (View, u16, String)> {
    let gap = if width >= 100 { 2 } else { 0 };
    (1..).zip(View::ALL).scan(1, move |x, (number, view)| {
        let named = width >= NARROW || view == chosen;
        let label = if named { format!(" {number} {} ", view.label()) } else { format!(" {number} ") };
        let start = *x;
        *x += columns(&label) + gap;
        Some((view, start, label))
    })
}

/// Returns the action of a click on `column`, `row` of a screen of `size` columns and rows, unless
/// it is within the view.
pub(super) fn clicked(app: &App, size: (u16, u16), (column, row): (u16, u16)) -> Option<Action> {
    let (width, rows) = (size.0, Rows::new(size.1));
    if row == rows.tabs {
        let hit = |(_, x, label): &(View, u16, String)| (*x..x + columns(label)).contains(&column);
        return tab_places(app.view, width).find(hit).map(|(view, ..)| Action::Show(view));
    }
    if row == rows.seek {
        return seek::clicked(width, column).map(Action::Seek);
    }
    if row == rows.footer { footer::clicked(app, width, column) } else { None }
}

/// Draws the frame and returns the rectangle for the view.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) -> Rect {
    let rows = Rows::new(paint.height());
    let width = paint.width();
    title(app, &mut paint.part(0, 0, width, 1));
    tabs(app, &mut paint.part(0, rows.tabs, width, 1));
    narrate(app, &mut paint.part(1, rows.narration, width.saturating_sub(2), 1));
    seek::draw(app, &mut paint.part(0, rows.seek, width, 1));
    footer::draw(app, &mut paint.part(0, rows.footer, width, 1));
    body((width, paint.height()))
}

/// Returns the rectangle for the view, on a screen of `width` columns and `height` rows.
pub(super) fn body((width, height): (u16, u16)) -> Rect {
    let rows = Rows::new(height);
    Rect { x: 1, y: rows.body, width: width.saturating_sub(2), height: rows.body_height }
}

/// Returns the colour of a stage, in the title and where runs are compared.
pub fn stage_colour(header: &RunHeader) -> Color {
    match header.stage.split(' ').next().unwrap_or_default() {
        "ZeRO-1" => Color::Rgb(0x5c, 0xc8, 0xa8),
        "ZeRO-2" => Color::Rgb(0xf0, 0xb4, 0x5a),
        "ZeRO-3" => Color::Rgb(0x7a, 0xb8, 0xff),
        _ => Color::Rgb(0xc9, 0xa4, 0xd8),
    }
}

fn title(app: &App, paint: &mut Paint<'_>) {
    let header = &app.player().scene().header;
    let width = paint.width();
    let compared = if app.view == View::Compare { app.players.len() } else { 1 };
    let shown: Vec<&Player> = if compared > 1 { app.players.iter().collect() } else { vec![app.player()] };
    let status = status(app);
    let least = columns(&progress(app.player(), 0)) + columns(&status.0) + 4;
    let x = badges(&shown, width.saturating_sub(least), paint);
    let number = format!("run {} of {}", app.shown + 1, app.players.len());
    let x = match app.players.len() {
        2.. if app.view != View::Compare && x + columns(&number) + least < width => {
            let x = paint.text(x, 0, number, bold(ACCENT)) + 1;
            let named = width >= 80 && app.shares_stage(app.player());
            let title = fitted(if named { &app.player().timeline().title } else { "" }, 16);
            paint.text(x, 0, &title, bold(ACCENT)) + u16::from(!title.is_empty())
        }
        _ => x,
    };
    let beside = width.saturating_sub(x + columns(&status.0) + 5);
    let progress = progress(app.player(), beside);
    let right = columns(&progress) + columns(&status.0) + 4;
    let room = Some(width.saturating_sub(x + right + 1)).filter(|&room| room >= 4);
    let model = room.map_or(String::new(), |room| fitted(&format!(" {}", header.model), room));
    let x = paint.text(x, 0, model, bold(Color::Reset));
    let room = width.saturating_sub(x + right + 2);
    if room > 8 {
        paint.text(x, 0, fitting_or_cut(&run_summary(&shown), room), ink(DIM));
    }
    let start = width.saturating_sub(right);
    let x = paint.text(start, 0, progress, ink(Color::Reset)) + 2;
    paint.text(x, 0, status.0, bold(status.1));
}

/// Writes the stages of `players` before column `end`, as many as fit, and an ellipsis for the
/// others. Returns the column after them.
fn badges(players: &[&Player], end: u16, paint: &mut Paint<'_>) -> u16 {
    let (mut x, theme) = (1, paint.theme());
    for (number, player) in (1..).zip(players) {
        let header = &player.scene().header;
        let badge = format!(" {} ", header.stage);
        let ellipsis = if number < players.len() { 2 } else { 0 };
        if x + columns(&badge) + ellipsis >= end {
            return paint.text(x, 0, "…", ink(DIM)) + 1;
        }
        x = paint.text(x, 0, badge, theme::badge(stage_colour(header), theme)) + 1;
    }
    x
}

/// Returns descriptions of the run that is shown, from the longest to the shortest. For several
/// runs: only their numbers of ranks.
fn run_summary(shown: &[&Player]) -> Vec<String> {
    let header = match shown {
        [player] => &player.scene().header,
        _ => return vec![format!("  {}", numbers_of_ranks(shown))],
    };
    let (plain, choices) = (default_summary(header), non_default_choices(header));
    let Some(first) = choices.first() else { return plain };
    let ranks = counted(header.world_size as usize, "rank", "ranks");
    let all = plain.iter().map(|form| format!("{form} · {}", choices.join(" · ")));
    all.chain([format!("  {ranks} · {first}")]).chain(plain.iter().cloned()).collect()
}

/// Returns the numbers of ranks of `players`, each once: "4 ranks", or "2 and 4 ranks".
fn numbers_of_ranks(players: &[&Player]) -> String {
    let mut numbers: Vec<u32> = players.iter().map(|player| player.scene().header.world_size).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let Some((last, others)) = numbers.split_last() else { return String::new() };
    let last = counted(*last as usize, "rank", "ranks");
    let others = others.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if others.is_empty() { last } else { format!("{others} and {last}") }
}

/// Returns the settings in which the run differs from the default, in words.
fn non_default_choices(header: &RunHeader) -> Vec<String> {
    let Choices { strategy, checkpointing } = &header.choices;
    let by = if header.shard_group < header.world_size {
        format!(" by {}", header.shard_group)
    } else {
        String::new()
    };
    let all =
        [(strategy, format!("{strategy}{by}")), (checkpointing, format!("checkpoints {checkpointing}"))];
    all.into_iter().filter(|(word, _)| !word.is_empty()).map(|(_, text)| text).collect()
}

/// Returns descriptions that name only what every run has, from the longest to the shortest.
fn default_summary(header: &RunHeader) -> Vec<String> {
    let ranks = counted(header.world_size as usize, "rank", "ranks");
    let how = format!("{} · {} collectives", header.precision, header.algorithm);
    let (device, parameters) = (&header.device, words::grouped(header.parameters));
    let few = words::count(header.parameters as f64);
    let mut forms = Vec::new();
    if let [long, shorter @ ..] = &places::placement(header)[..] {
        forms.extend([
            format!("  {parameters} parameters · {ranks} · {device} · {how} · {long}"),
            format!("  {few} parameters · {ranks} · {device} · {long}"),
            format!("  {ranks} · {device} · {} · {long}", header.precision),
        ]);
        let simulated = if words::simulated(header) { " · simulated link" } else { "" };
        forms.push(format!("  {ranks} · {long}{simulated}"));
        forms.extend(shorter.iter().map(|form| format!("  {ranks} · {form}{simulated}")));
    }
    forms.extend([
        format!("  {parameters} parameters · {ranks} · {device} · {how}"),
        format!("  {few} parameters · {ranks} · {device} · {}", header.precision),
    ]);
    if words::simulated(header) {
        forms.push(format!("  {ranks} · {device}"));
        forms.push(format!("  {ranks} · simulated link"));
    }
    forms.extend([format!("  {ranks} · {device} · {}", header.precision), format!("  {ranks}")]);
    forms
}

/// Returns the step that is shown and, if `room` suffices, the number of steps of the run.
fn progress(player: &Player, room: u16) -> String {
    let scene = player.scene();
    let step = scene.now.step();
    let all = format!("step {step} of 0–{}", scene.header.steps.saturating_sub(1));
    if columns(&all) <= room { all } else { format!("step {step}") }
}

/// Returns the run's state in a word or two, and its colour.
fn status(app: &App) -> (String, Color) {
    match app.source {
        _ if app.player().scene().now.failure.is_some() => ("✗ failed".into(), ALARM),
        EventSource::Recording => recorded_status(app),
        _ => live_status(app),
    }
}

fn recorded_status(app: &App) -> (String, Color) {
    let player = app.lead();
    match player.motion() {
        Motion::Following if player.timeline().follow_state() == FollowState::Complete => {
            ("■ complete".into(), GOOD)
        }
        Motion::Following => ("● following".into(), GOOD),
        Motion::Paused if app.at_end_of_run() => ("■ end".into(), DIM),
        Motion::Paused if player.speed() != 1.0 => {
            (format!("‖ paused {}", speed(player.speed())), theme::WAITING)
        }
        Motion::Paused => ("‖ paused".into(), theme::WAITING),
        Motion::Playing => (format!("▶ {}", speed(player.speed())), GOOD),
    }
}

fn live_status(app: &App) -> (String, Color) {
    let player = app.lead();
    let pace = if app.pace < 1.0 { format!(" {}", speed(app.pace)) } else { String::new() };
    match player.ending_shown() {
        Some(Ending::Lost) => ("✗ connection lost".into(), ALARM),
        Some(Ending::Early) => ("■ ended early".into(), theme::WAITING),
        Some(Ending::Whole) => ("■ finished".into(), GOOD),
        None if app.held && !player.at_end() => (format!("‖ held{pace}, looking back"), theme::WAITING),
        None if app.held => (format!("‖ held{pace}"), theme::WAITING),
        None if player.motion() == Motion::Paused => {
            let run = if pace.is_empty() { "" } else { " · run" };
            (format!("‖ looking back{run}{pace}"), theme::WAITING)
        }
        None => (format!("● live{pace}"), GOOD),
    }
}

/// Returns a speed in words: a whole number or one over it where that is off by a fiftieth at most,
/// otherwise three digits.
fn speed(speed: f64) -> String {
    let whole = |number: f64| number.round() > 1.0 && (number.round() / number - 1.0).abs() <= 0.02;
    match speed {
        1.0 => "real time".into(),
        s if whole(s) => format!("×{s:.0}"),
        s if whole(1.0 / s) => format!("×1/{:.0}", 1.0 / s),
        s => format!("×{}", digits(s).trim_end_matches('0').trim_end_matches('.')),
    }
}

fn tabs(app: &App, paint: &mut Paint<'_>) {
    let mut end = 0;
    for (view, x, label) in tab_places(app.view, paint.width()) {
        let style = if view == app.view { theme::chosen(paint.theme()) } else { ink(DIM) };
        paint.text(x, 0, &label, style);
        end = x + columns(&label);
    }
    missing::draw(app, &mut paint.part(end, 0, paint.width().saturating_sub(end), 1));
}

fn narrate(app: &App, paint: &mut Paint<'_>) {
    let room = paint.width().saturating_sub(2);
    let scene = app.player().scene();
    let failed = scene.now.failure.is_some();
    let incomplete = app.player().timeline().gaps.incomplete(app.player().position());
    let ending = app.player().ending_shown().filter(|_| !failed);
    let sentence = match (incomplete.filter(|_| !failed), ending) {
        (Some(until), _) => missing::sentence(until, room),
        (_, Some(Ending::Lost)) => {
            "The connection to the run is lost: its process may have been killed.".into()
        }
        (_, Some(Ending::Early)) => "The run was ended early: every rank has stopped.".into(),
        _ if app.held && app.may_hold() && scene.now.events == 0 => {
            "Held before the first event: space resumes the run, → takes one step.".into()
        }
        _ => narration::sentence(scene, room),
    };
    let x = paint.text(0, 0, "▌", ink(if failed { ALARM } else { ACCENT }));
    paint.text(x + 1, 0, fitted(&sentence, room), ink(Color::Reset));
}

pub(super) fn too_small(app: &App, paint: &mut Paint<'_>) {
    let (width, height) = SMALLEST;
    let (now_width, now_height) = (paint.width(), paint.height());
    let needed = format!("{width}×{height}");
    let texts = if app.confirming_quit {
        let answers = ANSWERS.iter().map(|answer| format!("{} {}", answer.label, answer.short));
        let keys = ANSWERS.iter().map(|answer| answer.label);
        vec![answers.collect::<Vec<_>>().join(" · "), keys.collect::<Vec<_>>().join(" · ")]
    } else {
        let full = format!("needs {needed}, has {now_width}×{now_height} · q quits");
        vec![full, format!("needs {needed} · q quits"), format!("needs {needed}"), needed]
    };
    paint.centred(0, now_width, now_height / 2, fitting(&texts, now_width), Style::new());
}
