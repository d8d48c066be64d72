//! Bytes sent, per operation and per pair of ranks, against theory.

use super::area::{self, Area, Column, SCALE};
use super::axis::Axis;
use super::pages::RankPage;
use super::paint::Paint;
use super::theory::{self, ExpectedSource};
use super::{bar, cards, pairs};
use crate::app::App;
use crate::fit::fitting_or_cut;
use crate::player::Scene;
use crate::theme::{ACCENT, ALARM, DIM, FAINT, GOOD, bold, ink, operation_colour, operation_glyph};
use crate::{places, words};
use events::{Operation, RankSnapshot, Route, RunHeader, Sent, amount};
use ratatui::style::Color;

/// Minimum number of rows of a chart.
const CHART: u16 = 6;

pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), paint.height());
    let scene = app.player().scene();
    if width < 116 {
        let used = operations(app, &mut paint.part(0, 0, width, height));
        let y = used + u16::from(height >= used + 8);
        pairs::draw(scene, 1, &mut paint.part(0, y, width, height.saturating_sub(y)));
        return;
    }
    let left = 64.max(width / 2 - 4);
    let used = operations(app, &mut paint.part(0, 0, left, height));
    let ranks = scene.now.ranks.len();
    let (right, room) = (width.saturating_sub(left + 4), used.max(height * 2 / 5));
    let rows = ranks.div_ceil(pairs::folded(ranks, right, room)) as u16;
    let tall = [4, 2].into_iter().find(|tall| 2 + rows * tall <= room).unwrap_or(1);
    pairs::draw(scene, tall, &mut paint.part(left + 4, 0, right, room));
    let y = 1 + used.max(2 + rows * tall);
    let rest = height.saturating_sub(y);
    let (tall, bars) = bars(ranks as u16, rest);
    let chart = if rest >= bars + CHART { rest - bars } else { 0 };
    each_rank(app, tall, &mut paint.part(0, y, width, rest - chart));
    over_time(app, &mut paint.part(0, height.saturating_sub(chart), width, chart));
}

/// Returns the rows per rank's bar and the rows of all bars, heading included. Many ranks are shown
/// page by page.
fn bars(ranks: u16, room: u16) -> (u16, u16) {
    let all = |tall: u16| 3 + ranks * tall;
    if room >= all(2) + CHART {
        (2, all(2))
    } else if usize::from(ranks) > cards::MOST && room < all(1) + CHART {
        (1, room.saturating_sub(CHART))
    } else {
        (1, all(1))
    }
}

fn operations(app: &App, paint: &mut Paint<'_>) -> u16 {
    let scene = app.player().scene();
    let step = sums(scene.now.ranks.iter().map(|rank| rank.sent_in(scene.now.step())));
    let run = sums(scene.now.ranks.iter().map(|rank| rank.sent.clone()));
    let header = &scene.header;
    paint.noted_heading("Bytes sent", "all ranks together");
    // A column that does not fit is placed outside the screen.
    let place = |end: u16| if end <= paint.width() { end } else { u16::MAX };
    let ends = [27, 38, 46, 54, 64].map(place);
    paint.labels(ends, 1, &["this step", "predicted", "in Ψ", "theory", "the run"]);
    let mut y = 2;
    for operation in Operation::ALL {
        let [step, run] = [&step, &run].map(|sent| sent.by_operation[operation.index()]);
        let unused = run == 0 && predicted(header, operation) == 0;
        // The total needs a row below.
        if !unused && y + 1 < paint.height() {
            operation_row(header, operation, ends, [step, run], &mut paint.part(0, y, u16::MAX, 1));
            y += 1;
        }
    }
    totals(scene, y, ends, [step, run], paint);
    let y = y + 1 + routes(scene, ends, &mut paint.part(0, y + 1, u16::MAX, u16::MAX));
    against_theory(scene, y + 1, paint)
}

/// Draws the row of one operation, in which all ranks together have sent so many bytes in the step
/// and in the run.
fn operation_row(
    header: &RunHeader,
    operation: Operation,
    ends: [u16; 5],
    [step, run]: [u64; 2],
    paint: &mut Paint<'_>,
) {
    let theme = paint.theme();
    let glyph = if theme.colours() && !theme.ascii { "■" } else { operation_glyph(operation) };
    paint.text(0, 0, glyph, ink(operation_colour(operation)));
    paint.text(2, 0, operation.label(), ink(Color::Reset));
    paint.right(ends[0], 0, words::bytes(step), bold(Color::Reset));
    let predicted = predicted(header, operation);
    paint.right(ends[1], 0, if predicted > 0 { words::bytes(predicted) } else { "–".into() }, ink(DIM));
    let times = theory::times(header, operation, step);
    paint.right(ends[2], 0, format!("{times:.2}"), ink(Color::Reset));
    let expected = theory::expected_times(header, operation);
    paint.right(ends[3], 0, expected.map_or("–".into(), |times| format!("{times:.2}")), ink(DIM));
    paint.right(ends[4], 0, words::bytes(run), ink(Color::Reset));
}

