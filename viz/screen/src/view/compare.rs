//! Runs side by side at the same step and phase, and their differences in words.

mod difference;
mod metric;

use super::activity::{Activity, activity};
use super::area::Area;
use super::bar::{Bar, ByClass};
use super::paint::Paint;
use super::{cards, contributions, frame, table};
use crate::app::App;
use crate::fit::{columns, fitted, whole_words};
use crate::player::{Player, Scene};
use crate::theme::{ALARM, DIM, FAINT, WAITING, bold, ink};
use crate::timeline::Ending;
use crate::words;
use difference::{difference, in_brief, in_short, step_of};
use events::say::counted;
use events::{Place, RunHeader};
use metric::CompareMetric;
use ratatui::style::Color;

const LABEL: u16 = 20;

/// The rows of the view's parts, and the blank rows between them.
struct CompareRows {
    /// Where the first run begins.
    first: u16,
    /// From one run to the next.
    run: u16,
    /// Blank rows below the classes.
    above_metrics: u16,
    /// Blank rows below the metrics.
    above_differences: u16,
    /// Blank rows below the differences.
    above_own_parts: u16,
    /// Rows of the ranks' own metrics.
    own_parts: u16,
}

impl CompareRows {
    /// Shares `height` rows. Spare rows are left blank: first above the differences, then above the
    /// metrics, below each run, below the heading and above the ranks' own metrics.
    fn new(app: &App, height: u16) -> Self {
        let runs = app.players.len().max(2) as u16;
        let used = 1 + 2 * runs + 1 + 1 + CompareMetric::shown(app).len() as u16 + runs - 1;
        let own_parts = own_parts(app, height.saturating_sub(used));
        let spare = height.saturating_sub(used + own_parts);
        let blank = |rows_before: u16| u16::from(spare > rows_before);
        CompareRows {
            first: 1 + blank(3 + runs),
            run: 2 + u16::from(spare >= 2 + runs),
            above_metrics: blank(1),
            above_differences: blank(0),
            above_own_parts: blank(4 + runs),
            own_parts,
        }
    }
}

pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let rank = app.rank;
    let (width, height) = (paint.width(), paint.height());
    heading(app, paint);
    let rows = CompareRows::new(app, height);
    let mut y = rows.first;
    let bar = common_scale(app);
    for player in &app.players {
        run(player, rank, &bar, &mut paint.part(0, y, width, 2));
        y += rows.run;
    }
    if app.players.len() == 1 {
        single(app.player(), rank, &bar, &mut paint.part(0, y, width, 3));
        y += 3;
    }
    let scenes: Vec<&Scene> = app.players.iter().map(Player::scene).collect();
    table::classes(&scenes, true, &mut paint.part(0, y, width, 1));
    y += 1 + rows.above_metrics;
    let below = app.players.len() as u16 - 1 + rows.own_parts;
    y += metrics(app, rank, &mut paint.part(0, y, width, height.saturating_sub(y + below)));
    y += rows.above_differences;
    y += differences(app, rank, &mut paint.part(0, y, width, height.saturating_sub(y)));
    if rows.own_parts > 0 {
        y += rows.above_own_parts;
        contributions::draw(app, &mut paint.part(0, y, width, rows.own_parts));
        y += rows.own_parts;
    }
    let rest = height.saturating_sub(y + 1);
    if rest >= 7 {
        areas(app, rank, &mut paint.part(0, y + 1, width, rest));
    }
}

/// Draws the heading: the settings in which the runs differ, or else on what scale they are drawn.
fn heading(app: &App, paint: &mut Paint<'_>) {
    let x = paint.heading(0, 0, &format!("Memory of rank {}", app.rank));
    let room = paint.width().saturating_sub(x + 2);
    let unlike = unlike(app, usize::from(room));
    let together = app.players.iter().all(|player| step_of(player) == step_of(app.player()));
    let note = match together {
        _ if app.players.len() == 1 => "next to DDP's prediction",
        true => "same step, same phase, same scale",
        false => "same scale; not all at the same step",
    };
    match unlike {
        Some(unlike) => paint.text(x + 2, 0, fitted(&unlike, room), ink(WAITING)),
        None => paint.text(x + 2, 0, whole_words(note, room), ink(DIM)),
    };
}

