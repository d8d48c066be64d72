//! Bytes sent, per operation and per pair of ranks, against theory.

use super::area::{Area, Column, Layers};
use super::axis::Axis;
use super::chart::{self, SCALE};
use super::paint::{Paint, fitted};
use super::{bar, cards, pairs};
use crate::app::App;
use crate::player::Scene;
use crate::theme::{ACCENT, ALARM, DIM, FAINT, GOOD, bold, ink, operation_colour, operation_glyph};
use crate::words;
use events::{Operation, RankSnapshot, RunHeader, Sent};
use ratatui::style::Color;

/// Fewer rows are no chart.
const CHART: u16 = 6;

/// Draws the view.
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
    let (right, room) = (width - left - 4, used.max(height * 2 / 5));
    let rows = ranks.div_ceil(pairs::folded(ranks, right, room)) as u16;
    let tall = [4, 2].into_iter().find(|tall| 2 + rows * tall <= room).unwrap_or(1);
    pairs::draw(scene, tall, &mut paint.part(left + 4, 0, right, room));
    let y = 1 + used.max(2 + rows * tall);
    let rest = height.saturating_sub(y);
    let (tall, bars) = bars(ranks as u16, rest);
    let chart = if rest >= bars + CHART { rest - bars } else { 0 };
    each_rank(app, tall, &mut paint.part(0, y, width, rest - chart));
    over_time(app, &mut paint.part(0, height - chart, width, chart));
}

/// Rows per rank's bar, and of all bars with what is above and below them; of more ranks than cards show, a page.
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

/// Ψ in bytes of what is communicated, padding included, times (N−1)/N: the unit in which theory counts.
fn theory_unit(header: &RunHeader) -> f64 {
    let padded: u64 = header.units.iter().map(|unit| unit.padded).sum();
    let ranks = f64::from(header.world_size.max(1));
    padded as f64 * f64::from(header.communicated_bytes) * (ranks - 1.0) / ranks
}

/// How many Ψ(N−1)/N the stage sends per step, and why.
fn theory(header: &RunHeader) -> (f64, String) {
    let (ranks, sharing) = (f64::from(header.world_size.max(1)), f64::from(header.shard_group.max(1)));
    let (factor, why) = within_group(header);
    let groups = ranks / sharing;
    if groups <= 1.0 || !header.sharded.optimizer {
        return (factor, why);
    }
    let why = why.split(',').next().unwrap_or_default();
    // Among neighbours, and the owners of the same shard across groups add up what they have: in f32, whatever travels within.
    let wider = 4.0 / f64::from(header.communicated_bytes.max(1));
    let (within, across) = ((sharing - 1.0) / sharing, 2.0 * (groups - 1.0) / groups / sharing * wider);
    let factor = (factor * within + across) * ranks / (ranks - 1.0);
    (factor, format!("{why} in groups of {sharing} + the shards' all-reduce across"))
}

/// The same if model states were sharded over all ranks.
fn within_group(header: &RunHeader) -> (f64, String) {
    let micro = f64::from(header.micro_batches.max(1));
    let sharded = header.sharded;
    match (sharded.optimizer, sharded.gradients, sharded.parameters) {
        (_, _, true) => {
            // The last unit stays gathered between forward and backward.
            let padded: u64 = header.units.iter().map(|unit| unit.padded).sum();
            let last = header.units.last().map_or(0.0, |unit| unit.padded as f64 / padded.max(1) as f64);
            let text = if micro > 1.0 { format!("3 × {micro} micro-batches") } else { "3".into() };
            ((3.0 - last) * micro, format!("{text}, less the last unit's second gather"))
        }
        (_, true, _) if micro > 1.0 => (micro + 1.0, format!("{micro} reduce-scatters + 1 all-gather")),
        (true, ..) => (2.0, "reduce-scatter + all-gather".into()),
        _ => (2.0, "all-reduce = reduce-scatter + all-gather".into()),
    }
}

fn sums(parts: impl Iterator<Item = Sent>) -> Sent {
    parts.fold(Sent::default(), |mut sum, part| {
        sum.by_operation.iter_mut().zip(part.by_operation).for_each(|(sum, part)| *sum += part);
        sum
    })
}

/// The step to show: the running one, else the last.
pub(super) fn of_step(rank: &RankSnapshot) -> Sent {
    if rank.in_step { rank.sent_this_step() } else { rank.sent_last_step.clone() }
}