/// Draws the bytes that all ranks together have moved between places, by route, and how long the
/// ranks waited for them. Returns the rows used.
fn routes(scene: &Scene, ends: [u16; 5], paint: &mut Paint<'_>) -> u16 {
    let ranks = &scene.now.ranks;
    let moved = ranks.iter().map(|rank| rank.moved_in(scene.now.step())).collect::<Vec<_>>();
    let offload = &scene.header.offload;
    let used = |route: &&Route| ranks.iter().any(|rank| rank.transfers.uses(**route));
    let routes = Route::ALL.iter().filter(|_| !offload.resting.is_empty()).filter(used);
    let mut rows = 0;
    for (y, &route) in (0u16..).zip(routes) {
        let index = route.index();
        let bytes = amount::total(moved.iter().map(|moved| moved.bytes[index]));
        let exposed = amount::total(moved.iter().map(|moved| moved.exposed[index]));
        let planned = offload.transfers.iter().filter(|planned| planned.of == route);
        let predicted = amount::total(planned.map(|planned| planned.bytes));
        paint.text(0, y, places::arrow(route), ink(Color::Reset));
        paint.text(2, y, route.label(), ink(Color::Reset));
        paint.right(ends[0], y, words::bytes(bytes), bold(Color::Reset));
        paint.right(ends[1], y, if predicted > 0 { words::bytes(predicted) } else { "–".into() }, ink(DIM));
        paint.right(ends[3], y, format!("waited {}", words::time(exposed)), ink(DIM));
        let run = scene.now.sum(|rank| rank.transfers.moved.bytes[index]);
        paint.right(ends[4], y, words::bytes(run), ink(Color::Reset));
        rows = y + 1;
    }
    rows
}

/// Draws the bytes that each rank has sent, by operation, as bars on one scale, one bar per `tall`
/// rows.
fn each_rank(app: &App, tall: u16, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    if paint.height() < 4 {
        return;
    }
    let x = paint.noted_heading("Each rank", "sent in the run, by operation");
    let most = scene.now.most(|rank| rank.sent.total()).max(1);
    let (start, width) = (9, paint.width().saturating_sub(40));
    let ends = [start + width + 12, start + width + 25];
    paint.labels(ends, 1, &["the run", "last step"]);
    let pages = ranks.div_ceil(usize::from((paint.height() - 2) / tall).max(1));
    let shown = ranks.div_ceil(pages);
    let page = RankPage::new(app, shown);
    let last = scene.now.finished_step().unwrap_or(scene.now.step());
    paint.text(x + 2, 0, page.label(), ink(ACCENT));
    for (place, rank) in (0u16..).zip(page.ranks) {
        let y = 2 + place * tall;
        let style = if rank == app.rank { bold(ACCENT) } else { ink(DIM) };
        paint.text(0, y, format!("rank {rank}"), style);
        let now = &scene.now.ranks[rank];
        let mut x = start;
        for operation in Operation::ALL {
            let bytes = now.sent.by_operation[operation.index()];
            let length = (bytes as f64 / most as f64 * f64::from(width)).round() as u16;
            let symbol = match (paint.theme().colours(), tall) {
                (false, _) => operation_glyph(operation),
                (true, 1) => "▆",
                (true, _) => "█",
            };
            paint.run(x, y, length, symbol, ink(operation_colour(operation)));
            x += length;
        }
        paint.right(ends[0], y, words::bytes(now.sent.total()), bold(Color::Reset));
        paint.right(ends[1], y, words::bytes(now.sent_in(last).total()), ink(Color::Reset));
    }
}

/// Returns the sum of `parts` by operation.
fn sums(parts: impl Iterator<Item = Sent>) -> Sent {
    let mut sum = Sent::default();
    for part in parts {
        let pairs = sum.by_operation.iter_mut().zip(part.by_operation);
        pairs.for_each(|(sum, part)| *sum = sum.saturating_add(part));
    }
    sum
}

fn predicted(header: &RunHeader, operation: Operation) -> u64 {
    let of_operation = header.predicted_traffic.iter().filter(|p| p.of == operation);
    amount::total(of_operation.map(|predicted| predicted.bytes))
}

fn totals(scene: &Scene, y: u16, ends: [u16; 5], [step, run]: [Sent; 2], paint: &mut Paint<'_>) {
    let predicted = amount::total(scene.header.predicted_traffic.iter().map(|predicted| predicted.bytes));
    paint.text(2, y, "total", bold(Color::Reset));
    paint.right(ends[0], y, words::bytes(step.total()), bold(Color::Reset));
    paint.right(ends[1], y, words::bytes(predicted), ink(DIM));
    let times = theory::times_of_all(&scene.header, &step);
    paint.right(ends[2], y, format!("{times:.2}"), bold(Color::Reset));
    if !scene.header.theory.is_empty() {
        paint.right(ends[3], y, format!("{:.2}", theory::expected(scene, false).times), ink(DIM));
    }
    paint.right(ends[4], y, words::bytes(run.total()), bold(Color::Reset));
}

