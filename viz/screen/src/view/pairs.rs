//! The matrix of bytes sent from rank to rank.

use super::paint::Paint;
use crate::fit::{columns, fitting_or_cut};
use crate::player::Scene;
use crate::theme::{DIM, FAINT, INK, ink};
use crate::words;
use events::{RankSnapshot, Sent};
use ratatui::style::{Color, Style};

/// The width of the senders' numbers, and that of the narrowest cell with a number in it.
const LABELS: u16 = 6;
const CELL: u16 = 5;

/// Returns the number of neighbouring ranks that share a row and a column so that all fit: a power
/// of two. The matrix has two rows above it.
pub(super) fn folded(ranks: usize, width: u16, height: u16) -> usize {
    let most = (width.saturating_sub(LABELS) / CELL).min(height.saturating_sub(2)).max(1);
    let powers = (0..usize::BITS - 1).map(|power| 1 << power);
    powers.into_iter().find(|fold| ranks.div_ceil(*fold) <= usize::from(most)).unwrap_or(ranks)
}

/// Draws the bytes from each rank to each other rank, a row of the matrix in every `tall` rows:
/// those of the step, and those of the run below them or, if rows are scarce, next to them.
pub(super) fn draw(scene: &Scene, tall: u16, paint: &mut Paint<'_>) {
    let ranks = &scene.now.ranks;
    if ranks.len() < 2 {
        return;
    }
    let (width, height) = (paint.width(), paint.height());
    let fold = folded(ranks.len(), width, height);
    let exact = ranks.iter().any(|rank| rank.last_hop.is_some());
    let now = scene.now.step();
    let fresh = ranks.iter().any(|rank| rank.sent_in(now).data() > 0);
    let last = scene.now.finished_step().filter(|_| !fresh);
    let step = |rank: &RankSnapshot| rank.sent_in(last.unwrap_or(now));
    let matrix = |sent: &dyn Fn(&RankSnapshot) -> Sent| {
        let sent = ranks.iter().enumerate().map(|(rank, now)| receivers(sent(now), rank, exact));
        summed(&sent.collect::<Vec<_>>(), fold)
    };
    let (step, run) = (matrix(&step), matrix(&|rank| rank.sent.clone()));
    let half = width.saturating_sub(2) / 2;
    let beside = tall == 1 && LABELS + step.len() as u16 * CELL <= half;
    let first = if beside { half } else { width };
    let mut when = if exact { "" } else { "averaged " }.to_string();
    when.push_str(if fresh { "this step" } else { "last step" });
    when.push_str(if tall > 1 { ", below it the run" } else { "" });
    heading(fold, &when, &mut paint.part(0, 0, first, 1));
    cells(&step, Some(&run[..]).filter(|_| tall > 1), (fold, tall), &mut paint.part(0, 1, first, height));
    if beside {
        let mut second = paint.part(half + 2, 0, half, height);
        let notes = sharing(fold).map(|cells| format!("in the run{cells}"));
        second.text(0, 0, fitting_or_cut(&notes, half), ink(DIM));
        cells(&run, None, (fold, tall), &mut second.part(0, 1, half, height));
    }
}

/// Draws the numbers of senders and receivers, and their cells. `below` holds a second number for
/// each.
fn cells(sent: &[Vec<u64>], below: Option<&[Vec<u64>]>, (fold, tall): (usize, u16), paint: &mut Paint<'_>) {
    let most = sent.iter().flatten().copied().max().unwrap_or(0).max(1);
    let room = paint.width().saturating_sub(LABELS) / sent.len().max(1) as u16;
    let cell = room.clamp(1, if tall > 2 { 16 } else { 9 });
    let rows = (tall - 1).max(1);
    for (place, row) in (0u16..).zip(sent) {
        let (x, y) = (LABELS + place * cell, 1 + place * tall);
        let first = (usize::from(place) * fold).to_string();
        paint.part(x, 0, cell, 1).centred(0, cell.saturating_sub(1), 0, &first, ink(DIM));
        paint.right(LABELS - 2, y + rows / 2, &first, ink(DIM));
        for (receiver, &bytes) in (0u16..).zip(row) {
            let x = LABELS + receiver * cell;
            pair(&mut paint.part(x, y, cell, rows), bytes, most, cell >= CELL);
            let below = below.map_or(0, |below| below[usize::from(place)][usize::from(receiver)]);
            if below > 0 {
                let text = words::short_bytes(below);
                paint.part(x, y + rows, cell, 1).centred(0, cell - 1, 0, &text, ink(DIM));
            }
        }
    }
}