/// Bytes of model data.
pub(super) fn data(sent: &Sent) -> u64 {
    sent.total() - sent.by_operation[Operation::Scalars.index()]
}

fn operations(app: &App, paint: &mut Paint<'_>) -> u16 {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    let step = sums(scene.now.ranks.iter().map(of_step));
    let run = sums(scene.now.ranks.iter().map(|rank| rank.sent.clone()));
    let unit = theory_unit(&scene.header) * ranks as f64;
    let x = paint.heading(0, 0, "Bytes sent");
    paint.text(x + 2, 0, "all ranks together", ink(DIM));
    let ends = [28, 40, 50, 62].map(|end: u16| end.min(paint.width()));
    for (end, label) in ends.iter().zip(["this step", "predicted", "in Ψ", "the run"]) {
        paint.right(*end, 1, label, ink(DIM));
    }
    let mut y = 2;
    for &operation in Operation::ALL {
        let index = operation.index();
        let predicted = predicted(&scene.header, operation);
        if run.by_operation[index] == 0 && predicted == 0 {
            continue;
        }
        let glyph = if paint.theme().colours() { "■" } else { operation_glyph(operation) };
        paint.text(0, y, glyph, ink(operation_colour(operation)));
        paint.text(2, y, operation.label(), ink(Color::Reset));
        paint.right(ends[0], y, words::bytes(step.by_operation[index]), bold(Color::Reset));
        let text = if predicted > 0 { words::bytes(predicted) } else { "–".into() };
        paint.right(ends[1], y, text, ink(DIM));
        paint.right(ends[2], y, format!("{:.2}", step.by_operation[index] as f64 / unit.max(1.0)), ink(DIM));
        paint.right(ends[3], y, words::bytes(run.by_operation[index]), ink(Color::Reset));
        y += 1;
    }
    totals(scene, y, ends, [step, run], paint);
    against_theory(scene, y + 2, unit, paint)
}

