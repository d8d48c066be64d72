//! The matrix of senders and receivers.

use super::paint::Paint;
use super::traffic::{data, of_step};
use crate::player::Scene;
use crate::theme::{DIM, FAINT, INK, ink};
use crate::words;
use events::{RankSnapshot, Sent};
use ratatui::style::{Color, Style};

/// Draws who sent how much to whom in this step, a rank in every `tall` rows.
pub(super) fn draw(scene: &Scene, tall: u16, paint: &mut Paint<'_>) {
    let ranks = scene.now.ranks.len();
    let x = paint.heading(0, 0, "From rank to rank");
    let exact = scene.now.ranks.iter().any(|rank| rank.last_hop.is_some());
    let fresh = scene.now.ranks.iter().any(|rank| data(&of_step(rank)) > 0);
    let when = if fresh { "in this step" } else { "in the last step" };
    let note = if exact { when.to_string() } else { format!("{when}, to all alike") };
    paint.text(x + 2, 0, note, ink(DIM));
    let step = |rank: &RankSnapshot| if fresh { of_step(rank) } else { rank.sent_last_step.clone() };
    let sent = scene.now.ranks.iter().enumerate().map(|(rank, now)| receivers(step(now), rank, exact));
    let sent: Vec<Vec<u64>> = sent.collect();
    let most = sent.iter().flatten().copied().max().unwrap_or(0).max(1);
    let room = paint.width().saturating_sub(6) / ranks.max(1) as u16;
    let cell = room.clamp(1, if tall > 2 { 16 } else { 9 });
    let numbers = cell >= 5;
    for (place, receiver) in (0..ranks).enumerate() {
        if numbers || receiver.is_multiple_of(8) {
            let x = 6 + place as u16 * cell;
            paint.part(x, 1, cell.max(3), 1).centred(0, cell.max(2), 0, &receiver.to_string(), ink(DIM));
        }
    }
    let rows = (tall - 1).max(1);
    for (place, row) in (0u16..).zip(&sent) {
        let y = 2 + place * tall;
        paint.right(4, y + rows / 2, place.to_string(), ink(DIM));
        for (receiver, &bytes) in row.iter().enumerate() {
            let x = 6 + receiver as u16 * cell;
            let own = receiver == usize::from(place);
            pair(&mut paint.part(x, y, cell, rows), if own { 0 } else { bytes }, most, numbers);
        }
    }
}

/// What each rank got; where no hops tell, a rank sends to all others alike.
fn receivers(sent: Sent, rank: usize, exact: bool) -> Vec<u64> {
    if exact {
        return sent.by_receiver;
    }
    let others = sent.by_receiver.len().saturating_sub(1).max(1) as u64;
    let share = sent.total() / others;
    (0..sent.by_receiver.len()).map(|receiver| if receiver == rank { 0 } else { share }).collect()
}

/// One sender's bytes to one receiver, over the whole of `paint`.
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

/// From pale to strong, by brightness alone so that everybody can read it.
fn heat(share: f64) -> Color {
    let mix = |from: f64, to: f64| (from + (to - from) * share.clamp(0.0, 1.0)) as u8;
    Color::Rgb(mix(70.0, 122.0), mix(92.0, 190.0), mix(120.0, 255.0))
}