fn heading(fold: usize, when: &str, paint: &mut Paint<'_>) {
    const HEADINGS: [&str; 2] = ["From rank to rank", "Rank to rank"];
    let [long, short] = sharing(fold).map(|cells| format!("{when}{cells}"));
    let notes = [format!("{long}: rows send, columns receive"), long, short.clone()];
    let room = |heading: &str| paint.width().saturating_sub(columns(heading) + 2);
    let short_heading = columns(&short) > room(HEADINGS[0]) && columns(&short) <= room(HEADINGS[1]);
    let heading = HEADINGS[usize::from(short_heading)];
    let all = [&notes[..], &[when.into()]].concat();
    paint.noted_heading(heading, fitting_or_cut(&all, room(heading)));
}

/// Returns the number of ranks that share a cell, in a long and a short form; nothing if none do.
fn sharing(fold: usize) -> [String; 2] {
    let told = [format!(", {fold} × {fold} ranks a cell"), format!(", {fold} × {fold} a cell")];
    told.map(|text| if fold > 1 { text } else { String::new() })
}

/// Returns the matrix with `fold` neighbours summed in both directions.
fn summed(sent: &[Vec<u64>], fold: usize) -> Vec<Vec<u64>> {
    let groups = sent.len().div_ceil(fold);
    let mut sums = vec![vec![0; groups]; groups];
    for (sender, receivers) in sent.iter().enumerate() {
        for (receiver, bytes) in receivers.iter().enumerate() {
            let sum: &mut u64 = &mut sums[sender / fold][receiver / fold];
            *sum = sum.saturating_add(*bytes);
        }
    }
    sums
}

/// Returns the bytes sent to each rank. Without hops (not `exact`), the rank is assumed to send
/// equally to all others.
fn receivers(sent: Sent, rank: usize, exact: bool) -> Vec<u64> {
    if exact {
        return sent.by_receiver.to_vec();
    }
    let others = sent.by_receiver.len().saturating_sub(1).max(1) as u64;
    let share = sent.total() / others;
    (0..sent.by_receiver.len()).map(|receiver| if receiver == rank { 0 } else { share }).collect()
}

/// Draws one sender's bytes to one receiver, over the whole of `paint`.
fn pair(paint: &mut Paint<'_>, bytes: u64, most: u64, numbers: bool) {
    let (width, middle) = (paint.width().saturating_sub(u16::from(numbers)), paint.height() / 2);
    if bytes == 0 {
        return paint.centred(0, width, middle, "·", ink(FAINT));
    }
    let share = bytes as f64 / most as f64;
    let colours = paint.theme().colours();
    let style = if colours { Style::new().bg(heat(share)).fg(INK) } else { Style::new() };
    let shade = ["░", "▒", "▓", "█"][((share * 4.0) as usize).min(3)];
    for y in 0..paint.height() {
        paint.run(0, y, width, if colours || numbers { " " } else { shade }, style);
    }
    if numbers {
        paint.centred(0, width, middle, &words::short_bytes(bytes), style);
    }
}

/// Returns a colour from pale to strong. It varies in brightness, so that every kind of colour
/// vision can read it.
fn heat(share: f64) -> Color {
    let mix = |from: f64, to: f64| (from + (to - from) * share.clamp(0.0, 1.0)) as u8;
    Color::Rgb(mix(70.0, 122.0), mix(92.0, 190.0), mix(120.0, 255.0))
}