/// Draws the model data of the latest step that any rank has finished as bars against theory.
/// Returns the row below.
fn against_theory(scene: &Scene, y: u16, paint: &mut Paint<'_>) -> u16 {
    let (header, ranks) = (&scene.header, &scene.now.ranks);
    let expected = theory::expected(scene, false);
    let last = scene.now.finished_step();
    let finished = last.map_or_else(Sent::default, |step| sums(ranks.iter().map(|rank| rank.sent_in(step))));
    let so_far = sums(ranks.iter().map(|rank| rank.sent_in(scene.now.step())));
    let scale = expected.bytes.max(finished.data()).max(so_far.data()) as f64;
    let width = paint.width().saturating_sub(40).max(8);
    let x = 13;
    paint.text(0, y, expected.source.label(), ink(DIM));
    bar::plain(paint, (x, y, width), expected.bytes as f64, scale, FAINT);
    paint.text(x + width + 2, y, format!("{:.2} Ψ(N−1)/N per rank", expected.times), ink(DIM));
    let (text, colour) = verdict(scene, &finished);
    paint.text(0, y + 1, "last step", ink(DIM));
    let bar_colour = if colour == GOOD { GOOD } else { ACCENT };
    bar::plain(paint, (x, y + 1, width), finished.data() as f64, scale, bar_colour);
    paint.text(x + width + 2, y + 1, text, ink(colour));
    paint.text(0, y + 2, "this step", ink(DIM));
    bar::plain(paint, (x, y + 2, width), so_far.data() as f64, scale, ACCENT);
    let times = theory::times_of_all(header, &so_far);
    paint.text(x + width + 2, y + 2, format!("{times:.2} so far"), ink(DIM));
    let counts = theory::counts(header);
    paint.text(0, y + 3, fitting_or_cut(&counts, paint.width()), ink(DIM));
    y + 4
}

/// Returns whether the last step sent the expected bytes, in words and a colour. There is no
/// verdict until every rank has finished it and has gathered what it updated.
fn verdict(scene: &Scene, finished: &Sent) -> (String, Color) {
    if scene.now.ranks.len() == 1 {
        return ("one rank sends nothing".into(), DIM);
    }
    if finished.data() == 0 {
        return ("no step is finished yet".into(), DIM);
    }
    let (ranks, last) = (&scene.now.ranks, scene.now.finished_step());
    let done = ranks.iter().filter(|rank| rank.finished_step() == last).count();
    if done < ranks.len() {
        return (format!("done by {done} of {} ranks", ranks.len()), DIM);
    }
    if ranks.iter().any(RankSnapshot::still_sends_for_last_step) {
        let times = theory::times_of_all(&scene.header, finished);
        return (format!("{times:.2} so far"), DIM);
    }
    let skipped = skipped(scene, finished);
    let expected = theory::expected(scene, skipped);
    let times = theory::times_of_all(&scene.header, finished);
    if finished.data() != expected.bytes {
        (format!("{times:.2}: differs from {}", expected.source), ALARM)
    } else if skipped {
        (format!("{times:.2} ✓ as {}, skipped", expected.source), GOOD)
    } else {
        let source = match expected.source {
            ExpectedSource::Theory => "theory says",
            ExpectedSource::Planned => "planned",
        };
        (format!("{times:.2} ✓ as {source}"), GOOD)
    }
}

/// True if the step whose bytes are `finished` was skipped because of an overflow. A rank reports
/// that right after the step's end; until then it follows from the bytes.
fn skipped(scene: &Scene, finished: &Sent) -> bool {
    let ranks = &scene.now.ranks;
    let told = ranks.iter().any(|rank| rank.scaling.is_some_and(|scaling| scaling.overflowed));
    let may_skip = ranks.iter().any(|rank| rank.scaling.is_some());
    let [whole, without_updates] = [false, true].map(|skipped| theory::expected(scene, skipped).bytes);
    let as_skipped = finished.data() == without_updates && finished.data() != whole;
    told || may_skip && as_skipped && ranks.iter().any(|rank| !rank.in_step)
}

/// Draws the sum of all ranks' bytes since the step began, which rises to the theoretical value.
fn over_time(app: &App, paint: &mut Paint<'_>) {
    if paint.height() < 4 {
        return;
    }
    let (player, scene) = (app.player(), app.player().scene());
    let note = "sent since the step began, all ranks together, in the last two steps";
    paint.noted_heading("Over time", note);
    let axis = Axis::last_steps(player, 2, paint.width().saturating_sub(SCALE));
    let columns = Column::traffic(&scene.window, axis);
    let theory::Expected { bytes: expected, source, .. } = theory::expected(scene, false);
    let most = columns.iter().map(Column::total).max().unwrap_or(0).max(expected).max(1);
    let area = Area { columns, top: most.saturating_add(most / 6), look: area::operation };
    let text = format!("{source} {}", words::bytes(expected));
    area.rule(expected, (&[&text], ink(GOOD)), &mut Vec::new(), &mut area.chart(axis, 0, paint));
}