/// What each rank sent, by operation, in bars of one scale, a bar in every `tall` rows.
fn each_rank(app: &App, tall: u16, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    if paint.height() < 4 {
        return;
    }
    let x = paint.heading(0, 0, "Each rank");
    let x = paint.text(x + 2, 0, "sent in the run, by operation", ink(DIM));
    let most = scene.now.ranks.iter().map(|rank| rank.sent.total()).max().unwrap_or(0).max(1);
    let (start, width) = (9, paint.width().saturating_sub(40));
    paint.right(start + width + 12, 1, "the run", ink(DIM));
    paint.right(start + width + 25, 1, "last step", ink(DIM));
    let pages = ranks.div_ceil(usize::from((paint.height() - 2) / tall).max(1));
    let shown = ranks.div_ceil(pages);
    let first = (app.rank / shown * shown).min(ranks - shown);
    if pages > 1 {
        let text = format!("ranks {first} to {} of {ranks} ↑↓", first + shown - 1);
        paint.text(x + 2, 0, text, ink(ACCENT));
    }
    for (place, rank) in (0u16..).zip(first..first + shown) {
        let y = 2 + place * tall;
        let style = if rank == app.rank { bold(ACCENT) } else { ink(DIM) };
        paint.text(0, y, format!("rank {rank}"), style);
        let now = &scene.now.ranks[rank];
        let mut x = start;
        for &operation in Operation::ALL {
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
        paint.right(start + width + 12, y, words::bytes(now.sent.total()), bold(Color::Reset));
        paint.right(start + width + 25, y, words::bytes(now.sent_last_step.total()), ink(Color::Reset));
    }
}

fn predicted(header: &RunHeader, operation: Operation) -> u64 {
    let of_operation = header.predicted_traffic.iter().filter(|p| p.operation == operation);
    of_operation.map(|predicted| predicted.bytes).sum()
}

/// Predicted bytes of model data, all ranks together.
fn predicted_data(header: &RunHeader) -> u64 {
    let data = Operation::ALL.iter().filter(|&&operation| operation != Operation::Scalars);
    data.map(|&operation| predicted(header, operation)).sum()
}

fn totals(scene: &Scene, y: u16, ends: [u16; 4], [step, run]: [Sent; 2], paint: &mut Paint<'_>) {
    let unit = theory_unit(&scene.header) * scene.now.ranks.len() as f64;
    let predicted: u64 = scene.header.predicted_traffic.iter().map(|predicted| predicted.bytes).sum();
    paint.text(2, y, "together", bold(Color::Reset));
    paint.right(ends[0], y, words::bytes(step.total()), bold(Color::Reset));
    paint.right(ends[1], y, words::bytes(predicted), ink(DIM));
    paint.right(ends[2], y, format!("{:.2}", step.total() as f64 / unit.max(1.0)), ink(DIM));
    paint.right(ends[3], y, words::bytes(run.total()), bold(Color::Reset));
}

/// The bytes of model data in the latest finished step, in bars against theory. Returns the row below.
fn against_theory(scene: &Scene, y: u16, unit: f64, paint: &mut Paint<'_>) -> u16 {
    let (factor, why) = theory(&scene.header);
    let ranks = &scene.now.ranks;
    let finished: u64 = ranks.iter().map(|rank| data(&rank.sent_last_step)).sum();
    let so_far: u64 = ranks.iter().map(|rank| data(&of_step(rank))).sum();
    let expected = factor * unit;
    let scale = expected.max(finished as f64).max(so_far as f64);
    let width = paint.width().saturating_sub(40).max(8);
    let x = paint.text(0, y, "theory", ink(DIM)) + 7;
    bar::plain(paint, (x, y, width), expected, scale, FAINT);
    paint.text(x + width + 2, y, format!("{factor:.2} Ψ(N−1)/N per rank"), ink(DIM));
    let equals = |theory: f64| (finished as f64 - theory).abs() <= 1e-3 * theory;
    let planned = equals(predicted_data(&scene.header) as f64);
    let colour = if equals(expected) || planned { GOOD } else { ACCENT };
    paint.text(0, y + 1, "last step", ink(DIM));
    bar::plain(paint, (x, y + 1, width), finished as f64, scale, colour);
    let verdict = if ranks.len() == 1 {
        ("nobody to send to".to_string(), DIM)
    } else if finished == 0 {
        ("no step is finished yet".to_string(), DIM)
    } else if equals(expected) {
        (format!("{:.2} ✓ as theory says", finished as f64 / unit.max(1.0)), GOOD)
    } else if planned {
        // Another strategy than the stage's plain one: it gathers less often, or in groups.
        (format!("{:.2} ✓ as predicted", finished as f64 / unit.max(1.0)), GOOD)
    } else {
        (format!("{:.2}: differs from theory", finished as f64 / unit.max(1.0)), ALARM)
    };
    paint.text(x + width + 2, y + 1, verdict.0, ink(verdict.1));
    paint.text(0, y + 2, "this step", ink(DIM));
    bar::plain(paint, (x, y + 2, width), so_far as f64, scale, ACCENT);
    paint.text(x + width + 2, y + 2, format!("{:.2} so far", so_far as f64 / unit.max(1.0)), ink(DIM));
    let why = fitted(&format!("theory counts {why}"), paint.width());
    paint.text(0, y + 3, why, ink(DIM));
    y + 4
}

/// All ranks' sums since their step began, climbing to what theory says.
fn over_time(app: &App, paint: &mut Paint<'_>) {
    if paint.height() < 4 {
        return;
    }
    let (player, scene) = (app.player(), app.player().scene());
    let x = paint.heading(0, 0, "Over time");
    paint.text(x + 2, 0, "sent since the step began, all ranks together, in the last two steps", ink(DIM));
    let (width, height) = (paint.width().saturating_sub(SCALE), paint.height() - 2);
    let axis = Axis::last_steps(scene, player.clock(), 2, width);
    let columns = Column::traffic(&scene.window, axis, player.clock());
    let factor = theory(&scene.header).0;
    let expected = (factor * theory_unit(&scene.header) * scene.now.ranks.len() as f64).round() as u64;
    let most = columns.iter().map(Column::total).max().unwrap_or(0).max(expected).max(1);
    let area = Area { columns, top: most + most / 6, layers: Layers::Operations };
    area.draw(&mut paint.part(SCALE, 1, width, height));
    chart::scale(&area, &mut paint.part(0, 1, SCALE, height));
    let text = format!("theory {}", words::bytes(expected));
    chart::rule(&area, expected, &[&text], ink(GOOD), &mut paint.part(SCALE, 1, width, height));
    axis.draw(paint, SCALE, height + 1);
}