/// Returns the rows for the ranks' own metrics, where the other parts leave `room`. If the whole
/// table fits without the step time, the step time is left out. Otherwise the table gets the
/// remaining rows, at least one rank's.
fn own_parts(app: &App, room: u16) -> u16 {
    let all = contributions::rows(app);
    if all <= room + 1 { all } else { room.max(contributions::LEAST) }
}

/// The name of a setting, and its value in every run.
type Setting = (&'static str, Vec<String>);

/// Returns the settings that make the runs learn differently, in at most `room` columns if a form
/// fits; `None` if there are none.
fn unlike(app: &App, room: usize) -> Option<String> {
    let headers = || app.players.iter().map(|player| &player.scene().header);
    let batch = |header: &RunHeader| {
        let factors = [header.world_size, header.micro_batches, header.batch_size];
        factors.map(u128::from).iter().product::<u128>().to_string()
    };
    let settings: [Setting; 4] = [
        ("model", headers().map(|header| header.model.clone()).collect()),
        ("batch", headers().map(|header| batch(header)).collect()),
        ("length", headers().map(|header| header.sequence_length.to_string()).collect()),
        // The learning rate follows them.
        ("steps", headers().map(|header| header.steps.to_string()).collect()),
    ];
    let different: Vec<_> =
        settings.iter().filter(|(_, values)| values.iter().any(|value| *value != values[0])).collect();
    let all = |with: &dyn Fn(&Setting) -> String| {
        let named: Vec<String> = different.iter().map(|setting| with(setting)).collect();
        format!("not the same training: {}", named.join(", "))
    };
    let long = all(&|(name, values)| format!("{name} {}", values.join(" | ")));
    let short = || all(&|(name, _)| (*name).into());
    (!different.is_empty()).then(|| if usize::from(columns(&long)) <= room { long } else { short() })
}

fn common_scale(app: &App) -> Bar {
    let bars = app.players.iter().map(|player| cards::bar_scale(player.scene()));
    let fold =
        |a: Bar, b: Bar| Bar { scale: a.scale.max(b.scale), ghost: a.ghost.max(b.ghost), capacity: None };
    bars.reduce(fold).unwrap_or(Bar { scale: 1, ghost: 0, capacity: None })
}

/// Returns a run's name: its stage, and its title if another run has the same stage.
fn name(app: &App, player: &Player) -> String {
    let stage = &player.scene().header.stage;
    if app.shares_stage(player) { format!("{stage} {}", player.timeline().title) } else { stage.clone() }
}

fn run(player: &Player, rank: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let scene = player.scene();
    let Some(now) = scene.now.ranks.get(rank) else {
        paint.text(0, 0, "this run has no such rank", ink(DIM));
        return;
    };
    let width = paint.width();
    paint.part(0, 0, LABEL - 1, 2).text(0, 0, &scene.header.stage, bold(frame::stage_colour(&scene.header)));
    let Activity { text, style, .. } = activity(scene, rank);
    let lost = player.ending_shown() == Some(Ending::Lost);
    let (text, style) = if lost { ("connection lost".into(), ink(ALARM)) } else { (text, style) };
    paint.part(0, 1, LABEL - 1, 1).text(0, 0, fitted(&text, LABEL - 1), style);
    let value = 10;
    let capacity = scene.header.capacity;
    let bar = Bar { capacity, ..*bar };
    bar.draw(paint, (LABEL, 0, width.saturating_sub(LABEL + value)), &now.live[Place::Device.index()]);
    paint.right(width, 0, words::bytes(now.live_total()), bold(Color::Reset));
    let capacity = capacity.map_or(String::new(), |capacity| format!(" of {} each", words::bytes(capacity)));
    let title = Some(&player.timeline().title).filter(|title| !title.is_empty());
    let title = title.map_or(String::new(), |title| format!(" · {title}"));
    let (ranks, precision) =
        (counted(scene.header.world_size as usize, "rank", "ranks"), &scene.header.precision);
    let note = format!("step {} · {ranks}{capacity} · {precision}{title}", now.step);
    paint.text(LABEL, 1, fitted(&note, width.saturating_sub(LABEL)), ink(DIM));
}

/// Draws, for a single run, DDP's predicted memory and how to compare more runs.
fn single(player: &Player, rank: usize, bar: &Bar, paint: &mut Paint<'_>) {
    let width = paint.width();
    paint.text(0, 0, "DDP, predicted", ink(DIM));
    bar.draw(paint, (LABEL, 0, width.saturating_sub(LABEL + 10)), &ByClass::default());
    let ghost = player.scene().header.replicated_total.get(rank).copied().unwrap_or(0);
    paint.right(width, 0, words::bytes(ghost), ink(DIM));
    let hint = "viz compare A B shows two to four recordings side by side";
    paint.text(LABEL, 1, fitted(hint, width.saturating_sub(LABEL)), ink(DIM));
}

/// Draws `rank`'s metrics in every run. Returns the rows used.
fn metrics(app: &App, rank: usize, paint: &mut Paint<'_>) -> u16 {
    let each = paint.width().saturating_sub(LABEL) / app.players.len().max(1) as u16;
    let each = each.min(26);
    let mut metrics = CompareMetric::shown(app);
    // Metrics that do not fit are left out, first the step time: the tokens per second imply it.
    metrics.truncate(paint.height().saturating_sub(1).into());
    paint.text(0, 0, format!("rank {rank}"), bold(Color::Reset));
    for (y, metric) in (1u16..).zip(&metrics) {
        paint.text(0, y, metric.label(), ink(DIM));
    }
    for (place, player) in (0u16..).zip(&app.players) {
        let scene = player.scene();
        let end = LABEL + (place + 1) * each;
        let long = Some(name(app, player)).filter(|name| columns(name) + 2 <= each);
        let title = long.unwrap_or_else(|| fitted(&app.short_name(player), each.saturating_sub(2)));
        paint.right(end, 0, title, bold(frame::stage_colour(&scene.header)));
        for (y, metric) in (1u16..).zip(&metrics) {
            let value = metric.value(player, app.player(), rank).unwrap_or_else(|| "–".into());
            paint.right(end, y, value, ink(Color::Reset));
        }
    }
    paint.height().min(1 + metrics.len() as u16)
}

/// Draws the difference of every run from the first, all in the longest form in which all fit.
/// Returns the rows used.
fn differences(app: &App, rank: usize, paint: &mut Paint<'_>) -> u16 {
    let Some((first, others)) = app.players.split_first() else { return 0 };
    let room = paint.width().saturating_sub(2);
    let long = |other: &Player| difference((&name(app, first), first), (&name(app, other), other), rank);
    let short = |other: &Player| {
        let (mine, name) = (app.short_name(first), app.short_name(other));
        in_short((&mine, first), (&name, other), rank).unwrap_or_else(|| long(other))
    };
    let brief = |other: &Player| {
        in_brief(first, (&app.short_name(other), other), rank, room).unwrap_or_else(|| long(other))
    };
    let all = |form: &dyn Fn(&Player) -> String| others.iter().map(form).collect::<Vec<_>>();
    let fit = |sentences: &Vec<String>| sentences.iter().all(|sentence| columns(sentence) <= room);
    let sentences = Some(all(&long)).filter(fit).or_else(|| Some(all(&short)).filter(fit));
    let sentences = sentences.unwrap_or_else(|| all(&brief));
    for (y, (other, sentence)) in (0u16..).zip(others.iter().zip(&sentences)) {
        let x = paint.text(0, y, "▌", ink(frame::stage_colour(&other.scene().header)));
        paint.text(x + 1, y, fitted(sentence, room), ink(Color::Reset));
    }
    others.len() as u16
}

/// Draws the runs' memory over the last two steps, side by side on one scale.
fn areas(app: &App, rank: usize, paint: &mut Paint<'_>) {
    let count = app.players.len() as u16;
    let each = (paint.width() + 2) / count;
    let shown = app.players.iter().filter_map(|player| player.scene().now.ranks.get(rank));
    let top = shown.map(|rank| rank.total_peak).max().unwrap_or(1).max(1);
    let height = paint.height();
    for (place, player) in (0u16..).zip(&app.players) {
        let scene = player.scene();
        if scene.now.ranks.get(rank).is_none() {
            continue;
        }
        let x = place * each;
        let width = each.saturating_sub(2);
        let title = format!("{} · last two steps · top {}", name(app, player), words::bytes(top));
        paint.part(x, 0, width, 1).text(0, 0, fitted(&title, width), ink(DIM));
        Area::draw_memory(player, rank, top, &mut paint.part(x, 1, width, height.saturating_sub(2)));
        paint.run(x, height.saturating_sub(1), width, "─", ink(FAINT));
    }
}
