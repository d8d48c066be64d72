//! The run's progress: the loss curve and the metrics of the latest step.

use super::paint::Paint;
use super::plot;
use crate::fit::{columns, fitted, fitting, fitting_or_cut};
use crate::player::{Player, Scene};
use crate::theme::{ALARM, DIM, GOOD, WAITING, bold, ink};
use crate::{places, words};
use events::{Place, RankSnapshot, StepRecord, amount};
use ratatui::style::{Color, Style};
use std::cmp::Ordering;

/// Draws the loss curve, and next to it the metrics.
pub(super) fn progress(player: &Player, paint: &mut Paint<'_>) {
    let (width, height) = (paint.width(), paint.height());
    let beside = if width >= 100 { 46 } else { 28 };
    let chart = width.saturating_sub(beside + 3);
    let done = player.steps_done();
    let predicted = player.scene().header.is_predicted();
    let learned = if predicted { &[][..] } else { done };
    let points: Vec<(f64, f64)> =
        learned.iter().map(|record| (f64::from(record.step), record.loss)).collect();
    // A validation is drawn above the last step before it.
    let above = |&(after, loss): &(u32, f64)| (f64::from(after.saturating_sub(1)), loss);
    let validated: Vec<(f64, f64)> = evaluations(player).iter().map(above).collect();
    let heading = if height >= 7 { 1 } else { 0 };
    if heading == 1 {
        title(!validated.is_empty(), &mut paint.part(0, 0, chart, 1));
    }
    if points.is_empty() {
        let text = if predicted {
            "a predicted run learns nothing"
        } else {
            "the curve begins with the first finished step"
        };
        let text = fitted(text, chart);
        paint.text(0, heading, text, ink(DIM));
    } else {
        let mut part = paint.part(0, heading, chart, height.saturating_sub(heading));
        plot::chart(&mut part, &points, &validated);
    }
    let mut part = paint.part(chart + 3, 0, beside, height);
    numbers(player.scene(), done.last(), player, &mut part);
}

/// Draws the heading of the loss curve, with its unit and the validations' mark where they fit.
fn title(validated: bool, paint: &mut Paint<'_>) {
    const VALIDATION: &str = "validation";
    let x = paint.heading(0, 0, "Loss");
    let unit = fitting(&["nats per token, by step"], paint.width().saturating_sub(x + 2));
    let x = paint.text(x + 2, 0, unit, ink(DIM));
    if validated && x + 4 + columns(VALIDATION) <= paint.width() {
        let x = paint.text(x + 2, 0, "◆", ink(GOOD));
        paint.text(x + 1, 0, VALIDATION, ink(DIM));
    }
}

struct Metric {
    label: &'static str,
    value: String,
    note: String,
    style: Style,
}

fn metric(label: &'static str, value: Option<String>, note: String) -> Metric {
    Metric { label, value: value.unwrap_or_else(|| "–".into()), note, style: ink(DIM) }
}

/// Returns the metrics, the most important ones first: where there is little room, the last ones
/// are left out.
fn metrics(scene: &Scene, last: Option<&StepRecord>, player: &Player) -> Vec<Metric> {
    let live = scene.now.sum(RankSnapshot::live_total);
    let replicated = amount::total(scene.header.replicated_total.iter().copied());
    let peak = scene.now.sum(|rank| rank.total_peak);
    let share = words::percent(peak as f64, replicated as f64);
    let share = if replicated > 0 { format!("≤ {share} of DDP") } else { String::new() };
    let sent = scene.now.sum(|rank| rank.sent_in(scene.now.step()).total());
    let validated = evaluations(player).last();
    let validation = validated.map_or(String::new(), |(_, loss)| format!("validation {loss:.3}"));
    let speed = |record: &StepRecord| words::count(record.tokens_per_second());
    let none = String::new;
    let learned = last.filter(|_| !scene.header.is_predicted());
    let mut metrics = vec![
        metric("loss", learned.map(|record| words::digits(record.loss)), validation),
        metric("tokens/s", last.map(speed), none()),
        metric("step time", last.map(|record| words::time((record.seconds * 1e9) as u64)), none()),
        metric("memory, all ranks", Some(words::bytes(live)), share),
        metric("sent, all ranks", Some(words::bytes(sent)), "this step".into()),
        metric("gradient norm", learned.map(gradient_norm), none()),
        metric("learning rate", learned.map(|record| format!("{:.2e}", record.lr)), none()),
    ];
    for &place in places::used(&scene.header).iter().rev() {
        let live = scene.now.sum(|rank| rank.live_in(place));
        let (label, note) = match place {
            Place::Disk => ("on disk, all ranks", ""),
            _ => ("host, all ranks", places::within(place)),
        };
        metrics.insert(4, metric(label, Some(words::bytes(live)), note.into()));
    }
    if let Some(scaling) = last.and_then(scaling) {
        metrics.insert(1, scaling);
    }
    metrics
}

