//! Everything at a glance: a card per rank, the collective between them, the loss.

use super::area::{Area, Column};
use super::axis::Axis;
use super::paint::{Paint, fitted};
use super::{cards, plot, wires};
use crate::app::App;
use crate::player::{Player, Scene};
use crate::theme::{ACCENT, ALARM, DIM, GOOD, bold, ink};
use crate::words;
use events::StepRecord;
use ratatui::style::Color;

/// Draws the view.
pub(super) fn draw(app: &App, paint: &mut Paint<'_>) {
    let scene = app.player().scene();
    let ranks = scene.now.ranks.len();
    let (width, height) = (paint.width(), paint.height());
    if ranks <= cards::MOST && width / ranks.max(1) as u16 >= cards::NARROWEST {
        let gap = u16::from(height >= 28);
        let wires = ranks as u16 + 1;
        let bottom = (height / 4).clamp(4, 14);
        let most = if width / ranks as u16 >= 40 { 14 } else { 13 };
        let cards_height = height.saturating_sub(wires + bottom + 2 * gap).min(most);
        let bottom = height.saturating_sub(cards_height + wires + 2 * gap);
        cards::draw(app, &mut paint.part(0, 0, width, cards_height));
        let y = cards_height + gap;
        wires::draw(scene, &cards::centres(ranks, width), &mut paint.part(0, y, width, wires));
        let y = y + wires + gap;
        let areas = if bottom >= 22 { bottom - 14 } else { 0 };
        memories(app, &mut paint.part(0, y, width, areas.saturating_sub(1)));
        progress(app.player(), &mut paint.part(0, y + areas, width, bottom - areas));
    } else {
        let bottom = (height / 4).clamp(4, 12);
        let table = height.saturating_sub(bottom + 2);
        let used = cards::table(app, &mut paint.part(0, 0, width, table));
        let y = used + u16::from(height >= 28);
        wires::line(scene, &mut paint.part(0, y, width, 1));
        let bottom = height.saturating_sub(y + 2);
        progress(app.player(), &mut paint.part(0, y + 2, width, bottom));
    }
}

/// Every rank's memory over the last two steps, below its card and on one scale.
fn memories(app: &App, paint: &mut Paint<'_>) {
    let (scene, width, height) = (app.player().scene(), paint.width(), paint.height());
    if height < 4 {
        return;
    }
    let x = paint.heading(0, 0, "Memory");
    paint.text(x + 2, 0, "the last two steps of every rank", ink(DIM));
    let ranks = scene.now.ranks.len();
    let top = scene.now.ranks.iter().map(|rank| rank.total_peak).max().unwrap_or(0).max(1);
    for (rank, lane) in scene.window.lanes.iter().enumerate() {
        let (x, width) = cards::place(rank, ranks, width);
        let axis = Axis::last_steps(scene, app.player().clock(), 2, width);
        let columns = Column::fill(lane, axis, app.player().clock());
        Area { columns, top }.draw(&mut paint.part(x, 1, width, height - 1));
    }
}

/// The loss curve, and the run in numbers beside it.
fn progress(player: &Player, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), paint.height());
    let numbers = if width >= 100 { 46 } else { 28 };
    let chart = width.saturating_sub(numbers + 3);
    let done = steps_done(player);
    let points: Vec<(f64, f64)> = done.iter().map(|record| (f64::from(record.step), record.loss)).collect();
    let heading = if height >= 7 { 1 } else { 0 };
    if heading == 1 {
        let x = paint.heading(0, 0, "Loss");
        paint.text(x + 2, 0, "nats per token, by step", ink(DIM));
    }
    if points.is_empty() {
        paint.text(0, heading, "the loss curve begins with the first finished step", ink(DIM));
    } else {
        plot::chart(&mut paint.part(0, heading, chart, height.saturating_sub(heading)), &points, ACCENT);
    }
    let mut part = paint.part(chart + 3, 0, numbers, height);
    figures(player.scene(), done.last(), player, &mut part);
}

/// The steps that are finished at the position.
fn steps_done(player: &Player) -> &[StepRecord] {
    let steps = &player.timeline().history().steps;
    let now = player.scene().now.at;
    &steps[..steps.partition_point(|record| record.at <= now)]
}

fn figures(scene: &Scene, last: Option<&StepRecord>, player: &Player, paint: &mut Paint<'_>) {
    let live: u64 = scene.now.ranks.iter().map(|rank| rank.live_total()).sum();
    let replicated: u64 = scene.header.replicated_total.iter().sum();
    let sent: u64 = scene.now.ranks.iter().map(|rank| rank.sent_this_step().total()).sum();
    let number = |value: Option<f64>, unit: &str| {
        value.map_or("–".into(), |v| format!("{}{unit}", words::digits(v)))
    };
    let speed = last.map(|record| record.tokens as f64 / record.seconds.max(1e-9));
    let (loss, loss_note) = (number(last.map(|r| r.loss), ""), evaluation(player));
    let rows: [(&str, String, String); 7] = [
        ("loss", loss, loss_note),
        ("tokens/s", speed.map_or("–".into(), words::count), String::new()),
        ("step time", last.map_or("–".into(), |r| words::time((r.seconds * 1e9) as u64)), String::new()),
        (
            "memory, all ranks",
            words::bytes(live),
            if replicated > 0 {
                format!("{} of DDP", words::percent(live as f64, replicated as f64))
            } else {
                String::new()
            },
        ),
        ("sent this step", words::bytes(sent), "all ranks".into()),
        ("gradient norm", number(last.map(|r| r.grad_norm), ""), String::new()),
        ("learning rate", last.map_or("–".into(), |r| format!("{:.2e}", r.lr)), String::new()),
    ];
    let skip = u16::from(paint.height() > 8);
    if skip == 1 {
        paint.heading(0, 0, "Now");
    }
    for (y, (label, value, note)) in (skip..paint.height()).zip(&rows) {
        paint.text(0, y, label, ink(DIM));
        let x = paint.right(28, y, value, bold(Color::Reset)).max(28);
        let note = fitted(note, paint.width().saturating_sub(x + 2));
        paint.text(x + 2, y, note, ink(DIM));
    }
    prediction(scene, paint, skip + rows.len() as u16 + 1);
}

fn evaluation(player: &Player) -> String {
    let done = player.scene().now.ranks.first().map_or(0, |rank| rank.step + 1);
    let evaluations = &player.timeline().history().evaluations;
    let last = evaluations.iter().rev().find(|(step, _)| *step <= done && player.at_end());
    last.map_or(String::new(), |(_, loss)| format!("validation {loss:.3}"))
}

/// Whether the peaks measured so far are the ones predicted.
fn prediction(scene: &Scene, paint: &mut Paint<'_>, y: u16) {
    if y >= paint.height() || scene.header.predicted_total.is_empty() {
        return;
    }
    let pairs = scene.now.ranks.iter().zip(&scene.header.predicted_total);
    let over = pairs.clone().filter(|(rank, predicted)| rank.total_peak > **predicted).count();
    let equal = pairs.filter(|(rank, predicted)| rank.total_peak == **predicted).count();
    let ranks = scene.now.ranks.len();
    let (text, colour) = if over > 0 {
        (format!("{over} of {ranks} ranks peaked above the prediction"), ALARM)
    } else if equal == ranks {
        ("✓ every peak is as predicted, to the byte".into(), GOOD)
    } else {
        (format!("{equal} of {ranks} ranks have reached the predicted peak"), DIM)
    };
    paint.text(0, y, fitted(&text, paint.width()), ink(colour));
}