fn numbers(scene: &Scene, last: Option<&StepRecord>, player: &Player, paint: &mut Paint<'_>) {
    let metrics = metrics(scene, last, player);
    let skip = u16::from(paint.height() > 8);
    if skip == 1 {
        paint.heading(0, 0, "Now");
    }
    for (y, Metric { label, value, note, style }) in (skip..paint.height()).zip(&metrics) {
        paint.text(0, y, label, ink(DIM));
        let x = paint.right(28, y, value, bold(Color::Reset)).max(28);
        let note = fitted(note, paint.width().saturating_sub(x + 2));
        paint.text(x + 2, y, note, *style);
    }
    if let Some((forms, colour)) = verdict(scene) {
        let text = fitting_or_cut(&forms, paint.width());
        paint.text(0, skip + metrics.len() as u16 + 1, text, ink(colour));
    }
}

/// Returns the validations that are finished at the position.
fn evaluations(player: &Player) -> &[(u32, f64)] {
    let all = &player.timeline().state.history.evaluations;
    if player.at_end() {
        return all;
    }
    // A validation ends before the step after it begins.
    let (step, latest) =
        (player.scene().now.ranks.first().map_or(0, |rank| rank.step), player.scene().validated);
    &all[..all.partition_point(|(after, _)| *after <= step || Some(*after) <= latest)]
}

fn gradient_norm(record: &StepRecord) -> String {
    if record.grad_norm.is_finite() { words::digits(record.grad_norm) } else { "overflow".into() }
}

/// Returns the loss scale; `None` if the loss was not scaled.
fn scaling(record: &StepRecord) -> Option<Metric> {
    let scale = words::grouped(record.loss_scale? as u64);
    let (note, colour) = match record.skipped {
        0 => ("no step skipped".into(), DIM),
        1 => ("1 step skipped".into(), WAITING),
        many => (format!("{many} steps skipped"), WAITING),
    };
    Some(Metric { style: ink(colour), ..metric("loss scale", Some(scale), note) })
}

/// Compares the peaks so far with the predicted ones: in words, again in fewer, and a colour.
/// Returns `None` if there is no prediction.
pub(super) fn verdict(scene: &Scene) -> Option<([String; 2], Color)> {
    if scene.header.predicted_total.is_empty() {
        return None;
    }
    let ranks = || scene.now.ranks.iter().zip(&scene.header.predicted_total).enumerate();
    let elsewhere = |number: usize, rank: &RankSnapshot| {
        let predicted = scene.header.offload.memory.iter().filter(move |p| p.rank as usize == number);
        predicted.map(|p| rank.peak_in(p.place).cmp(&p.total)).collect::<Vec<_>>()
    };
    let above = |(number, (rank, predicted)): &(usize, (&RankSnapshot, &u64))| {
        rank.total_peak > **predicted || elsewhere(*number, rank).contains(&Ordering::Greater)
    };
    let over = ranks().filter(above).count();
    let equal = ranks().filter(|(_, (rank, predicted))| rank.total_peak == **predicted).count();
    let below = ranks().any(|(number, (rank, _))| elsewhere(number, rank).contains(&Ordering::Less));
    let ranks = scene.now.ranks.len();
    Some(if over > 0 {
        (
            [
                format!("{over} of {ranks} ranks peaked above the prediction"),
                format!("{over} of {ranks} peaks too high"),
            ],
            ALARM,
        )
    } else if equal == ranks && scene.header.is_predicted() {
        (["every rank has reached its predicted peak", "peaks reached"].map(String::from), DIM)
    } else if equal == ranks {
        let which = if below { "device's peak" } else { "peak" };
        ([format!("✓ every {which} is as predicted, to the byte"), "✓ peaks as predicted".into()], GOOD)
    } else if equal == 0 {
        (["no rank has reached its predicted peak yet", "no peak reached yet"].map(String::from), DIM)
    } else {
        (
            [
                format!("{equal} of {ranks} ranks have reached the predicted peak"),
                format!("{equal} of {ranks} peaks reached"),
            ],
            DIM,
        )
    })
}
